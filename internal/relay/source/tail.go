package source

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/surehook/surehook/internal/relay/audit"
	"github.com/surehook/surehook/internal/relay/config"
)

const (
	idleFirst = 10 * time.Millisecond // until the next look, after there was something
	idleMost  = 100 * time.Millisecond
	busyLooks = 100                    // in a row, whatever changes
	saveEvery = 250 * time.Millisecond // the state; what a crash loses of it is read again, to no effect
	linger    = 30 * time.Second       // a file that was rotated away is read on: its writer may not know yet
)

// tail reads a log that grows. Files are looked at rather than watched by the
// system's means: that works the same everywhere, also where a watch sees nothing
// (network file systems) or too late, and a look costs two system calls.
type tail struct {
	id, path      string
	fromBeginning bool
	o             Options
	log           *slog.Logger
	parser        audit.Parser
	buf           []byte
	told          map[string]string // troubles that were logged and go on
	stuck         atomic.Pointer[error]

	mu       sync.Mutex // Next and Committed come from different goroutines
	state    *state     // nil: not begun
	files    []*file    // oldest first; the log itself is the last, once it is there
	bookmark bookmark
	scan     bool // look for rotated files whatever the log is like
	unsaved  bool // a file is new: the state goes first
	dirty    bool
	saved    time.Time
}

func newTail(c config.Source, o Options) *tail {
	return &tail{id: c.ID(), path: c.Path, fromBeginning: c.FromBeginning, o: o, log: o.Log, bookmark: newBookmark(c.Path),
		buf: make([]byte, maxRead+tailBytes), told: map[string]string{}}
}

func (t *tail) ID() string { return t.id }

func (t *tail) Next(ctx context.Context) (*Batch, error) {
	wait := idleFirst
	for looks := 0; ; looks++ {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		b, again, err := t.step(ctx)
		t.stuck.Store(&err)
		if b != nil {
			return b, nil
		}
		if again && looks < busyLooks {
			continue
		}
		looks = 0
		select {
		case <-ctx.Done():
		case <-time.After(wait):
			wait = min(2*wait, idleMost)
		}
	}
}

// Stuck is by the last look.
func (t *tail) Stuck() error {
	if err := t.stuck.Load(); err != nil {
		return *err
	}
	return nil
}

// step looks once. again: something has changed, so that another look may find
// more. Its error, which was logged, keeps lines from being read.
func (t *tail) step(ctx context.Context) (b *Batch, again bool, stuck error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.state == nil {
		if err := t.begin(ctx); err != nil {
			t.trouble("the source can't begin; trying again", err)
			return nil, false, err
		}
	}
	if t.unsaved || t.dirty && t.o.Now().Sub(t.saved) >= saveEvery {
		if err := t.save(ctx); err != nil {
			t.trouble(cantSave, err)
			if t.unsaved {
				return nil, false, err
			}
		}
	}
	for _, f := range t.files {
		switch b, err := t.read(f); {
		case b != nil:
			return b, false, nil
		case errors.Is(err, errGone) && f.frozen:
			t.trouble("a copy of the log was changed; what wasn't read of it is lost", err)
			f.over = true
		case errors.Is(err, errGone):
			t.cut(f)
			return nil, true, nil
		case err != nil:
			t.trouble(cantRead, err)
			stuck = err
		case t.unsaved:
			return nil, true, nil
		}
	}
	t.retire()
	again, err := t.follow()
	return nil, again, cmp.Or(stuck, err)
}

// read makes a batch of what a file has.
func (t *tail) read(f *file) (*Batch, error) {
	if f.over {
		return nil, nil
	}
	now := t.o.Now()
	if len(f.head) == 0 {
		if noted, err := t.note(f); noted || err != nil {
			return nil, err
		}
	}
	if f.done.blank() {
		// The state knows nothing yet by which the file could be known again; that it
		// must, before any line is given.
		if err := f.seek(0); err != nil || f.done.blank() {
			return nil, err
		}
		t.unsaved = true
		return nil, nil
	}
	wrote := f.modified()
	c := newCollector(&t.parser, t.id, now, func(line []byte, offset int64) string {
		return lineID(t.state.Seed, f.generation, offset, line, f.born)
	})
	err := f.collect(c, t.buf)
	if !errors.Is(err, errGone) {
		f.wrote = wrote
	}
	if err == nil && c.batch.Lines == 0 && f.ended(now) {
		if err = f.finish(c, t.buf); err == nil {
			f.over = true
		}
	}
	if c.batch.Lines == 0 {
		return nil, err
	}
	delete(t.told, cantRead)
	c.batch.file, c.batch.at = f.generation, f.at
	return c.batch, nil
}

