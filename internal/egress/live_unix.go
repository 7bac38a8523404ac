//go:build unix

package egress

import "syscall"

// watch prepares the look that decides whether an idle connection is alive.
func (c *conn) watch() {
	var b [1]byte
	c.peek = func(fd uintptr) bool {
		_, _, err := syscall.Recvfrom(int(fd), b[:], syscall.MSG_PEEK|syscall.MSG_DONTWAIT)
		c.dead = err != syscall.EAGAIN
		return true
	}
}

// alive reports whether an idle connection can carry a request. Anything to
// read, be it the end, an alert or an answer to no question, says no.
func (c *conn) alive() bool {
	c.dead = true
	return c.raw != nil && c.raw.Read(c.peek) == nil && !c.dead
}
