package egress

import (
	"bytes"
	"context"
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"sync/atomic"
	"time"
)

// newH2Transport only turns connections that we opened into HTTP/2 ones:
// pooling, dialling and retrying stay ours.
func newH2Transport(maxHeader int64) *http.Transport {
	protocols := new(http.Protocols)
	protocols.SetHTTP2(true)
	return &http.Transport{
		Protocols:              protocols,
		DisableCompression:     true,
		MaxResponseHeaderBytes: maxHeader,
		HTTP2:                  &http.HTTP2Config{WriteByteTimeout: 15 * time.Second},
		DialTLSContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			nc, ok := ctx.Value(handOver{}).(net.Conn)
			if !ok {
				return nil, net.ErrClosed
			}
			return nc, nil
		},
	}
}

// handOver is the key under which a connection reaches the transport.
type handOver struct{}

func newH2(ctx context.Context, tr *http.Transport, tc *tls.Conn) (*http.ClientConn, error) {
	return tr.NewClientConn(context.WithValue(ctx, handOver{}, tc), "https", "guarded:443")
}

// h2Request builds the request so that :path is the registered target, byte
// for byte, and the body has a length and can be read again.
func h2Request(ctx context.Context, r *Request) *http.Request {
	t := r.Target
	req := &http.Request{
		Method: http.MethodPost,
		// net/http rebuilds paths from their decoded form; an opaque URL is
		// passed through.
		URL:           &url.URL{Scheme: t.scheme, Host: t.auth, Opaque: "//" + t.auth + t.path},
		Host:          t.auth,
		Header:        make(http.Header, len(r.Header)+1),
		Body:          io.NopCloser(bytes.NewReader(r.Body)),
		ContentLength: int64(len(r.Body)),
		GetBody:       func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(r.Body)), nil },
	}
	if r.Get {
		req.Method, req.ContentLength = http.MethodGet, 0
	}
	if len(r.Body) == 0 || r.Get {
		req.Body, req.GetBody = http.NoBody, nil
	}
	for _, f := range r.Header {
		if !ReservedHeader(f.Name) {
			req.Header.Add(f.Name, f.Value)
		}
	}
	if _, ok := req.Header["User-Agent"]; !ok {
		req.Header["User-Agent"] = []string{""} // the library's own stays out
	}
	return req.WithContext(ctx)
}

// exchange2 is exchange over HTTP/2. It reports whether the connection is
// still good.
func (c *Client) exchange2(ctx context.Context, a *attempt, cn *conn) bool {
	start := c.now()
	var wrote atomic.Int64
	bound, cancel := context.WithDeadline(ctx, a.deadline)
	defer cancel()
	bound = httptrace.WithClientTrace(bound, &httptrace.ClientTrace{
		WroteRequest: func(httptrace.WroteRequestInfo) { wrote.Store(int64(c.now().Sub(start))) },
	})
	a.phase = "waiting for the answer"
	resp, err := cn.h2.RoundTrip(h2Request(bound, a.req))
	ph, total := &a.res.Phases, c.now().Sub(start)
	ph.Write = min(time.Duration(wrote.Load()), total)
	ph.Wait = total - ph.Write
	if err != nil {
		c.fail(ctx, a, err)
		return cn.h2.Err() == nil
	}
	a.answered(resp)
	at := c.now()
	waits := a.waits(resp)
	if !waits {
		defer time.AfterFunc(bodyGrace, cancel).Stop()
	}
	if resp.ContentLength != 0 {
		c.takeBody(ctx, a, resp, waits)
	}
	// Cancelling first makes Close reset the stream at once.
	cancel()
	_ = resp.Body.Close()
	ph.Read = a.lap(&at)
	return cn.h2.Err() == nil
}
