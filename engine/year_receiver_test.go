package engine_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"sync"
	"syscall"
	"time"
)

// fault is how a receiver in memory misbehaves.
type fault string

const (
	well    fault = ""
	refuses fault = "connect"
	hangs   fault = "timeout"
	breaks  fault = "status_5xx"
	leaves  fault = "status_410"
)

// seen is a request as it arrived, and what became of it.
type seen struct {
	at       time.Time // by the year's clock
	header   http.Header
	body     []byte
	accepted bool
}

// internet is receivers in memory, by address.
type internet struct {
	now func() time.Time

	mu     sync.Mutex
	faults map[netip.Addr]fault
	log    map[netip.Addr][]seen
	wg     sync.WaitGroup
}

func newInternet(now func() time.Time) *internet {
	return &internet{now: now, faults: map[netip.Addr]fault{}, log: map[netip.Addr][]seen{}}
}

func (n *internet) set(addr netip.Addr, f fault) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.faults[addr] = f
}

func (n *internet) fault(addr netip.Addr) fault {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.faults[addr]
}

// requests gives what an address has got so far.
func (n *internet) requests(addr netip.Addr) []seen {
	n.mu.Lock()
	defer n.mu.Unlock()
	return append([]seen(nil), n.log[addr]...)
}

// dial opens a connection to a receiver.
func (n *internet) dial(_ context.Context, to netip.AddrPort) (net.Conn, error) {
	if n.fault(to.Addr()) == refuses {
		n.mu.Lock()
		n.log[to.Addr()] = append(n.log[to.Addr()], seen{at: n.now()})
		n.mu.Unlock()
		return nil, &net.OpError{Op: "dial", Net: "tcp", Err: syscall.ECONNREFUSED}
	}
	client, server := net.Pipe()
	n.wg.Go(func() {
		defer server.Close() //nolint:errcheck // a pipe
		n.serve(server, to.Addr())
	})
	return client, nil
}

// serve answers one request.
func (n *internet) serve(c net.Conn, addr netip.Addr) {
	req, err := http.ReadRequest(bufio.NewReader(c))
	if err != nil {
		return
	}
	body, err := io.ReadAll(req.Body)
	if err != nil {
		return
	}
	f := n.fault(addr)
	n.mu.Lock()
	n.log[addr] = append(n.log[addr], seen{at: n.now(), header: req.Header, body: body, accepted: f == well})
	n.mu.Unlock()
	switch f {
	case hangs:
		_, _ = c.Read(make([]byte, 1)) // until the sender gives up
	case breaks:
		_, _ = fmt.Fprint(c, "HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\n\r\n")
	case leaves:
		_, _ = fmt.Fprint(c, "HTTP/1.1 410 Gone\r\nContent-Length: 0\r\n\r\n")
	default:
		_, _ = fmt.Fprint(c, "HTTP/1.1 204 No Content\r\n\r\n")
	}
	_, _ = io.Copy(io.Discard, c)
}
