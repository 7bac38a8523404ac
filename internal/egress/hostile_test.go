package egress

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"net"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/surehook/surehook"
)

// flood writes chunk until the connection breaks.
func (p *peer) flood(chunk string) {
	for {
		if _, err := p.Write([]byte(chunk)); err != nil {
			return
		}
	}
}

// try posts with a short deadline, which the outcomes below that are
// timeouts use up.
func try(t *testing.T, rc *receiver, timeout time.Duration) Result {
	t.Helper()
	c := local(t)
	return c.Do(t.Context(), &Request{Target: target(t, c, rc.url()), Body: []byte("{}"), Timeout: timeout})
}

func TestH01_BigBodyIsAnExcerpt(t *testing.T) {
	for _, status := range []string{"200 OK", "500 Oops"} {
		rc := newReceiver(t, nil, answering("HTTP/1.1 "+status+"\r\nContent-Length: 2097152\r\n\r\n"+strings.Repeat("b", 2<<20)))
		res := post(t, local(t), rc.url(), "{}")
		if len(res.Body) != 4096 || !res.Truncated || (res.Code == "") != strings.HasPrefix(status, "200") {
			t.Errorf("%s: %d bytes, truncated %v, code %q", status, len(res.Body), res.Truncated, res.Code)
		}
		if n := len(rc.requests()); n != 1 {
			t.Errorf("sent %d times", n)
		}
	}
}

func TestH01_ExactLimitIsWhole(t *testing.T) {
	rc := newReceiver(t, nil, answering("HTTP/1.1 200 OK\r\nContent-Length: 4096\r\n\r\n"+strings.Repeat("b", 4096)))
	c := local(t)
	for i := range 2 {
		if res := post(t, c, rc.url(), "{}"); len(res.Body) != 4096 || res.Truncated || res.Reused != (i == 1) {
			t.Errorf("%d bytes, truncated %v, reused %v", len(res.Body), res.Truncated, res.Reused)
		}
	}
}

func TestH02_H03_BodyBytesAsSent(t *testing.T) {
	body := "ok\x00\xff\xfe" + strings.Repeat("€", 2000)
	rc := newReceiver(t, nil, func(p *peer) {
		if p.request() {
			p.say("HTTP/1.1 200 OK\r\nContent-Type: text\xff\tx\r\nRetry-After: \xe9\r\nConnection: close\r\n\r\n" + body)
		}
	})
	res := post(t, local(t), rc.url(), "{}")
	want(t, res, "", "")
	if string(res.Body) != body[:4096] || !res.Truncated {
		t.Errorf("%d bytes, truncated %v", len(res.Body), res.Truncated)
	}
	if res.ContentType != "text??x" || len(res.RetryAfter) != 1 || res.RetryAfter[0] != "?" {
		t.Errorf("%q %q", res.ContentType, res.RetryAfter)
	}
}

func TestH03_ProtocolGarbageStaysOutOfErrors(t *testing.T) {
	rc := newReceiver(t, nil, func(p *peer) {
		if p.request() {
			p.say("GARBAGE \x00\xff SECRET\r\n\r\n")
		}
	})
	res := post(t, local(t), rc.url(), "{}")
	want(t, res, surehook.Connect, "isn't valid HTTP")
	if !printableASCII(res.Err) || strings.Contains(res.Err, "SECRET") {
		t.Errorf("%q", res.Err)
	}
}

func printableASCII(s string) bool {
	for i := range len(s) {
		if s[i] < ' ' || s[i] > '~' {
			return false
		}
	}
	return true
}

func TestH06_EndlessBody(t *testing.T) {
	for _, head := range []string{"Content-Length: 99999999999\r\n\r\n", "Connection: close\r\n\r\n", "Transfer-Encoding: chunked\r\n\r\n"} {
		chunk := strings.Repeat("e", 4096) + "\r\n1000\r\n"
		broken := make(chan struct{})
		rc := newReceiver(t, nil, func(p *peer) {
			if p.request() {
				p.say("HTTP/1.1 200 OK\r\n" + head)
				if strings.Contains(head, "chunked") {
					p.say("1000\r\n")
				}
				p.flood(chunk)
				close(broken)
			}
		})
		res := post(t, local(t), rc.url(), "{}")
		want(t, res, "", "")
		if len(res.Body) != 4096 || !res.Truncated {
			t.Errorf("%q: %d bytes, truncated %v", head, len(res.Body), res.Truncated)
		}
		<-broken // the connection was closed
	}
}

