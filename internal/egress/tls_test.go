package egress

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/surehook/surehook"
)

const hooks = "https://hooks.example.com/in?token=SECRET"

// secured makes a TLS receiver at hooks.example.com and a client to reach it.
func secured(t *testing.T, conf *tls.Config, cfg Config, script func(*peer)) (*receiver, *Client) {
	t.Helper()
	rc := newReceiver(t, conf, script)
	cfg.Resolver = resolving("hooks.example.com", pub4)
	c, _ := routed(t, cfg, map[string]netip.AddrPort{pub4: rc.addr()})
	return rc, c
}

// I-17, I-18: trust is added by name of an authority or a certificate, and never lifted.
func TestI17_I18_CustomCA(t *testing.T) {
	ca, other := newAuthority(t), newAuthority(t)
	own := other.issue(t, time.Now().Add(time.Hour), "hooks.example.com")
	self, err := x509.ParseCertificate(own.Certificate[0])
	if err != nil {
		t.Fatal(err)
	}
	selfPool := x509.NewCertPool()
	selfPool.AddCert(self)
	hour := time.Now().Add(time.Hour)
	for name, tc := range map[string]struct {
		cert tls.Certificate
		cfg  Config
		text string
	}{
		"private authority": {ca.issue(t, hour, "hooks.example.com"), Config{RootCAs: ca.pool}, ""},
		"wildcard":          {ca.issue(t, hour, "*.example.com"), Config{RootCAs: ca.pool}, ""},
		"by itself":         {own, Config{RootCAs: selfPool}, ""},
		"by itself, no one": {own, Config{RootCAs: ca.pool}, "unknown authority"},
		"unknown":           {ca.issue(t, hour, "hooks.example.com"), Config{RootCAs: other.pool}, "unknown authority"},
		"system roots":      {ca.issue(t, hour, "hooks.example.com"), Config{}, "unknown authority"},
		"wrong host":        {ca.issue(t, hour, "other.example.com"), Config{RootCAs: ca.pool}, "for another host"},
		"expired":           {ca.issue(t, time.Now().Add(-time.Minute), "hooks.example.com"), Config{RootCAs: ca.pool}, "expired"},
	} {
		t.Run(name, func(t *testing.T) {
			rc, c := secured(t, &tls.Config{Certificates: []tls.Certificate{tc.cert}}, tc.cfg, answering(noContent))
			res := post(t, c, hooks, "{}")
			if tc.text == "" {
				want(t, res, "", "")
				if res.Phases.TLS <= 0 || len(rc.requests()) != 1 {
					t.Errorf("%+v", res.Phases)
				}
				return
			}
			want(t, res, surehook.TLS, tc.text)
			if len(rc.requests()) != 0 {
				t.Error("the request was sent")
			}
		})
	}
}

// I-17: SSL_CERT_FILE is read once per process, so this needs one of its own.
func TestI17_SSLCertFile(t *testing.T) {
	if os.Getenv("EGRESS_TEST_ADDR") != "" {
		cfg := Config{Resolver: resolving("hooks.example.com", pub4)}
		c, _ := routed(t, cfg, map[string]netip.AddrPort{pub4: netip.MustParseAddrPort(os.Getenv("EGRESS_TEST_ADDR"))})
		want(t, post(t, c, hooks, "{}"), "", "")
		return
	}
	ca := newAuthority(t)
	rc := newReceiver(t, ca.serverConfig(t, "hooks.example.com"), answering(noContent))
	file := filepath.Join(t.TempDir(), "roots.pem")
	block := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: ca.cert.Raw})
	if err := os.WriteFile(file, block, 0o600); err != nil {
		t.Fatal(err)
	}
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), exe, "-test.run=^TestI17_SSLCertFile$")
	cmd.Env = append(os.Environ(), "SSL_CERT_FILE="+file, "EGRESS_TEST_ADDR="+rc.addr().String())
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
	if len(rc.requests()) != 1 {
		t.Error("nothing arrived")
	}
}

func TestClientCertificate(t *testing.T) {
	ca := newAuthority(t)
	conf := ca.serverConfig(t, "hooks.example.com")
	conf.ClientAuth, conf.ClientCAs = tls.RequireAndVerifyClientCert, ca.pool
	for _, version := range []uint16{tls.VersionTLS12, tls.VersionTLS13} {
		conf := conf.Clone()
		conf.MaxVersion = version
		mine := ca.issue(t, time.Now().Add(time.Hour), "sender.example.com")
		_, c := secured(t, conf, Config{RootCAs: ca.pool, ClientCertificates: []tls.Certificate{mine}}, answering(noContent))
		want(t, post(t, c, hooks, "{}"), "", "")

		_, c = secured(t, conf, Config{RootCAs: ca.pool}, func(p *peer) { _ = p.Conn.(*tls.Conn).HandshakeContext(t.Context()) })
		want(t, post(t, c, hooks, "{}"), surehook.TLS, "refused")
	}
}

