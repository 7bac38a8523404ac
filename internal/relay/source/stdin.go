package source

import (
	"bytes"
	"context"
	"errors"
	"io"

	"github.com/oklog/ulid/v2"

	"github.com/surehook/surehook/internal/relay/audit"
	"github.com/surehook/surehook/internal/relay/config"
)

// stdin reads lines from a stream. There is no bookmark: what was read is gone
// from it.
type stdin struct {
	id     string
	o      Options
	parser audit.Parser
	ask    chan []byte   // a buffer to read into
	got    chan readDone // what came of it
	asked  bool
	spare  []byte
	rest   []byte // read, but not given yet
	skip   bool   // in a line that is too long
	err    error  // how the stream ended
}

type readDone struct {
	n   int
	err error
}

func newStdin(c config.Source, o Options) *stdin {
	return &stdin{id: c.ID(), o: o, ask: make(chan []byte), got: make(chan readDone, 1), spare: make([]byte, 256<<10)}
}

func (s *stdin) ID() string { return s.id }

// read runs beside Next, because nothing else ends a wait for input. It reads only
// when it is asked to, so that what nobody will take stays where it is.
func (s *stdin) read() {
	for b := range s.ask {
		n, err := s.o.Stdin.Read(b)
		s.got <- readDone{n, err}
	}
}

// Next gives, also after ctx has ended, what was read already.
func (s *stdin) Next(ctx context.Context) (*Batch, error) {
	for {
		if b := s.collect(); b != nil {
			return b, nil
		}
		switch {
		case s.err != nil:
			return nil, s.err
		case ctx.Err() != nil:
			return nil, ctx.Err()
		}
		if err := s.fill(ctx); err != nil {
			return nil, err
		}
	}
}

// fill waits for more.
func (s *stdin) fill(ctx context.Context) error {
	if s.ask == nil {
		return io.EOF
	}
	if !s.asked {
		if s.rest == nil {
			go s.read()
			s.rest = make([]byte, 0, 256<<10)
		}
		s.ask <- s.spare
		s.asked = true
	}
	select {
	case <-ctx.Done():
		return ctx.Err()
	case r := <-s.got:
		s.asked = false
		s.rest = append(s.rest, s.spare[:r.n]...)
		if r.err != nil {
			s.err = r.err
			close(s.ask)
			if !errors.Is(r.err, io.EOF) {
				s.o.Log.Error("standard input can't be read any more", "error", r.err)
			}
		}
		return nil
	}
}

// collect makes a batch of the lines that are there; nil: there is none yet.
func (s *stdin) collect() *Batch {
	now := s.o.Now()
	c := newCollector(&s.parser, s.id, now, func([]byte, int64) string {
		return ulid.MustNew(ulid.Timestamp(now), s.o.Entropy).String()
	})
	used := 0
	for !c.full() {
		n := bytes.IndexByte(s.rest[used:], '\n')
		if n < 0 {
			break
		}
		s.line(c, s.rest[used:used+n])
		used += n + 1
	}
	s.rest = append(s.rest[:0], s.rest[used:]...)
	switch ended := s.err != nil; {
	case bytes.IndexByte(s.rest, '\n') >= 0:
	case ended && (len(s.rest) > 0 || s.skip):
		s.line(c, s.rest)
		s.rest = s.rest[:0]
	case len(s.rest) > MaxLine+1: // and a carriage return
		s.skip, s.rest = true, s.rest[:0]
	}
	if c.batch.Lines == 0 {
		return nil
	}
	return c.batch
}

func (s *stdin) line(c *collector, line []byte) {
	if s.skip {
		s.skip = false
		c.tooLong()
		return
	}
	c.line(line, 0)
}

// Stuck is never the case: an error is the end.
func (s *stdin) Stuck() error { return nil }

// Committed has nothing to move.
func (s *stdin) Committed(context.Context, *Batch) error { return nil }

// Close lets go. A read that waits for input goes on waiting, and takes nothing
// with it but what comes while the process ends.
func (s *stdin) Close(context.Context) error {
	if s.err == nil && !s.asked {
		close(s.ask)
	}
	return nil
}
