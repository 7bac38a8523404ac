package egress

import (
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"github.com/surehook/surehook"
)

// speaking makes an HTTP/2 receiver of the standard library at
// hooks.example.com, and a client to reach it.
func speaking(t *testing.T, cfg Config, h http.HandlerFunc) (*httptest.Server, *Client, *atomic.Int32) {
	t.Helper()
	ca := newAuthority(t)
	s := httptest.NewUnstartedServer(h)
	s.TLS = ca.serverConfig(t, "hooks.example.com")
	s.EnableHTTP2 = true
	var conns atomic.Int32
	s.Config.ConnState = func(_ net.Conn, st http.ConnState) {
		if st == http.StateNew {
			conns.Add(1)
		}
	}
	s.StartTLS()
	t.Cleanup(s.Close)
	cfg.RootCAs, cfg.Resolver = ca.pool, resolving("hooks.example.com", pub4)
	c, _ := routed(t, cfg, map[string]netip.AddrPort{pub4: netip.MustParseAddrPort(s.Listener.Addr().String())})
	return s, c, &conns
}

func TestH2_OneConnectionManyRequests(t *testing.T) {
	var mu sync.Mutex
	var seen []string
	_, c, conns := speaking(t, Config{}, func(w http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		mu.Lock()
		seen = append(seen, r.RequestURI+" "+r.Header.Get("Content-Length")+" "+string(b)+" "+r.Header.Get("Accept-Encoding")+r.Header.Get("User-Agent"))
		mu.Unlock()
		w.Header().Set("Retry-After", "3")
		w.WriteHeader(http.StatusAccepted)
		_, _ = io.WriteString(w, "thanks")
	})
	for i := range 3 {
		res := c.Do(t.Context(), &Request{Target: target(t, c, "https://hooks.example.com/x%2Fy?tok=a%2Bb%20c&"), Body: []byte("{}"), Timeout: patience})
		want(t, res, "", "")
		if res.Proto != "HTTP/2.0" || res.Reused != (i > 0) || string(res.Body) != "thanks" || res.Truncated || len(res.RetryAfter) != 1 {
			t.Errorf("%+v", res)
		}
		if res.Phases.Total < res.Phases.Write+res.Phases.Wait+res.Phases.Read || res.Phases.Wait <= 0 {
			t.Errorf("phases %+v", res.Phases)
		}
	}
	var wg sync.WaitGroup
	for range 20 {
		wg.Go(func() { want(t, post(t, c, "https://hooks.example.com/x%2Fy?tok=a%2Bb%20c&", "{}"), "", "") })
	}
	wg.Wait()
	if conns.Load() != 1 {
		t.Errorf("%d connections", conns.Load())
	}
	for _, s := range seen {
		if s != "/x%2Fy?tok=a%2Bb%20c& 2 {} " {
			t.Fatalf("got %q", s)
		}
	}
}

func TestH2_TargetIsByteExact(t *testing.T) {
	uri := make(chan string, 1)
	_, c, _ := speaking(t, Config{}, func(_ http.ResponseWriter, r *http.Request) { uri <- r.RequestURI })
	for _, tail := range []string{"/", "/x?", "//a//b", "/a;b?c=d;e", "/x%2Fy?a=%20"} {
		want(t, post(t, c, "https://hooks.example.com"+tail, ""), "", "")
		if got := <-uri; got != tail {
			t.Errorf("got %q, want %q", got, tail)
		}
	}
}

func TestH2_BodiesAreBounded(t *testing.T) {
	_, c, _ := speaking(t, Config{}, func(w http.ResponseWriter, _ *http.Request) {
		chunk := make([]byte, 4096)
		for {
			if _, err := w.Write(chunk); err != nil {
				return
			}
		}
	})
	res := post(t, c, hooks, "{}")
	want(t, res, "", "")
	if len(res.Body) != 4096 || !res.Truncated {
		t.Errorf("%d bytes", len(res.Body))
	}
}

func TestH2_DrippingBody(t *testing.T) {
	done := make(chan struct{})
	t.Cleanup(func() { close(done) })
	_, c, _ := speaking(t, Config{}, func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, "d")
		w.(http.Flusher).Flush()
		select {
		case <-r.Context().Done():
		case <-done:
		}
	})
	res := post(t, c, hooks, "{}")
	want(t, res, "", "")
	if string(res.Body) != "d" || !res.Truncated || res.Phases.Read > patience/2 {
		t.Errorf("%+v", res)
	}
}

func TestH2_TimeoutAndGiantHead(t *testing.T) {
	_, c, conns := speaking(t, Config{}, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/big" {
			w.Header().Set("X-Big", strings.Repeat("b", 64<<10))
			return
		}
		if r.URL.Path == "/slow" {
			<-r.Context().Done()
		}
	})
	slow := &Request{Target: target(t, c, "https://hooks.example.com/slow"), Timeout: 200 * time.Millisecond}
	want(t, c.Do(t.Context(), slow), surehook.Timeout, "waiting for the answer")
	want(t, post(t, c, "https://hooks.example.com/big", "{}"), surehook.Connect, "")
	want(t, post(t, c, "https://hooks.example.com/", "{}"), "", "")
	if conns.Load() > 2 {
		t.Errorf("%d connections", conns.Load())
	}
}

