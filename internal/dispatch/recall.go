package dispatch

import "time"

// Lanes hold copies of events. When events are erased, Recall finds the copies and
// marks them: their attempts make no request, and end as event_unavailable. What is
// on the wire by then can't be called back.
//
// A row that is on its way from the store into a lane while Recall looks through
// the lanes would be missed. So whoever puts rows into a lane says how many recalls
// there were before the store was asked, and asks about the rows once more if there
// were others since.

const recallStep = 1000 // events asked about in one go

// Recalls is to be read before an append whose rows are handed over.
func (d *Dispatcher) Recalls() int64 { return d.recalls.Load() }

// Recall keeps erased events from being sent out of this node's lanes.
func (d *Dispatcher) Recall() {
	d.recalls.Add(1)
	var held []*parcel
	for _, l := range d.all() {
		l.mu.Lock()
		for _, it := range l.queue {
			held = append(held, it.parcel)
		}
		l.mu.Unlock()
	}
	d.recall(held)
}

// recall marks those of the parcels whose events are erased. It ends when the store
// has answered, or with the drain, which frees what lanes hold.
func (d *Dispatcher) recall(held []*parcel) {
	by := make(map[int64][]*parcel)
	var keys []int64
	for _, p := range held {
		if by[p.event.Key] == nil {
			keys = append(keys, p.event.Key)
		}
		by[p.event.Key] = append(by[p.event.Key], p)
	}
	for len(keys) > 0 && d.open.Err() == nil {
		n := min(recallStep, len(keys))
		erased, err := d.store.ErasedAmong(d.open, keys[:n])
		if err != nil {
			d.log.Warn("which events are erased couldn't be read; trying again", "error", err)
			select {
			case <-d.open.Done():
			case <-time.After(claimPause):
			}
			continue
		}
		for _, key := range erased {
			for _, p := range by[key] {
				p.erased.Store(true)
			}
		}
		keys = keys[n:]
	}
}

// lockRecalled takes mu for rows that are put into the lane, when it is known of
// all recalls whether they concern them.
func (l *lane) lockRecalled(recalls int64, rows []*parcel) {
	l.mu.Lock()
	for now := l.d.recalls.Load(); now != recalls; now = l.d.recalls.Load() {
		l.mu.Unlock()
		l.d.recall(rows)
		recalls = now
		l.mu.Lock()
	}
}
