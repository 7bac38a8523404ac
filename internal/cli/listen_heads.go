package cli

import (
	"bufio"
	"bytes"
	"context"
	"net"
	"net/http"
	"net/textproto"
	"strings"
	"sync"
)

// heads keeps the beginning of each request as it came over the wire: package
// http writes every header's name its own way, and whoever is sent on to should
// see the sender's. A head that can't be found, as of a request that was sent
// before the last one's answer, is left as package http has it.
type heads struct{ net.Listener }

// Accept implements net.Listener.
func (h heads) Accept() (net.Conn, error) {
	conn, err := h.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return &headConn{Conn: conn, keeping: true}, nil
}

type headConn struct {
	net.Conn
	mu      sync.Mutex
	keeping bool
	head    []byte
}

// Read implements net.Conn.
func (c *headConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.keeping && len(c.head) < http.DefaultMaxHeaderBytes {
		c.head = append(c.head, p[:n]...)
		c.keeping = !bytes.Contains(c.head, []byte("\r\n\r\n"))
	}
	return n, err
}

// next ends one request and begins the next: it is called when a body has been
// read and nothing is answered yet.
func (c *headConn) next() []byte {
	c.mu.Lock()
	defer c.mu.Unlock()
	head, _, _ := bytes.Cut(c.head, []byte("\r\n\r\n"))
	c.head, c.keeping = nil, true
	return head
}

type headKey struct{}

// withHead is http.Server.ConnContext.
func withHead(ctx context.Context, conn net.Conn) context.Context {
	return context.WithValue(ctx, headKey{}, conn)
}

// asSent gives the headers under the names that the sender wrote. It must be
// called once for each request, after its body.
func asSent(r *http.Request) http.Header {
	conn, ok := r.Context().Value(headKey{}).(*headConn)
	if !ok {
		return r.Header
	}
	head := conn.next()
	lines := strings.Split(string(head), "\r\n")
	read, err := http.ReadRequest(bufio.NewReader(strings.NewReader(string(head) + "\r\n\r\n")))
	if err != nil || read.Method != r.Method || read.RequestURI != r.RequestURI {
		return r.Header
	}
	sent, spelt := http.Header{}, map[string]string{} // of several spellings the first, so that values keep their order
	for _, line := range lines[1:] {
		name, _, ok := strings.Cut(line, ":")
		canonical := textproto.CanonicalMIMEHeaderKey(name)
		values, there := r.Header[canonical]
		if !ok || !there || spelt[canonical] != "" || strings.HasPrefix(line, " ") || strings.HasPrefix(line, "\t") {
			continue // folded, one that package http has taken out, or a second one
		}
		sent[name], spelt[canonical] = values, name
	}
	if len(sent) != len(r.Header) {
		return r.Header
	}
	return sent
}
