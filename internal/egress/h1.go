package egress

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"
)

const (
	copyLimit   = 64 << 10               // bodies up to this join the head in one write
	bodyGrace   = 250 * time.Millisecond // for the body of an answer that's already decided
	maxInterim  = 8                      // 1xx answers before the final one
	bodyMargin  = 16 << 10               // wire bytes allowed beyond the body limit: chunk framing
	readerBytes = 4 << 10
)

var errHeadTooBig = errors.New("the answer's head is too large")

// limitReader fails once n bytes have been read.
type limitReader struct {
	r io.Reader
	n int64
}

func (l *limitReader) Read(p []byte) (int, error) {
	if l.n <= 0 {
		return 0, errHeadTooBig
	}
	if int64(len(p)) > l.n {
		p = p[:l.n]
	}
	n, err := l.r.Read(p)
	l.n -= int64(n)
	return n, err
}

var buffers = sync.Pool{New: func() any { b := make([]byte, 0, 4<<10); return &b }}

// newH1 wraps a fresh connection.
func (c *conn) newH1() {
	c.lim.r = c.nc
	c.br = bufio.NewReaderSize(&c.lim, readerBytes)
	c.watch()
}

// quiet reports whether an idle connection has neither ended nor said anything
// since its last answer, and sets its next deadline. Nothing of this waits.
func (c *conn) quiet(deadline time.Time) bool {
	// The last attempt's deadline may have passed, and would fail the look.
	_ = c.tcp.SetDeadline(deadline)
	if !c.alive() {
		return false
	}
	if c.nc == c.tcp {
		return true
	}
	// A closing alert may have come in one piece with the last answer.
	_ = c.tcp.SetReadDeadline(longAgo)
	var b [1]byte
	n, err := c.nc.Read(b[:])
	_ = c.tcp.SetReadDeadline(deadline)
	return n == 0 && errors.Is(err, os.ErrDeadlineExceeded)
}

// write sends head and body in one piece, so that a small request is one
// packet and one TLS record.
func (c *conn) write(r *Request) error {
	bp := buffers.Get().(*[]byte)
	b := appendHead((*bp)[:0], r)
	small := len(r.Body) <= copyLimit
	var err error
	switch {
	case r.Get:
		_, err = c.nc.Write(b)
	case small:
		b = append(b, r.Body...)
		_, err = c.nc.Write(b)
	case c.nc == c.tcp:
		parts := net.Buffers{b, r.Body}
		_, err = parts.WriteTo(c.nc)
	default:
		if _, err = c.nc.Write(b); err == nil {
			_, err = c.nc.Write(r.Body)
		}
	}
	if cap(b) <= 2*copyLimit {
		*bp = b
		buffers.Put(bp)
	}
	return err
}

func appendHead(b []byte, r *Request) []byte {
	if r.Get {
		b = append(b, http.MethodGet...)
		b = append(b, r.Target.head[len(http.MethodPost):]...)
	} else {
		b = append(b, r.Target.head...)
	}
	for i := range r.Header {
		f := &r.Header[i]
		if ReservedHeader(f.Name) {
			continue
		}
		b = append(b, f.Name...)
		b = append(b, ": "...)
		b = append(b, f.Value...)
		b = append(b, "\r\n"...)
	}
	if r.Get {
		return append(b, "\r\n"...)
	}
	b = append(b, "Content-Length: "...)
	b = strconv.AppendInt(b, int64(len(r.Body)), 10)
	return append(b, "\r\n\r\n"...)
}

// exchange performs one request on c and fills in res. It reports whether c
// can serve another one.
func (c *Client) exchange(ctx context.Context, a *attempt, cn *conn) bool {
	res, at := &a.res, c.now()
	werr := cn.write(a.req)
	res.Phases.Write = a.lap(&at)

	cn.lim.n = c.maxHeader
	a.phase = "waiting for the answer"
	_, err := cn.br.Peek(1)
	res.Phases.Wait = a.lap(&at)
	if err != nil {
		// A receiver may answer and close without reading all of the body;
		// only when it said nothing is the failed write what counts.
		if werr != nil {
			a.phase, err = "sending", werr
		}
		c.fail(ctx, a, err)
		return false
	}
	resp, err := readHead(cn.br) //nolint:bodyclose // closing would read an endless body to its end
	if err != nil {
		a.phase = "reading the answer"
		if cn.lim.n <= 0 {
			err = errHeadTooBig // the parser saw a cut line
		}
		c.fail(ctx, a, err)
		return false
	}
	a.answered(resp)
	cn.keep = keepAlive(resp.Header)
	whole := c.readBody(ctx, a, cn, resp)
	res.Phases.Read = a.lap(&at)
	return whole && werr == nil && !resp.Close && resp.StatusCode >= 200 && cn.br.Buffered() == 0
}

