package egress

import (
	"net/netip"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/surehook/surehook"
)

// requestLine posts to base+tail and returns the first line that arrived.
func requestLine(t *testing.T, c *Client, rc *receiver, tail string) string {
	t.Helper()
	n := len(rc.requests())
	want(t, post(t, c, rc.url()+tail, "{}"), "", "")
	got := rc.requests()
	if len(got) != n+1 {
		t.Fatalf("%d requests for one", len(got)-n)
	}
	line, _, _ := strings.Cut(got[n], "\r\n")
	return line
}

func TestK08_RequestTargetIsByteExact(t *testing.T) {
	rc := newReceiver(t, nil, answering(noContent))
	c := local(t)
	for _, tail := range []string{"/x?k=1&k=2", "/x?", "/a+b;c=d?x=a+b;y", "/x%2Fy", "//double//slash/", "/a/../b/./c",
		"/%7Euser/~user", "/x?u=https://other.example/?a=b", "/x?a=%zz", "/{id}/|^`\"<>", "/x?@127.0.0.1", "/a:b@c"} {
		if got, want := requestLine(t, c, rc, tail), "POST "+tail+" HTTP/1.1"; got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
	if got := requestLine(t, c, rc, "?x=1"); got != "POST /?x=1 HTTP/1.1" {
		t.Errorf("got %q", got)
	}
	if _, err := c.ParseURL(rc.url() + "/x#frag"); err == nil {
		t.Error("a fragment was accepted")
	}
}

func TestK09_QueryTokensAreAccepted(t *testing.T) {
	g := NewGuard(nil, nil)
	for _, q := range []string{"?token=AbC-_~.123", "?sig=a%2Bb%2F%3D", "?a[]=1&a[]=2", "?k={v}", "?=", "?%20"} {
		if _, err := g.ParseURL("https://hooks.example.com/x" + q); err != nil {
			t.Errorf("%s: %v", q, err)
		}
	}
}

func TestK10_URLWithoutPath(t *testing.T) {
	rc := newReceiver(t, nil, answering(noContent))
	if got := requestLine(t, local(t), rc, ""); got != "POST / HTTP/1.1" {
		t.Errorf("got %q", got)
	}
}

// nothing is decoded on the way to the request line; and no URL is signed.
func TestA14_EscapesSurvive(t *testing.T) {
	rc := newReceiver(t, nil, answering(noContent))
	const tail = "/x%2Fy?tok=a%2Bb%20c"
	if got := requestLine(t, local(t), rc, tail); got != "POST "+tail+" HTTP/1.1" {
		t.Errorf("got %q", got)
	}
}

func TestNonASCIIPathIsEncoded(t *testing.T) {
	rc := newReceiver(t, nil, answering(noContent))
	if got := requestLine(t, local(t), rc, "/größe?q=é"); got != "POST /gr%C3%B6%C3%9Fe?q=%C3%A9 HTTP/1.1" {
		t.Errorf("got %q", got)
	}
}

// I-12: a body of any size goes with its length.
func TestI12_ContentLengthAlways(t *testing.T) {
	rc := newReceiver(t, nil, answering(noContent))
	c := local(t)
	for i, size := range []int{0, 1, 1024, copyLimit, copyLimit + 1, 1 << 20} {
		body := strings.Repeat("x", size)
		want(t, post(t, c, rc.url(), body), "", "")
		head, got, _ := strings.Cut(rc.requests()[i], "\r\n\r\n")
		if !strings.Contains(head, "\r\nContent-Length: "+strconv.Itoa(size)) {
			t.Errorf("%d bytes: head %q", size, head)
		}
		if strings.Contains(strings.ToLower(head), "transfer-encoding") {
			t.Errorf("%d bytes: chunked", size)
		}
		if got != body {
			t.Errorf("%d bytes: %d arrived", size, len(got))
		}
	}
}

func TestHeadIsExact(t *testing.T) {
	rc := newReceiver(t, nil, answering(noContent))
	c := local(t)
	tg := target(t, c, rc.url()+"/in?a=1")
	res := c.Do(t.Context(), &Request{Target: tg, Body: []byte("{}"), Header: []Field{
		{"webhook-id", "evt_1"}, {"Webhook-Signature", "v1,a"}, {"content-type", "application/json"}, {"X-B", "2"}, {"X-A", "1"},
	}})
	want(t, res, "", "")
	if got, want := rc.requests()[0], "POST /in?a=1 HTTP/1.1\r\nHost: "+rc.ln.Addr().String()+"\r\n"+
		"webhook-id: evt_1\r\nWebhook-Signature: v1,a\r\ncontent-type: application/json\r\nX-B: 2\r\nX-A: 1\r\n"+
		"Content-Length: 2\r\n\r\n{}"; got != want {
		t.Errorf("got\n%q, want\n%q", got, want)
	}
}

func TestK07_HostHeaderIsOurs(t *testing.T) { reservedStaysOut(t, "Host") }
func TestI14_FramingHeadersNeverOnTheWire(t *testing.T) {
	for _, name := range []string{"Content-Length", "content-length", "Transfer-Encoding", "Connection", "Expect",
		"TE", "Trailer", "Upgrade", "Keep-Alive", "Proxy-Connection", "Proxy-Authorization", "HOST"} {
		reservedStaysOut(t, name)
	}
}

func reservedStaysOut(t *testing.T, name string) {
	t.Helper()
	if !ReservedHeader(name) {
		t.Errorf("%s isn't reserved", name)
	}
	rc := newReceiver(t, nil, answering(noContent))
	c := local(t)
	res := c.Do(t.Context(), &Request{Target: target(t, c, rc.url()), Header: []Field{{name, "evil.example"}}, Body: []byte("{}")})
	want(t, res, "", "")
	if got := rc.requests()[0]; strings.Contains(got, "evil") {
		t.Errorf("%s was sent: %q", name, got)
	}
}

// K-03: a field that is none is a reason, not a request.
func TestK03_InvalidHeaderIsNotSent(t *testing.T) {
	rc := newReceiver(t, nil, answering(noContent))
	c := local(t)
	for _, f := range []Field{{"X-A", "1\r\nX-Evil: 1"}, {"X A", "1"}, {"", "1"}, {"X-A", "a\x00b"}, {"X:A", "1"}} {
		res := c.Do(t.Context(), &Request{Target: target(t, c, rc.url()), Header: []Field{f}})
		want(t, res, surehook.Connect, "not sent: a header field is invalid")
	}
	if n := rc.conns.Load(); n != 0 {
		t.Errorf("%d connections", n)
	}
}

func TestK05_HeadersWithEmptyBody(t *testing.T) {
	rc := newReceiver(t, nil, answering(noContent))
	c := local(t)
	want(t, c.Do(t.Context(), &Request{Target: target(t, c, rc.url()), Header: []Field{{"X-Token", "abc"}}}), "", "")
	if got := rc.requests()[0]; !strings.Contains(got, "\r\nX-Token: abc\r\n") || !strings.Contains(got, "Content-Length: 0\r\n") {
		t.Errorf("got %q", got)
	}
}

func TestK11_UserInfoPointsToHeaders(t *testing.T) {
	_, err := NewGuard(loopback, nil).ParseURL("https://us%40er:p%3Aass@hooks.example.com/")
	if err == nil || !strings.Contains(err.Error(), "header") || strings.Contains(err.Error(), "ass@") {
		t.Errorf("got %v", err)
	}
}

func TestStatusCodes(t *testing.T) {
	for status, code := range map[int]surehook.Code{200: "", 201: "", 202: "", 204: "", 299: "", 300: surehook.Redirect, 304: surehook.Redirect,
		399: surehook.Redirect, 400: surehook.Status4xx, 404: surehook.Status4xx, 408: surehook.Status4xx, 410: surehook.Status410,
		413: surehook.Status4xx, 429: surehook.Status429, 499: surehook.Status4xx, 500: surehook.Status5xx, 503: surehook.Status5xx,
		599: surehook.Status5xx, 600: surehook.Status5xx, 999: surehook.Status5xx} {
		rc := newReceiver(t, nil, answering("HTTP/1.1 "+strconv.Itoa(status)+" X\r\nContent-Length: 0\r\n\r\n"))
		res := post(t, local(t), rc.url(), "{}")
		if res.Code != code || res.Status != status {
			t.Errorf("%d: code %q, status %d", status, res.Code, res.Status)
		}
	}
}

// D-09, on the wire.
func TestD09_NoContentIsSuccess(t *testing.T) {
	rc := newReceiver(t, nil, answering(noContent))
	if res := post(t, local(t), rc.url(), "{}"); res.Code != surehook.OK || res.Status != 204 || res.Body != nil || res.Truncated {
		t.Errorf("%+v", res)
	}
}

func TestAnswerIsRecorded(t *testing.T) {
	rc := newReceiver(t, nil, answering("HTTP/1.1 503 Busy\r\nRetry-After: 120\r\nRetry-After: 7\r\nContent-Type: text/plain\r\nContent-Length: 4\r\n\r\nbusy"))
	res := post(t, local(t), rc.url()+"/p?secret=1", "{}")
	want(t, res, surehook.Status5xx, "answered 503")
	if strings.Join(res.RetryAfter, "|") != "120|7" || res.ContentType != "text/plain" || string(res.Body) != "busy" || res.Truncated {
		t.Errorf("%+v", res)
	}
	if res.Proto != "HTTP/1.1" || res.Remote != rc.addr() || res.Reused {
		t.Errorf("%+v", res)
	}
	p := res.Phases
	if p.Connect <= 0 || p.Write <= 0 || p.Wait <= 0 || p.TLS < 0 || p.Total < p.Connect+p.Write+p.Wait+p.Read {
		t.Errorf("phases %+v", p)
	}
}

// The redir- rows of ssrf.tsv, and D-11 and J-09 with them.
func TestRowsRedirects(t *testing.T) {
	says := map[string]string{
		"redir-302-private": "HTTP/1.1 302 F\r\nLocation: http://169.254.169.254/",
		"redir-307-private": "HTTP/1.1 307 F\r\nLocation: https://127.0.0.1/",
		"redir-308-public":  "HTTP/1.1 308 F\r\nLocation: https://other.example.com/",
		"redir-301-http":    "HTTP/1.1 301 F\r\nLocation: http://hooks.example.com/",
		"redir-self":        "HTTP/1.1 302 F\r\nLocation: /",
		"redir-303-file":    "HTTP/1.1 303 F\r\nLocation: file:///etc/passwd",
		"meta-refresh":      "HTTP/1.1 200 OK\r\nRefresh: 0; url=http://169.254.169.254/",
		"altsvc":            "HTTP/1.1 200 OK\r\nAlt-Svc: h3=\"127.0.0.1:443\"",
	}
	w := newWorld(t, func(p *peer) {
		for p.request() {
			raw := w0(p)
			_, host, _ := strings.Cut(raw, "\r\nHost: ")
			name, _, _ := strings.Cut(host, ".")
			p.say(says[name] + "\r\nContent-Length: 0\r\n\r\n")
		}
	})
	ran := 0
	for _, r := range rows(t) {
		if !strings.HasPrefix(r.id, "redir-") {
			continue
		}
		ran++
		t.Run(r.id, func(t *testing.T) {
			tg := target(t, w.client, r.input)
			name, _, _ := strings.Cut(tg.Host(), ".")
			says, ok := says[name]
			if !ok {
				t.Fatalf("no script for %s", name)
			}
			w.dns.a(tg.Host(), pub4)
			before, dials := len(w.rc.requests()), len(w.routes.dialled())
			if v := w.client.Check(t.Context(), r.input, true); v.Verdict != r.verdict {
				t.Errorf("%+v", v)
			}
			res := w.post(t, tg.Host())
			if strings.Contains(says, " 200 ") {
				want(t, res, "", "")
			} else {
				want(t, res, surehook.Redirect, "final URL")
			}
			if n, d := len(w.rc.requests())-before, len(w.routes.dialled())-dials; n != 1 || d != 1 {
				t.Errorf("%d requests, %d dials", n, d)
			}
		})
	}
	if ran < 8 {
		t.Errorf("only %d rows", ran)
	}
}

// w0 returns the latest request on any connection.
func w0(p *peer) string {
	all := p.rc.requests()
	return all[len(all)-1]
}

func TestJ09_D11_RedirectsAreNotFollowed(t *testing.T) {
	inside := newReceiver(t, nil, answering(noContent))
	rc := newReceiver(t, nil, answering("HTTP/1.1 302 Found\r\nLocation: "+inside.url()+"/\r\nContent-Length: 0\r\n\r\n"))
	c := newClient(t, Config{AllowNetworks: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}})
	want(t, post(t, c, rc.url(), "{}"), surehook.Redirect, "answered 302")
	if inside.conns.Load() != 0 {
		t.Error("followed, although even the guard would have let it")
	}
}