func TestH06_TinyChunksAreBounded(t *testing.T) {
	rc := newReceiver(t, nil, func(p *peer) {
		if p.request() {
			p.say("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
			p.flood(strings.Repeat("1;"+strings.Repeat("x", 100)+"\r\na\r\n", 50))
		}
	})
	res := post(t, local(t), rc.url(), "{}")
	want(t, res, "", "")
	if !res.Truncated || len(res.Body) > 4096 {
		t.Errorf("%d bytes, truncated %v", len(res.Body), res.Truncated)
	}
}

// H-07: nothing is inflated, nor asked for.
func TestH07_GzipBombIsNotInflated(t *testing.T) {
	var z bytes.Buffer
	zw := gzip.NewWriter(&z)
	_, _ = zw.Write(make([]byte, 16<<20))
	_ = zw.Close()
	rc := newReceiver(t, nil, func(p *peer) {
		for p.request() {
			p.say("HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nConnection: close\r\n\r\n" + z.String())
			return
		}
	})
	res := post(t, local(t), rc.url(), "{}")
	want(t, res, "", "")
	if !bytes.Equal(res.Body, z.Bytes()[:4096]) {
		t.Error("the body isn't what was sent")
	}
	if strings.Contains(strings.ToLower(rc.requests()[0]), "accept-encoding") {
		t.Error("gzip was asked for")
	}
}

func TestH08_DrippingBodyDoesNotChangeTheOutcome(t *testing.T) {
	for _, status := range []string{"200 OK", "500 Oops"} {
		rc := newReceiver(t, nil, func(p *peer) {
			if p.request() {
				p.say("HTTP/1.1 " + status + "\r\nContent-Length: 1000\r\n\r\nd")
				p.hold()
			}
		})
		res := post(t, local(t), rc.url(), "{}")
		if (res.Code == "") != strings.HasPrefix(status, "200") || string(res.Body) != "d" || !res.Truncated {
			t.Errorf("%s: %+v", status, res)
		}
		if res.Phases.Read < 200*time.Millisecond || res.Phases.Read > patience/2 {
			t.Errorf("the body had %v", res.Phases.Read)
		}
	}
}

func TestH08_CutBodyIsSuccess(t *testing.T) {
	rc := newReceiver(t, nil, func(p *peer) {
		if p.request() {
			p.say("HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\nhalf")
		}
	})
	if res := post(t, local(t), rc.url(), "{}"); res.Code != "" || string(res.Body) != "half" || !res.Truncated {
		t.Errorf("%+v", res)
	}
}

func TestSlowHeadIsATimeout(t *testing.T) {
	rc := newReceiver(t, nil, func(p *peer) {
		if p.request() {
			p.say("HTTP/1.1 200 OK\r\nX-Slow: ")
			p.hold()
		}
	})
	want(t, try(t, rc, 100*time.Millisecond), surehook.Timeout, "reading the answer")
}

func TestSlowlorisIsBounded(t *testing.T) {
	rc := newReceiver(t, nil, func(p *peer) {
		if !p.request() {
			return
		}
		p.say("HTTP/1.1 200 OK\r\n")
		tick := time.NewTicker(5 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				if _, err := p.Write([]byte("X-A: b\r\n")); err != nil {
					return
				}
			case <-p.rc.gone:
				return
			}
		}
	})
	start := time.Now()
	want(t, try(t, rc, 150*time.Millisecond), surehook.Timeout, "")
	if took := time.Since(start); took > patience/2 {
		t.Errorf("took %v", took)
	}
}

func TestGiantHeadIsRefused(t *testing.T) {
	for _, piece := range []string{"X-A: " + strings.Repeat("a", 1000) + "\r\n", "x"} {
		rc := newReceiver(t, nil, func(p *peer) {
			if p.request() {
				p.say("HTTP/1.1 200 OK\r\n")
				p.flood(piece)
			}
		})
		want(t, post(t, local(t), rc.url(), "{}"), surehook.Connect, "head is too large")
	}
}

func TestH09_BlackHoleHoldsNothing(t *testing.T) {
	rc := newReceiver(t, nil, func(p *peer) { p.hold() })
	c := local(t)
	tg := target(t, c, rc.url())
	before := runtime.NumGoroutine()
	for range 20 {
		res := c.Do(t.Context(), &Request{Target: tg, Timeout: 20 * time.Millisecond})
		want(t, res, surehook.Timeout, "waiting for the answer")
	}
	// What remains are the receiver's own, one per connection.
	if after := runtime.NumGoroutine(); after > before+25 {
		t.Errorf("%d goroutines, %d before", after, before)
	}
}

