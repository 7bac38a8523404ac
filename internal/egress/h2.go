package egress

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"sync/atomic"
	"time"

	"golang.org/x/net/http2"
)

// newH2Transport only makes client connections: pooling, dialling and
// retrying stay ours.
func newH2Transport(maxHeader int64) *http2.Transport {
	return &http2.Transport{
		DisableCompression: true,
		MaxHeaderListSize:  uint32(maxHeader),
		WriteByteTimeout:   15 * time.Second,
	}
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
	if len(r.Body) == 0 {
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
func (c *Client) exchange2(a *attempt, cn *conn) bool {
	start := c.now()
	var wrote atomic.Int64
	ctx, cancel := context.WithDeadline(a.ctx, a.deadline)
	defer cancel()
	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		WroteRequest: func(httptrace.WroteRequestInfo) { wrote.Store(int64(c.now().Sub(start))) },
	})
	a.phase = "waiting for the answer"
	resp, err := cn.h2.RoundTrip(h2Request(ctx, a.req))
	ph, total := &a.res.Phases, c.now().Sub(start)
	ph.Write = min(time.Duration(wrote.Load()), total)
	ph.Wait = total - ph.Write
	if err != nil {
		c.fail(a, err)
		return cn.h2.CanTakeNewRequest()
	}
	a.answered(resp)
	at := c.now()
	grace := time.AfterFunc(bodyGrace, cancel)
	if resp.ContentLength != 0 {
		a.res.Body, a.res.Truncated = excerpt(resp.Body, c.maxBody)
	}
	grace.Stop()
	// Cancelling first makes Close reset the stream at once.
	cancel()
	_ = resp.Body.Close()
	ph.Read = a.lap(&at)
	return cn.h2.CanTakeNewRequest()
}
