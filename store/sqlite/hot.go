package sqlite

import (
	"time"

	"github.com/ncruces/go-sqlite3"
)

// hot is a statement that runs for every event. SQLite keeps what is bound from
// one run to the next, and most of a row is as in the row before (no tenant, no
// trace, the same type), so only what differs is bound again.
type hot struct {
	*sqlite3.Stmt
	c     *conn
	bound []bound // by parameter, from 1
	err   error   // the first of this run's bindings
}

type bound struct {
	kind uint8
	n    int64
	s    string
}

const (
	boundNothing = iota // or something that isn't remembered
	boundNum
	boundText
	boundNull
)

// hot gives the statement, ready to be bound.
func (c *conn) hot(sql string) (*hot, error) {
	if h, ok := c.hots[sql]; ok {
		return h, nil
	}
	st, err := c.stmt(sql)
	if err != nil {
		return nil, err
	}
	h := &hot{Stmt: st, c: c, bound: make([]bound, st.BindCount()+1)}
	c.hots[sql] = h
	return h, nil
}

func (h *hot) num(i int, v int64) {
	if b := &h.bound[i]; b.kind != boundNum || b.n != v {
		h.keep(i, h.BindInt64(i, v), bound{kind: boundNum, n: v})
	}
}

func (h *hot) time(i int, v time.Time) { h.num(i, millis(v)) }

func (h *hot) micros(i int, v time.Duration) { h.num(i, v.Microseconds()) }

func (h *hot) text(i int, v string) {
	if b := &h.bound[i]; b.kind != boundText || b.s != v {
		h.keep(i, h.BindText(i, v), bound{kind: boundText, s: v})
	}
}

// blob binds bytes; nil is NULL.
func (h *hot) blob(i int, v []byte) {
	switch {
	case v != nil:
		h.keep(i, h.BindBlob(i, v), bound{})
	case h.bound[i].kind != boundNull:
		h.null(i)
	}
}

func (h *hot) null(i int) {
	if h.bound[i].kind != boundNull {
		h.keep(i, h.BindNull(i), bound{kind: boundNull})
	}
}

func (h *hot) keep(i int, err error, b bound) {
	if err == nil {
		h.bound[i] = b
		return
	}
	h.bound[i] = bound{}
	if h.err == nil {
		h.err = err
	}
}

// run executes the statement and gives the number of rows that it changed.
func (h *hot) run() (int64, error) {
	err := h.err
	if h.err = nil; err != nil {
		return 0, err
	}
	if err := h.Exec(); err != nil {
		return 0, err
	}
	return h.c.Changes(), nil
}
