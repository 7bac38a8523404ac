package sqlite

import (
	"errors"
	"os"
	"path/filepath"
	"sync/atomic"
	"time"

	"github.com/surehook/surehook"
)

const (
	defaultFloor = 64 << 20
	reserveSize  = 16 << 20
)

// space watches the disk. On a full disk even a checkpoint fails, so new
// events are refused a little before; a reserve file is given up for the
// outcomes of what is being delivered.
type space struct {
	free, wal atomic.Int64
	reserve   string
	floor     int64
}

func (p *space) start(s *Store) {
	p.reserve = s.path + ".reserve"
	p.floor = s.opt.FreeFloor
	if p.floor == 0 {
		p.floor = defaultFloor
	}
	p.free.Store(-1) // unknown
	p.measure(s)
	if p.floor > 0 {
		p.refill(s)
	}
	s.bg.Go(func() {
		tick := time.NewTicker(250 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-s.closing:
				return
			case <-tick.C:
				p.measure(s)
				if p.floor > 0 {
					p.refill(s)
				}
			}
		}
	})
}

func (p *space) measure(s *Store) {
	p.wal.Store(fileSize(s.wal()))
	if free, ok := diskFree(filepath.Dir(s.path)); ok {
		p.free.Store(free)
	}
}

func (p *space) walSize() int64 { return p.wal.Load() }

// full gives the reserve file up.
func (p *space) full() {
	_ = os.Remove(p.reserve) // not there: nothing to give
}

// spent tells whether nothing is left on the disk of a file.
func (*space) spent(path string) bool {
	free, ok := diskFree(filepath.Dir(path))
	return ok && free < 1<<20
}

// makeRoom gives the reserve up where even opening the file would fail.
func (p *space) makeRoom(path string) {
	if p.spent(path) {
		_ = os.Remove(path + ".reserve") // not there: nothing to give
	}
}

// refill makes the reserve file again once there is room for it and for more.
func (p *space) refill(s *Store) {
	if free := p.free.Load(); free >= 0 && free < p.floor+2*reserveSize {
		return
	}
	if st, err := os.Stat(p.reserve); err == nil && st.Size() == reserveSize {
		return
	}
	f, err := os.OpenFile(p.reserve, os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return // read-only: appends will say so
	}
	// Written, not truncated to size: a hole reserves nothing.
	_, err = f.Write(make([]byte, reserveSize))
	if err := errors.Join(err, f.Close()); err != nil {
		s.log.Warn("no reserve file could be made: on a full disk, outcomes may be lost to a repeat", "error", err)
	}
}

// check refuses new events while the disk is too full to be sure of them.
func (p *space) check() error {
	if free := p.free.Load(); p.floor > 0 && free >= 0 && free < p.floor {
		return surehook.Errorf(surehook.Unavailable, "the disk is nearly full; free some space, deliveries go on")
	}
	if p.wal.Load() > walHardLimit {
		return surehook.Errorf(surehook.Unavailable, "the store is behind with its write-ahead log; try again shortly")
	}
	return nil
}