// note learns how a file begins that was empty until now; true: it isn't any more.
// That is saved before a line of it is given: after a kill the file must be known
// again, or its lines would come under other ids.
func (t *tail) note(f *file) (bool, error) {
	head := make([]byte, headBytes)
	n, err := f.h.ReadAt(head, 0)
	if err != nil && !errors.Is(err, io.EOF) {
		return false, err
	}
	if t.swapped(f) { // asked last: what was cut before the reading has its copy by now
		return false, errGone
	}
	if n == 0 {
		return false, nil
	}
	f.head = head[:n]
	f.mark()
	f.done, t.unsaved = f.at, true
	return true, nil
}

// ended tells whether nobody will write a file any more.
func (f *file) ended(now time.Time) bool {
	if f.left.IsZero() {
		return false
	}
	since := f.left
	if f.grown.After(since) {
		since = f.grown
	}
	return f.frozen || now.Sub(since) >= linger
}

// retire lets go of files that are read and committed to their end.
func (t *tail) retire() {
	t.files = slices.DeleteFunc(t.files, func(f *file) bool {
		if !f.over || f.done.Offset != f.read {
			return false
		}
		t.state.Left = f.modified()
		_ = f.h.Close()
		t.state.finished(known{identOf(f.info), f.at})
		t.dirty = true
		return true
	})
}

func (t *tail) Committed(ctx context.Context, b *Batch) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, f := range t.files {
		if f.generation == b.file && b.at.Offset > f.done.Offset {
			f.done, t.dirty = b.at, true
		}
	}
	if t.dirty && t.o.Now().Sub(t.saved) >= saveEvery {
		return t.save(ctx)
	}
	return nil
}

func (t *tail) Close(ctx context.Context) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	var err error
	if t.state != nil && (t.dirty || t.unsaved) {
		err = t.save(ctx)
	}
	for _, f := range t.files {
		_ = f.h.Close()
	}
	t.files, t.state = nil, nil
	return err
}

// save writes the state, and then the bookmark for the original.
func (t *tail) save(ctx context.Context) error {
	s := t.state
	s.Files = s.Files[:0]
	for _, f := range t.files {
		s.Files = append(s.Files, fileState{f.generation, f.born, identOf(f.info), f.done})
	}
	note := ""
	if n := len(t.files); n > 0 {
		f := t.files[n-1]
		s.Left = f.modified()
		note = content(identOf(f.info).Ino, f.done.Offset)
		if !slices.Contains(s.Ours, note) {
			s.Ours = append(s.Ours, note)
			s.Ours = s.Ours[max(0, len(s.Ours)-2):]
		}
	}
	s.Saved = t.o.Now()
	b, err := json.Marshal(s)
	if err != nil {
		return err
	}
	if err := t.o.States.Save(ctx, t.id, b); err != nil {
		return err
	}
	t.saved, t.dirty, t.unsaved = s.Saved, false, false
	delete(t.told, cantSave)
	if note != "" {
		if err := t.bookmark.write(note); err != nil {
			t.trouble("the bookmark beside the log can't be written; only going back to the original needs it", err)
		}
	}
	return nil
}

// Troubles that may go on, and end.
const (
	cantRead = "the log can't be read; trying again"
	cantSave = "the source's state can't be saved; trying again"
	isntHere = "the log isn't there; waiting for it"
	cantLook = "the log can't be looked at; trying again"
)

// trouble logs something that may go on, once.
func (t *tail) trouble(text string, err error) {
	if t.told[text] != err.Error() {
		t.told[text] = err.Error()
		t.log.Warn(text, "error", err)
	}
}