// H-14: the answer's limit cuts the answer.
func TestH14_ResponseLimitIsNotTheRequests(t *testing.T) {
	rc := newReceiver(t, nil, answering("HTTP/1.1 200 OK\r\nContent-Length: 2000\r\n\r\n"+strings.Repeat("r", 2000)))
	c := newClient(t, Config{AllowNetworks: loopback, MaxResponseBody: 1024})
	body := strings.Repeat("b", 5<<20)
	res := post(t, c, rc.url(), body)
	if res.Code != "" || len(res.Body) != 1024 || !res.Truncated {
		t.Errorf("%q %s: %d bytes", res.Code, res.Err, len(res.Body))
	}
	if got := rc.requests()[0]; !strings.HasSuffix(got, body) {
		t.Errorf("%d bytes arrived", len(got))
	}
}

func TestI14_TwoContentLengths(t *testing.T) {
	rc := newReceiver(t, nil, answering("HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\nok"))
	res := post(t, local(t), rc.url(), "{}")
	want(t, res, surehook.Connect, "contradictory Content-Length")
	if res.Status != 0 {
		t.Errorf("status %d", res.Status)
	}
}

// I-15: we expect nothing, and bear with interim answers.
func TestI15_InterimAnswers(t *testing.T) {
	rc := newReceiver(t, nil, answering("HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n"+noContent))
	c := local(t)
	for range 2 {
		want(t, post(t, c, rc.url(), "{}"), "", "")
	}
	if strings.Contains(strings.ToLower(rc.requests()[0]), "expect") || rc.conns.Load() != 1 {
		t.Errorf("%d connections, %q", rc.conns.Load(), rc.requests()[0])
	}
	rc = newReceiver(t, nil, answering("HTTP/1.1 417 No\r\nContent-Length: 0\r\n\r\n"))
	want(t, post(t, c, rc.url(), "{}"), surehook.Status4xx, "answered 417")
}

func TestI15_InterimFlood(t *testing.T) {
	rc := newReceiver(t, nil, func(p *peer) {
		if p.request() {
			p.flood("HTTP/1.1 100 Continue\r\n\r\n")
		}
	})
	want(t, post(t, local(t), rc.url(), "{}"), surehook.Connect, "interim")
}

func TestSwitchingProtocolsIsFinal(t *testing.T) {
	rc := newReceiver(t, nil, answering("HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n"))
	want(t, post(t, local(t), rc.url(), "{}"), surehook.Status5xx, "answered 101")
}

// reset makes the close of the connection a RST.
func (p *peer) reset() {
	if tc, ok := p.Conn.(*net.TCPConn); ok {
		_ = tc.SetLinger(0)
	}
	_ = p.Close()
}

func TestI16_ResetHalfWay(t *testing.T) {
	rc := newReceiver(t, nil, func(p *peer) {
		if p.nr == 1 {
			_, _ = p.br.ReadByte()
			p.reset()
			return
		}
		for p.request() {
			p.say(noContent)
		}
	})
	c := local(t)
	body := strings.Repeat("b", 8<<20)
	want(t, post(t, c, rc.url(), body), surehook.Connect, "broke the connection")
	want(t, post(t, c, rc.url(), body), "", "")
	if got := rc.requests(); len(got) != 1 || !strings.HasSuffix(got[0], body) {
		t.Error("the body isn't whole")
	}
}