// keepAlive returns how long an idle connection is worth trying, if the
// receiver says when it closes it: a second less, so that a request doesn't
// meet the close on its way.
func keepAlive(h http.Header) time.Duration {
	for _, v := range h["Keep-Alive"] {
		for part := range strings.SplitSeq(v, ",") {
			if s, ok := strings.CutPrefix(strings.TrimSpace(part), "timeout="); ok {
				if n, err := strconv.Atoi(s); err == nil && n > 0 && n < 3600 {
					return max(time.Duration(n)*time.Second-time.Second, 500*time.Millisecond)
				}
			}
		}
	}
	return 0
}

// readHead skips interim answers. An answer that leaves doubt about where it
// ends is the last of its connection.
func readHead(br *bufio.Reader) (*http.Response, error) {
	for range maxInterim {
		twice, whole := framedTwice(br)
		resp, err := http.ReadResponse(br, nil)
		switch {
		case err != nil:
			return nil, err
		case resp.ProtoMajor != 1:
			return nil, errProtocol
		case resp.StatusCode < 100:
			return nil, errStatus
		}
		resp.Close = resp.Close || twice || (!whole && len(resp.TransferEncoding) > 0)
		// 101 is final: it leaves HTTP, which nobody asked for.
		if resp.StatusCode >= 200 || resp.StatusCode == http.StatusSwitchingProtocols {
			return resp, nil
		}
	}
	return nil, errInterim
}

// framedTwice tells whether the next head says its body's length in two ways,
// Content-Length and Transfer-Encoding; the parser drops the first. Then somebody
// between here and the receiver may have read the other one, and what follows on
// the connection may be another's answer. whole: all of the head was seen.
func framedTwice(br *bufio.Reader) (twice, whole bool) {
	var length, coding bool
	for seen := 0; ; {
		head, _ := br.Peek(br.Buffered())
		for end := bytes.IndexByte(head[seen:], '\n'); end >= 0; end = bytes.IndexByte(head[seen:], '\n') {
			line := bytes.TrimSuffix(head[seen:seen+end], []byte("\r"))
			if seen += end + 1; len(line) == 0 {
				return length && coding, true
			}
			length = length || hasName(line, "Content-Length")
			coding = coding || hasName(line, "Transfer-Encoding")
		}
		// What can't be read is the parser's to report.
		if _, err := br.Peek(len(head) + 1); err != nil {
			return length && coding, false
		}
	}
}

func hasName(line []byte, name string) bool {
	return len(line) > len(name) && line[len(name)] == ':' && strings.EqualFold(string(line[:len(name)]), name)
}

// waits reports whether an answer's body is what was asked for. Otherwise the
// outcome is decided already, so the body gets little time.
func (a *attempt) waits(resp *http.Response) bool {
	return a.req.Answer && resp.StatusCode >= 200 && resp.StatusCode <= 299
}

// readBody takes the excerpt and reports whether the body ended with it.
func (c *Client) readBody(ctx context.Context, a *attempt, cn *conn, resp *http.Response) bool {
	if resp.ContentLength == 0 {
		return true
	}
	waits := a.waits(resp)
	if !waits && (resp.ContentLength < 0 || resp.ContentLength > int64(cn.br.Buffered())) {
		limit := c.now().Add(bodyGrace)
		if limit.Before(a.deadline) {
			_ = cn.tcp.SetReadDeadline(limit)
			if ctx.Err() != nil {
				cn.abort()
			}
		}
	}
	cn.lim.n = c.maxBody + bodyMargin
	c.takeBody(ctx, a, resp, waits)
	return !a.res.Truncated
}

// takeBody takes the excerpt. A body that was asked for and didn't come in time is
// no answer.
func (c *Client) takeBody(ctx context.Context, a *attempt, resp *http.Response, waits bool) {
	var err error
	a.res.Body, a.res.Truncated, err = excerpt(resp.Body, c.maxBody)
	if waits && (ctx.Err() != nil || errors.Is(err, os.ErrDeadlineExceeded) || errors.Is(err, context.DeadlineExceeded)) {
		a.phase = "reading the answer"
		c.fail(ctx, a, err)
	}
}

// excerpt reads at most limit bytes and reports whether there was more, or
// might have been, and what reading ended with.
func excerpt(r io.Reader, limit int64) ([]byte, bool, error) {
	bp := buffers.Get().(*[]byte)
	defer buffers.Put(bp)
	if int64(cap(*bp)) < limit+1 {
		*bp = make([]byte, 0, limit+1)
	}
	buf := (*bp)[:limit+1]
	n := 0
	for {
		m, err := r.Read(buf[n:])
		n += m
		if err == nil && n < len(buf) {
			continue
		}
		cut := err != io.EOF || n == len(buf)
		n = min(n, int(limit))
		if n == 0 {
			return nil, cut, err
		}
		return append([]byte(nil), buf[:n]...), cut, err
	}
}