// An answer that says twice where it ends is taken, but its connection isn't: the
// rest of it could pass for the next answer.
func TestFramedTwiceEndsTheConnection(t *testing.T) {
	const chunked = "\r\n2\r\nok\r\n0\r\n\r\n"
	pad := "X-Pad: " + strings.Repeat("p", 5000) + "\r\n"
	for name, c := range map[string]struct {
		head string
		kept bool
	}{
		"chunked":                   {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n" + chunked, true},
		"both":                      {"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nTransfer-Encoding: chunked\r\n" + chunked, false},
		"the other way round":       {"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\nX: y\r\ncontent-length: 12\r\n" + chunked, false},
		"without a body":            {"HTTP/1.1 204 No\r\nContent-Length: 0\r\nTransfer-Encoding: chunked\r\n\r\n", false},
		"after an interim answer":   {"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 2\r\nTransfer-Encoding: chunked\r\n" + chunked, false},
		"by HTTP/1.0":               {"HTTP/1.0 200 OK\r\nConnection: keep-alive\r\nContent-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\nok", false},
		"a long head":               {"HTTP/1.1 200 OK\r\n" + pad + "Content-Length: 2\r\n\r\nok", true},
		"a long head, and chunked":  {"HTTP/1.1 200 OK\r\n" + pad + "Content-Length: 2\r\nTransfer-Encoding: chunked\r\n" + chunked, false},
		"a name that only contains": {"HTTP/1.1 200 OK\r\nX-Content-Length: 9\r\nTransfer-Encoding: chunked\r\n" + chunked, true},
	} {
		t.Run(name, func(t *testing.T) {
			rc := newReceiver(t, nil, answering(c.head))
			cl := local(t)
			for range 2 {
				want(t, post(t, cl, rc.url(), "{}"), "", "")
			}
			if kept := rc.conns.Load() == 1; kept != c.kept {
				t.Errorf("%d connections for two requests", rc.conns.Load())
			}
		})
	}
}

// A head that comes in pieces is seen as a whole.
func TestFramedTwiceInPieces(t *testing.T) {
	rc := newReceiver(t, nil, func(p *peer) {
		for p.request() {
			for _, s := range []string{"HTTP/1.1 200 OK\r\nContent-Len", "gth: 2\r", "\nTransfer-Encoding: chunked\r\n\r", "\n2\r\nok\r\n0\r\n\r\n"} {
				p.say(s)
				time.Sleep(5 * time.Millisecond) //nolint:forbidigo // a receiver that dawdles
			}
		}
	})
	cl := local(t)
	for range 2 {
		want(t, post(t, cl, rc.url(), "{}"), "", "")
	}
	if rc.conns.Load() != 2 {
		t.Errorf("%d connections for two requests", rc.conns.Load())
	}
}

func TestOtherProtocolsAreNoAnswer(t *testing.T) {
	for head, says := range map[string]string{
		"HTTP/2.0 200 OK": "protocol isn't HTTP/1", "HTTP/3.0 200 OK": "protocol isn't HTTP/1", "HTTP/0.9 200 OK": "protocol isn't HTTP/1",
		"HTTP/2 200 OK": "isn't valid HTTP", "ICY 200 OK": "isn't valid HTTP", "HTTP/1.1 099 Odd": "below 100", "HTTP/1.1 000 Odd": "below 100",
		"HTTP/1.1 1000 Odd": "isn't valid HTTP", "HTTP/1.1 2x0 Odd": "isn't valid HTTP",
	} {
		rc := newReceiver(t, nil, answering(head+"\r\nContent-Length: 0\r\n\r\n"))
		res := post(t, local(t), rc.url(), "{}")
		want(t, res, surehook.Connect, says)
		if res.Status != 0 {
			t.Errorf("%s: status %d", head, res.Status)
		}
	}
	for _, head := range []string{"HTTP/1.0 200 OK", "HTTP/1.1 200 OK"} {
		rc := newReceiver(t, nil, answering(head+"\r\nContent-Length: 0\r\n\r\n"))
		want(t, post(t, local(t), rc.url(), "{}"), "", "")
	}
}