func TestOldTLSIsRefused(t *testing.T) {
	ca := newAuthority(t)
	conf := ca.serverConfig(t, "hooks.example.com")
	conf.MinVersion, conf.MaxVersion = tls.VersionTLS11, tls.VersionTLS11
	_, c := secured(t, conf, Config{RootCAs: ca.pool}, func(p *peer) { p.request() })
	want(t, post(t, c, hooks, "{}"), surehook.TLS, "")
}

func TestPlainReceiverBehindHTTPS(t *testing.T) {
	_, c := secured(t, nil, Config{}, func(p *peer) {
		_, _ = p.br.ReadByte()
		p.say("HTTP/1.1 400 Bad Request\r\n\r\n")
	})
	want(t, post(t, c, hooks, "{}"), surehook.TLS, "doesn't speak TLS")
}

func TestHandshakeBrokenOff(t *testing.T) {
	_, c := secured(t, nil, Config{}, func(p *peer) { _, _ = p.br.ReadByte() })
	want(t, post(t, c, hooks, "{}"), surehook.TLS, "TLS handshake")
}

func TestHandshakeTimeout(t *testing.T) {
	_, c := secured(t, nil, Config{}, func(p *peer) { p.hold() })
	res := c.Do(t.Context(), &Request{Target: target(t, c, hooks), Timeout: 50 * time.Millisecond})
	want(t, res, surehook.Timeout, "in the TLS handshake")
}

func TestTLSConnectionIsReused(t *testing.T) {
	ca := newAuthority(t)
	rc, c := secured(t, ca.serverConfig(t, "hooks.example.com"), Config{RootCAs: ca.pool}, answering(noContent))
	for i := range 3 {
		res := post(t, c, hooks, strings.Repeat("b", 100<<10))
		want(t, res, "", "")
		if res.Reused != (i > 0) {
			t.Errorf("request %d: reused %v", i, res.Reused)
		}
	}
	if rc.conns.Load() != 1 {
		t.Errorf("%d connections", rc.conns.Load())
	}
}

func TestTLSCloseNotifyIsNoticed(t *testing.T) {
	ca := newAuthority(t)
	closed := make(chan struct{}, 10)
	rc, c := secured(t, ca.serverConfig(t, "hooks.example.com"), Config{RootCAs: ca.pool}, func(p *peer) {
		if p.request() {
			p.say(noContent)
		}
		_ = p.Conn.(*tls.Conn).CloseWrite() // the alert alone, no FIN
		closed <- struct{}{}
		p.hold()
	})
	for range 3 {
		want(t, post(t, c, hooks, "{}"), "", "")
		<-closed
	}
	if rc.conns.Load() != 3 {
		t.Errorf("%d connections", rc.conns.Load())
	}
}

// H-12, H-13: whatever goes wrong, the URL stays out of the error.
func TestH12_URLNeverInErrors(t *testing.T) {
	ca := newAuthority(t)
	fine := ca.serverConfig(t, "hooks.example.com")
	for name, run := range map[string]func() Result{
		"dns": func() Result {
			c := newClient(t, Config{Resolver: resolving("other.example.com")})
			return post(t, c, hooks, "{}")
		},
		"tls": func() Result {
			_, c := secured(t, fine, Config{}, answering(noContent))
			return post(t, c, hooks, "{}")
		},
		"refused": func() Result {
			c, _ := routed(t, Config{Resolver: resolving("hooks.example.com", pub4)}, nil)
			return post(t, c, hooks, "{}")
		},
		"401": func() Result {
			_, c := secured(t, fine, Config{RootCAs: ca.pool}, answering("HTTP/1.1 401 No\r\nContent-Length: 0\r\n\r\n"))
			return post(t, c, hooks, "{}")
		},
		"timeout": func() Result {
			_, c := secured(t, fine, Config{RootCAs: ca.pool}, func(p *peer) { p.request(); p.hold() })
			return c.Do(t.Context(), &Request{Target: target(t, c, hooks), Timeout: 100 * time.Millisecond})
		},
		"blocked": func() Result {
			c := newClient(t, Config{Resolver: resolving("hooks.example.com", "10.0.0.1")})
			return post(t, c, hooks, "{}")
		},
	} {
		res := run()
		if res.Code == "" || res.Err == "" {
			t.Errorf("%s: %+v", name, res)
		}
		for _, secret := range []string{"SECRET", "token", "/in"} {
			if strings.Contains(res.Err, secret) {
				t.Errorf("%s: %q", name, res.Err)
			}
		}
	}
}

func TestH12_TargetPrintsWithoutPath(t *testing.T) {
	tg, err := NewGuard(nil, nil).ParseURL(hooks)
	if err != nil {
		t.Fatal(err)
	}
	if s := tg.String() + tg.GoString() + tg.Host(); strings.Contains(s, "SECRET") || tg.URL() != hooks {
		t.Errorf("%q, %q", s, tg.URL())
	}
}
