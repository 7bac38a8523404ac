package egress

import (
	"bytes"
	"context"
	"crypto/x509"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"testing"
	"time"

	"github.com/surehook/surehook"
)

// lanes is how many requests are in flight per processor: with one alone, the
// wake-ups of the ping-pong are all that's measured.
const lanes = 8

var benchHeader = []Field{
	{"Content-Type", "application/json"},
	{"User-Agent", "Surehook/1.0"},
	{"webhook-id", "evt_01J9ZK3V7Q8M2N4P6R8S0T2V4W"},
	{"webhook-timestamp", "1760000000"},
	{"webhook-signature", "v1,K5oZfzN95Z9UVu1EsfQmfVNQhnkZ2pj9o9NDN/H/pI4="},
}

func benchServer(b *testing.B, useTLS bool) *httptest.Server {
	b.Helper()
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		w.WriteHeader(http.StatusNoContent)
	}))
	if useTLS {
		s.StartTLS()
	} else {
		s.Start()
	}
	b.Cleanup(s.Close)
	return s
}

func benchDo(b *testing.B, useTLS bool) {
	s := benchServer(b, useTLS)
	var roots *x509.CertPool
	if useTLS {
		roots = s.Client().Transport.(*http.Transport).TLSClientConfig.RootCAs
	}
	benchURL(b, s.URL, roots)
}

func benchURL(b *testing.B, url string, roots *x509.CertPool) {
	b.Helper()
	cfg := Config{AllowNetworks: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}, RootCAs: roots}
	c, err := New(cfg)
	if err != nil {
		b.Fatal(err)
	}
	defer c.Close()
	t, err := c.ParseURL(url + "/hook?tenant=1")
	if err != nil {
		b.Fatal(err)
	}
	ctx, cancel := context.WithCancel(b.Context())
	defer cancel()
	r := &Request{Target: t, Header: benchHeader, Body: bytes.Repeat([]byte("x"), 1024), Timeout: 15 * time.Second}
	b.ReportAllocs()
	defer reportCPU(b)()
	b.SetParallelism(lanes)
	b.ResetTimer()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			if res := c.Do(ctx, r); res.Code != surehook.OK {
				b.Error(res.Err)
				return
			}
		}
	})
}

// BenchmarkDoBare answers with a canned head, so that what remains is the
// client and the kernel.
func BenchmarkDoBare(b *testing.B) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _ = ln.Close() }()
	serve := func(nc net.Conn) {
		defer func() { _ = nc.Close() }()
		buf := make([]byte, 16<<10)
		for {
			if _, err := nc.Read(buf); err != nil {
				return
			}
			if _, err := io.WriteString(nc, "HTTP/1.1 204 No Content\r\nDate: Wed, 21 Oct 2026 07:28:00 GMT\r\n\r\n"); err != nil {
				return
			}
		}
	}
	go func() {
		for {
			nc, err := ln.Accept()
			if err != nil {
				return
			}
			go serve(nc)
		}
	}()
	benchURL(b, "http://"+ln.Addr().String(), nil)
}

// reportCPU adds the process's CPU time, client and server together, which
// says more than the wall time of a ping-pong.
func reportCPU(b *testing.B) func() {
	before := cpuTime()
	return func() { b.ReportMetric(float64((cpuTime()-before).Microseconds())/float64(b.N), "cpu-µs/op") }
}

func BenchmarkDo(b *testing.B)    { benchDo(b, false) }
func BenchmarkDoTLS(b *testing.B) { benchDo(b, true) }

func benchTransport(b *testing.B, useTLS bool) {
	s := benchServer(b, useTLS)
	tr := s.Client().Transport.(*http.Transport)
	defer tr.CloseIdleConnections()
	body := bytes.Repeat([]byte("x"), 1024)
	ctx, cancel := context.WithCancel(b.Context())
	defer cancel()
	b.ReportAllocs()
	defer reportCPU(b)()
	b.SetParallelism(lanes)
	tr.MaxIdleConnsPerHost = 1000
	b.ResetTimer()
	one := func() {
		ctx, stop := context.WithTimeout(ctx, 15*time.Second)
		defer stop()
		req, err := http.NewRequestWithContext(ctx, http.MethodPost, s.URL+"/hook?tenant=1", bytes.NewReader(body))
		if err != nil {
			b.Error(err)
			return
		}
		for _, f := range benchHeader {
			req.Header.Set(f.Name, f.Value)
		}
		resp, err := tr.RoundTrip(req)
		if err != nil {
			b.Error(err)
			return
		}
		_, _ = io.Copy(io.Discard, resp.Body)
		_ = resp.Body.Close()
	}
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			one()
		}
	})
}

func BenchmarkTransport(b *testing.B)    { benchTransport(b, false) }
func BenchmarkTransportTLS(b *testing.B) { benchTransport(b, true) }
