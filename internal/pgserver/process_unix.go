//go:build unix

package pgserver

import (
	"os"
	"syscall"
)

// apart starts a program in a process group of its own, which Ctrl-C doesn't
// reach.
func apart() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }

func signalTo(p *os.Process, mode Mode) error {
	if mode == Immediate {
		return p.Signal(syscall.SIGQUIT)
	}
	return p.Signal(syscall.SIGINT)
}
