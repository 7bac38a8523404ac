package github

import (
	"io"
	"net/http"
	"os"
	"slices"
	"sync"
	"time"
)

// maxHeld is what bodies may hold together while they come, before anybody knows who
// sent them. Past it the one that began first is cut off: so whoever sends slowly keeps
// nobody else out.
const maxHeld = 32 << 20

type bodies struct {
	mu   sync.Mutex
	held int
	come []*body // the first to begin first
}

// body is one that is coming.
type body struct {
	io.ReadCloser
	of   *bodies
	conn *http.ResponseController
	n    int
	cut  bool
}

func (x *bodies) begin(w http.ResponseWriter, r *http.Request) *body {
	b := &body{ReadCloser: r.Body, of: x, conn: http.NewResponseController(w)}
	x.mu.Lock()
	defer x.mu.Unlock()
	x.come = append(x.come, b)
	return b
}

// end is called when nothing more is read; twice is fine.
func (b *body) end() {
	b.of.mu.Lock()
	defer b.of.mu.Unlock()
	b.of.drop(b)
}

func (x *bodies) drop(b *body) {
	if i := slices.Index(x.come, b); i >= 0 {
		x.come = slices.Delete(x.come, i, i+1)
		x.held -= b.n
	}
}

// Read counts, and cuts off.
func (b *body) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	x := b.of
	x.mu.Lock()
	defer x.mu.Unlock()
	if b.cut {
		return 0, os.ErrDeadlineExceeded
	}
	b.n += n
	x.held += n
	if err != nil {
		x.drop(b)
	}
	for x.held > maxHeld {
		first := x.come[slices.IndexFunc(x.come, func(b *body) bool { return b.n > 0 })]
		x.drop(first)
		first.cut = true
		_ = first.conn.SetReadDeadline(time.Unix(1, 0)) // where it can't be, its next read tells
	}
	if b.cut {
		return 0, os.ErrDeadlineExceeded
	}
	return n, err
}
