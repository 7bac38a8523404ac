package engine

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"slices"
	"sync"
	"time"

	"github.com/surehook/surehook"
)

const (
	widePart    = 500 // endpoints between two notes of how far it got
	wideWriters = 32  // that share the store's transactions
	wideSetting = "wide_fanouts"
)

// wide keeps the fan-outs of events that have more endpoints than one
// transaction should hold rows. What is to follow is noted in the store before
// the event is; see docs/adr/0006.
type wide struct {
	mu   sync.Mutex
	jobs []*wideJob
}

// wideJob is the part of an event's fan-out that is still to be written.
type wideJob struct {
	Tenant string    `json:"tenant"`
	ID     string    `json:"id"`
	At     time.Time `json:"at"`
	Packed []byte    `json:"keys"` // the differences of Keys, as varints
	Keys   []int64   `json:"-"`    // of endpoints, ascending
	all    int       // Keys that it began with

	event *surehook.Event // to be handed over at its end; nil: not
}

func (w *wide) job(ev *surehook.Event, endpoints []*surehook.Endpoint, now time.Time) *wideJob {
	j := &wideJob{Tenant: ev.Tenant, ID: ev.ID, At: now, Keys: make([]int64, len(endpoints)), all: len(endpoints)}
	for i, ep := range endpoints {
		j.Keys[i] = ep.Key
	}
	return j
}

func (j *wideJob) pack() {
	j.Packed = j.Packed[:0]
	last := int64(0)
	for _, k := range j.Keys {
		j.Packed = binary.AppendUvarint(j.Packed, uint64(k-last))
		last = k
	}
}

func (j *wideJob) unpack() {
	last := int64(0)
	for b := j.Packed; len(b) > 0; {
		d, n := binary.Uvarint(b)
		if n <= 0 {
			return
		}
		last += int64(d)
		j.Keys = append(j.Keys, last)
		b = b[n:]
	}
}

// note changes the list of jobs and stores it. When that fails the list is as
// it was.
func (e *Engine) note(ctx context.Context, change func([]*wideJob) []*wideJob) error {
	w := &e.wide
	w.mu.Lock()
	defer w.mu.Unlock()
	jobs := change(slices.Clone(w.jobs))
	for _, j := range jobs {
		j.pack()
	}
	b, err := json.Marshal(jobs)
	if err != nil {
		return err
	}
	if _, err := e.store.PutSetting(ctx, wideSetting, b, true); err != nil {
		return err
	}
	w.jobs = jobs
	return nil
}

// planWide notes what is to follow an append, before it.
func (e *Engine) planWide(ctx context.Context, jobs map[int]*wideJob) error {
	if len(jobs) == 0 {
		return nil
	}
	return e.note(ctx, func(all []*wideJob) []*wideJob {
		for _, j := range jobs {
			all = append(all, j)
		}
		return all
	})
}

// settleWide follows an append that failed. If nothing was stored the plans go;
// if that isn't known, each looks for its event.
func (e *Engine) settleWide(jobs map[int]*wideJob, nothing bool) {
	for _, j := range jobs {
		if nothing {
			e.endWide(j)
		} else {
			e.runWide(j, 0)
		}
	}
}

// endWide takes a job off the list. A job that stays there by a fault of the
// store is found to be done, or without an event, at the next start.
func (e *Engine) endWide(j *wideJob) {
	err := e.note(context.Background(), func(all []*wideJob) []*wideJob {
		return slices.DeleteFunc(all, func(x *wideJob) bool { return x == j })
	})
	if err != nil {
		e.log.Warn("a wide fan-out couldn't be struck off", "event_id", j.ID, "error", err)
	}
}

// resumeWide goes on with what an earlier process left.
func (e *Engine) resumeWide(ctx context.Context) error {
	b, err := e.store.Setting(ctx, wideSetting)
	if surehook.CodeOf(err) == surehook.NotFound {
		return nil
	}
	if err != nil {
		return err
	}
	if err := json.Unmarshal(b, &e.wide.jobs); err != nil {
		return err
	}
	for _, j := range e.wide.jobs {
		j.unpack()
	}
	for _, j := range slices.Clone(e.wide.jobs) {
		e.runWide(j, 0)
	}
	return nil
}

// runWide writes the rows of a job in the background. event is the event's key,
// or 0 if it is to be looked for.
func (e *Engine) runWide(j *wideJob, event int64) {
	e.bg.Go(func() {
		for wait := 100 * time.Millisecond; ; wait = min(2*wait, 10*time.Second) {
			err := e.stepsWide(j, event)
			if e.ctx.Err() != nil {
				return // it goes on after the next start
			}
			if err == nil {
				e.endWide(j)
				if j.event != nil {
					e.handoff.put(j.event)
				}
				return
			}
			e.log.Warn("a wide fan-out waits for the store", "event_id", j.ID, "endpoints", len(j.Keys), "error", err)
			select {
			case <-e.ctx.Done():
				return
			case <-time.After(wait):
			}
		}
	})
}

// stepsWide writes the rows in parts, and notes how far it got after each: a
// crash repeats one part.
func (e *Engine) stepsWide(j *wideJob, event int64) error {
	if event == 0 {
		ev, err := e.store.Event(e.ctx, &j.Tenant, j.ID)
		switch {
		case surehook.CodeOf(err) == surehook.NotFound:
			return nil // it was never stored
		case err != nil:
			return err
		case ev.CreatedAt.Before(j.At.Add(-time.Second)):
			return nil // an older event's twin, which was refused
		}
		event = ev.Key
	}
	for len(j.Keys) > 0 {
		part := j.Keys[:min(widePart, len(j.Keys))]
		failed, err := e.writePart(part, event)
		rest := slices.Concat(failed, j.Keys[len(part):])
		e.wide.set(j, rest) // also when it can't be noted: what is written isn't written again
		if err != nil {
			return err
		}
		if err := e.note(e.ctx, func(all []*wideJob) []*wideJob { return all }); err != nil {
			return err
		}
	}
	return nil
}

func (w *wide) set(j *wideJob, keys []int64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	j.Keys = keys
}

// writePart makes the pending rows of some endpoints. Each is a transaction of
// the store's, which those that wait together share; those of sentinels are one. It
// gives the endpoints whose rows aren't there.
func (e *Engine) writePart(keys []int64, event int64) ([]int64, error) {
	keys, watching := e.watching(keys)
	if err := e.sightLate(watching, event); err != nil {
		return slices.Sorted(slices.Values(slices.Concat(keys, watching))), err
	}
	next := make(chan int64)
	var mu sync.Mutex
	var failed []int64
	var last error
	var writers sync.WaitGroup
	for range min(wideWriters, len(keys)) {
		writers.Go(func() {
			for key := range next {
				_, err := e.store.Replay(e.ctx, key, []int64{event}, nil)
				switch {
				case err == nil:
					e.wake(key)
				case surehook.CodeOf(err) == surehook.NotFound, surehook.CodeOf(err) == surehook.Conflict:
					// The endpoint is deleted, and so would the row be; or the event was erased.
				default:
					mu.Lock()
					failed, last = append(failed, key), err
					mu.Unlock()
				}
			}
		})
	}
	for _, key := range keys {
		next <- key
	}
	close(next)
	writers.Wait()
	slices.Sort(failed)
	return failed, last
}
