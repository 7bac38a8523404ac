//go:build !unix

package egress

func (c *conn) watch() {}

// alive can't look without reading here; a dead connection fails its attempt,
// and the schedule repeats it.
func (c *conn) alive() bool { return c.raw != nil }
