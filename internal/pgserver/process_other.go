//go:build !unix

package pgserver

import (
	"os"
	"syscall"
)

// Find fails here, so that none of this is reached.
func apart() *syscall.SysProcAttr          { return nil }
func (u user) attr() *syscall.SysProcAttr  { return nil }
func signalTo(p *os.Process, _ Mode) error { return p.Kill() }
func freeze(*os.Process) ([]int, []string) { return nil, nil }
func finish([]int)                         {}
func (s *Server) sweep()                   {}
