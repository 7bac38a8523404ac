//go:build unix && !linux

package pgserver

import (
	"os"
	"syscall"
)

// attr starts a program as the user, in a process group of its own, so that
// Ctrl-C reaches the tests and not the server under them. That it ends with
// this process is the guard's work alone here.
func (u user) attr() *syscall.SysProcAttr {
	a := apart()
	if u.change {
		a.Credential = &syscall.Credential{Uid: u.uid, Gid: u.gid}
	}
	return a
}

// The children notice by themselves that the postmaster is gone.
func freeze(*os.Process) ([]int, []string) { return nil, nil }
func finish([]int)                         {}
func (s *Server) sweep()                   {}