func TestEarlyAnswerToABigBody(t *testing.T) {
	rc := newReceiver(t, nil, func(p *peer) {
		_, _ = p.br.ReadByte()
		p.say("HTTP/1.1 413 Too Large\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
		_ = p.Conn.(*net.TCPConn).CloseWrite()
		_, _ = p.br.Discard(64 << 10)
		p.reset()
	})
	res := post(t, local(t), rc.url(), strings.Repeat("b", 8<<20))
	want(t, res, surehook.Status4xx, "answered 413")
}

// I-02, I-03: a request whose connection broke is a failed attempt, once, whatever its
// headers are called.
func TestI02_I03_NothingIsResent(t *testing.T) {
	rc := newReceiver(t, nil, func(p *peer) {
		for i := 0; p.request(); i++ {
			if p.nr == 1 && i == 1 {
				return // request 2 is read in full, then the end
			}
			p.say(noContent)
		}
	})
	c := local(t)
	send := func() Result {
		return c.Do(t.Context(), &Request{Target: target(t, c, rc.url()), Body: []byte("{}"), Timeout: patience,
			Header: []Field{{"Idempotency-Key", "k"}, {"X-Idempotency-Key", "k"}}})
	}
	want(t, send(), "", "")
	res := send()
	want(t, res, surehook.Connect, "closed the connection before it answered")
	if n := len(rc.requests()); n != 2 || !res.Reused {
		t.Errorf("%d copies, reused %v", n, res.Reused)
	}
	want(t, send(), "", "")
}

func TestCloseAfterAnswerIsNoticed(t *testing.T) {
	// The receiver closes an idle connection without having said so.
	closed := make(chan struct{}, 10)
	rc := newReceiver(t, nil, func(p *peer) {
		if p.request() {
			p.say(noContent)
		}
		_ = p.Close()
		closed <- struct{}{}
	})
	c := local(t)
	for range 5 {
		res := post(t, c, rc.url(), "{}")
		want(t, res, "", "")
		if res.Reused {
			t.Error("a closed connection was reused")
		}
		<-closed
	}
}

func TestUnaskedBytesAreNotAnAnswer(t *testing.T) {
	sent := make(chan struct{}, 10)
	rc := newReceiver(t, nil, func(p *peer) {
		for p.request() {
			p.say(noContent + "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
			sent <- struct{}{}
		}
	})
	c := local(t)
	for range 3 {
		res := post(t, c, rc.url(), "{}")
		if res.Status != 204 || res.Reused {
			t.Errorf("status %d, reused %v", res.Status, res.Reused)
		}
		<-sent
	}
}

// S-02: a time-out, a shutdown, and both.
func TestS02_TimeoutIsNotShutdown(t *testing.T) {
	arrived := make(chan struct{}, 10)
	rc := newReceiver(t, nil, func(p *peer) {
		p.request()
		arrived <- struct{}{}
		p.hold()
	})
	c := local(t)
	do := func(ctx context.Context, timeout time.Duration) Result {
		return c.Do(ctx, &Request{Target: target(t, c, rc.url()), Timeout: timeout})
	}
	res := do(t.Context(), 50*time.Millisecond)
	want(t, res, surehook.Timeout, "timed out waiting for the answer")
	if res.Cancelled {
		t.Error("a timeout counts as shutdown")
	}
	<-arrived

	ctx, cancel := context.WithCancelCause(t.Context())
	go func() {
		<-arrived
		cancel(errors.New("shutdown"))
	}()
	if res := do(ctx, patience); !res.Cancelled || res.Code == "" || res.Phases.Total > patience/2 {
		t.Errorf("%+v", res)
	}
	if res := do(ctx, patience); !res.Cancelled || res.Code == "" {
		t.Errorf("cancelled before: %+v", res)
	}

	// The caller's own deadline is a deadline too.
	short, stop := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer stop()
	if res := do(short, patience); res.Cancelled || res.Code != surehook.Timeout {
		t.Errorf("%+v", res)
	}
	// Both: what came first counts.
	late, end := context.WithCancel(t.Context())
	res = do(late, 50*time.Millisecond)
	end()
	if res.Cancelled || res.Code != surehook.Timeout {
		t.Errorf("%+v", res)
	}
}

func TestCancelInEveryPhase(t *testing.T) {
	t.Run("resolve", func(t *testing.T) {
		w := newWorld(t, answering(noContent))
		ctx, cancel := context.WithCancel(t.Context())
		asked := w.dns.asked("blackhole.example.com", 1)
		go func() { <-asked; cancel() }()
		res := w.client.Do(ctx, &Request{Target: target(t, w.client, "https://blackhole.example.com/"), Timeout: patience, ConnectTimeout: patience})
		if !res.Cancelled {
			t.Errorf("%+v", res)
		}
	})
	t.Run("tls", func(t *testing.T) {
		got := make(chan struct{})
		rc := newReceiver(t, nil, func(p *peer) {
			_, _ = p.br.ReadByte()
			close(got)
			p.hold()
		})
		c := local(t)
		ctx, cancel := context.WithCancel(t.Context())
		go func() { <-got; cancel() }()
		res := c.Do(ctx, &Request{Target: target(t, c, strings.Replace(rc.url(), "http:", "https:", 1)), Timeout: patience})
		if !res.Cancelled {
			t.Errorf("%+v", res)
		}
	})
}
