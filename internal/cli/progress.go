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
	last    string
	printed string
	at      time.Time
	dirty   bool // the terminal's line isn't ended
}

const progressEvery = time.Second // elsewhere than on a terminal

func (c *cmd) progress() progress {
	return progress{w: c.env.Stderr, terminal: c.env.StderrTerminal && c.env.getenv("TERM") != "dumb", quiet: c.json, state: &progressState{}}
}

func (p progress) show(line string) {
	if p.quiet {
		return
	}
	s := p.state
	s.mu.Lock()
	defer s.mu.Unlock()
	if line == s.last {
		return
	}
	switch {
	case p.terminal:
		p.write("\r\x1b[K" + line)
		s.dirty = true
	case time.Since(s.at) >= progressEvery:
		p.write(line + "\n")
		s.at, s.printed = time.Now(), line
	}
	s.last = line
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
		p.write(s.last + "\n")
	}
	s.dirty, s.printed = false, s.last
}