// framer is an HTTP/2 receiver made of bare frames: it answers 204 and sends
// GOAWAY after each connection's nth request.
func framer(goawayAfter int, bodies chan<- string) func(*peer) {
	return func(p *peer) {
		preface := make([]byte, len(http2.ClientPreface))
		if _, err := io.ReadFull(p.br, preface); err != nil {
			return
		}
		fr := http2.NewFramer(p, p.br)
		_ = fr.WriteSettings()
		var block strings.Builder
		enc := hpack.NewEncoder(&block)
		body, n := map[uint32]string{}, 0
		finish := func(id uint32) {
			n++
			bodies <- body[id]
			block.Reset()
			_ = enc.WriteField(hpack.HeaderField{Name: ":status", Value: "204"})
			if n == goawayAfter {
				_ = fr.WriteGoAway(id, http2.ErrCodeNo, nil)
			}
			_ = fr.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: []byte(block.String()), EndHeaders: true, EndStream: true})
		}
		for {
			f, err := fr.ReadFrame()
			if err != nil {
				return
			}
			switch f := f.(type) {
			case *http2.SettingsFrame:
				if !f.IsAck() {
					_ = fr.WriteSettingsAck()
				}
			case *http2.HeadersFrame:
				if f.StreamEnded() {
					finish(f.StreamID)
				}
			case *http2.DataFrame:
				body[f.StreamID] += string(f.Data())
				if f.StreamEnded() {
					finish(f.StreamID)
				}
			}
		}
	}
}

// I-04, I-05: after a GOAWAY the body goes out whole on another connection.
func TestI04_I05_GoAwayKeepsBodies(t *testing.T) {
	ca := newAuthority(t)
	conf := ca.serverConfig(t, "hooks.example.com")
	conf.NextProtos = []string{"h2"}
	bodies := make(chan string, 100)
	rc, c := secured(t, conf, Config{RootCAs: ca.pool}, framer(2, bodies))
	for range 7 {
		res := post(t, c, hooks, `{"whole":true}`)
		want(t, res, "", "")
		if b := <-bodies; b != `{"whole":true}` || res.Proto != "HTTP/2.0" {
			t.Errorf("body %q over %s", b, res.Proto)
		}
	}
	if n := rc.conns.Load(); n != 4 {
		t.Errorf("%d connections", n)
	}
}

func TestH2_BrokenConnectionIsNotResent(t *testing.T) {
	ca := newAuthority(t)
	conf := ca.serverConfig(t, "hooks.example.com")
	conf.NextProtos = []string{"h2"}
	rc, c := secured(t, conf, Config{RootCAs: ca.pool}, func(p *peer) {
		preface := make([]byte, len(http2.ClientPreface))
		_, _ = io.ReadFull(p.br, preface)
		fr := http2.NewFramer(p, p.br)
		_ = fr.WriteSettings()
		for {
			f, err := fr.ReadFrame()
			if _, ok := f.(*http2.HeadersFrame); ok || err != nil {
				return
			}
		}
	})
	want(t, post(t, c, hooks, "{}"), surehook.Connect, "")
	if rc.conns.Load() != 1 {
		t.Error("it tried again by itself")
	}
}

func TestH2_RebindingDoesNotRideThePool(t *testing.T) {
	_, c, _ := speaking(t, Config{}, func(http.ResponseWriter, *http.Request) {})
	want(t, post(t, c, hooks, "{}"), "", "")
	names, ok := c.dns.via.(*answers)
	if !ok {
		t.Fatal("not the scripted resolver")
	}
	names.set("hooks.example.com", "1.1.1.1")
	res := post(t, c, hooks, "{}")
	if res.Reused || res.Code != surehook.Connect {
		t.Errorf("%+v", res)
	}
}

func TestH2_IdleConnectionsEnd(t *testing.T) {
	closed := make(chan struct{})
	ca := newAuthority(t)
	conf := ca.serverConfig(t, "hooks.example.com")
	conf.NextProtos = []string{"h2"}
	bodies := make(chan string, 1)
	serve := framer(0, bodies)
	_, c := secured(t, conf, Config{RootCAs: ca.pool, IdleTimeout: 40 * time.Millisecond}, func(p *peer) {
		serve(p)
		close(closed)
	})
	want(t, post(t, c, hooks, "{}"), "", "")
	select {
	case <-closed:
	case <-time.After(patience):
		t.Error("still open")
	}
}

func TestH2_PrefaceRefused(t *testing.T) {
	ca := newAuthority(t)
	conf := ca.serverConfig(t, "hooks.example.com")
	conf.NextProtos = []string{"h2"}
	_, c := secured(t, conf, Config{RootCAs: ca.pool}, func(p *peer) {
		var hs *tls.Conn
		if tc, ok := p.Conn.(*tls.Conn); ok {
			hs = tc
		}
		if err := hs.HandshakeContext(t.Context()); err != nil && !errors.Is(err, io.EOF) {
			return
		}
		p.say("HTTP/1.1 400 Bad Request\r\n\r\n")
	})
	want(t, post(t, c, hooks, "{}"), surehook.Connect, "")
}
