package cli

import (
	"io"
	"sync"
	"time"
)

// progress is one line that keeps changing on a terminal, and a line now and
// then elsewhere. It goes to standard error, away from results.
type progress struct {
	w        io.Writer
	terminal bool
	quiet    bool
	state    *progressState
}

type progressState struct {
	mu      sync.Mutex
	line    string // the newest, as it is to be shown
	last    string // what it tells
	printed string // what was told
	at      time.Time
	dirty   bool // the terminal's line isn't ended
}

const progressEvery = time.Second // elsewhere than on a terminal

func (c *cmd) progress() progress {
	return progress{w: c.env.Stderr, terminal: c.env.StderrTerminal && c.env.getenv("TERM") != "dumb", quiet: c.json, state: &progressState{}}
}

// show tells how things stand. before is a clock or the like in front of it,
// which goes on by itself: elsewhere than on a terminal that alone is no news.
func (p progress) show(before, line string) {
	if p.quiet {
		return
	}
	s := p.state
	s.mu.Lock()
	defer s.mu.Unlock()
	whole := before + line
	switch {
	case p.terminal && whole != s.line:
		p.write("\r\x1b[K" + whole)
		s.dirty = true
	case !p.terminal && line != s.printed && time.Since(s.at) >= progressEvery:
		p.write(whole + "\n")
		s.at, s.printed = time.Now(), line
	}
	if line != s.last || p.terminal {
		s.line, s.last = whole, line
	}
}

func (p progress) write(s string) { _, _ = io.WriteString(p.w, s) } // progress that can't be shown stops nothing

// end leaves the last state standing.
func (p progress) end() {
	if p.state == nil {
		return
	}
	s := p.state
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.dirty:
		p.write("\n")
	case !p.quiet && !p.terminal && s.last != s.printed:
		p.write(s.line + "\n")
	}
	s.dirty, s.printed = false, s.last
}
