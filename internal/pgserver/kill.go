package pgserver

import (
	"errors"
	"os"
	"time"
)

// kill is Kill, with the lock held.
func (s *Server) kill() error {
	p := s.proc
	if p == nil {
		return nil
	}
	children, litter := freeze(p.cmd.Process)
	s.litter = append(s.litter, litter...)
	if err := p.cmd.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	if !p.await(time.Second) {
		finish(children)
		if !p.await(stopTimeout) {
			return errors.New("pgserver: a process of the server survived SIGKILL: look for postgres in the list of processes")
		}
	}
	s.proc = nil
	return nil
}
