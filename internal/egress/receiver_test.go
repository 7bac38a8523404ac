package egress

import (
	"bufio"
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"io"
	"math/big"
	"net"
	"net/netip"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// receiver is a raw TCP or TLS server: it keeps the bytes of each request and
// answers by script.
type receiver struct {
	ln     net.Listener
	script func(*peer)
	conns  atomic.Int32
	wg     sync.WaitGroup
	gone   chan struct{}

	mu   sync.Mutex
	open map[net.Conn]bool
	got  [][]byte
}

// peer is one connection as the receiver sees it.
type peer struct {
	net.Conn
	br *bufio.Reader
	rc *receiver
	nr int // which connection, from 1
}

// newReceiver starts a receiver. The script runs once per connection.
func newReceiver(t *testing.T, conf *tls.Config, script func(*peer)) *receiver {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	if conf != nil {
		ln = tls.NewListener(ln, conf)
	}
	rc := &receiver{ln: ln, script: script, open: map[net.Conn]bool{}, gone: make(chan struct{})}
	rc.wg.Add(1)
	go rc.accept()
	t.Cleanup(rc.close)
	return rc
}

func (rc *receiver) close() {
	close(rc.gone)
	_ = rc.ln.Close()
	rc.mu.Lock()
	for c := range rc.open {
		_ = c.Close()
	}
	rc.mu.Unlock()
	rc.wg.Wait()
}

func (rc *receiver) accept() {
	defer rc.wg.Done()
	for {
		c, err := rc.ln.Accept()
		if err != nil {
			return
		}
		n := int(rc.conns.Add(1))
		rc.mu.Lock()
		rc.open[c] = true
		rc.mu.Unlock()
		rc.wg.Add(1)
		go func() {
			defer rc.wg.Done()
			rc.script(&peer{Conn: c, br: bufio.NewReader(c), rc: rc, nr: n})
			_ = c.Close()
			rc.mu.Lock()
			delete(rc.open, c)
			rc.mu.Unlock()
		}()
	}
}

func (rc *receiver) addr() netip.AddrPort { return netip.MustParseAddrPort(rc.ln.Addr().String()) }
func (rc *receiver) url() string          { return "http://" + rc.ln.Addr().String() }

func (rc *receiver) requests() []string {
	rc.mu.Lock()
	defer rc.mu.Unlock()
	var out []string
	for _, b := range rc.got {
		out = append(out, string(b))
	}
	return out
}

// request reads one request with its body; false at the end.
func (p *peer) request() bool {
	var raw bytes.Buffer
	length := 0
	for {
		line, err := p.br.ReadString('\n')
		if err != nil {
			return false
		}
		raw.WriteString(line)
		if line == "\r\n" {
			break
		}
		if k, v, _ := strings.Cut(line, ":"); strings.EqualFold(k, "Content-Length") {
			length, _ = strconv.Atoi(strings.TrimSpace(v))
		}
	}
	body := make([]byte, length)
	if _, err := io.ReadFull(p.br, body); err != nil {
		return false
	}
	raw.Write(body)
	p.rc.mu.Lock()
	p.rc.got = append(p.rc.got, raw.Bytes())
	p.rc.mu.Unlock()
	return true
}

func (p *peer) say(s string) { _, _ = io.WriteString(p, s) }

// hold keeps the connection open until the test ends.
func (p *peer) hold() { <-p.rc.gone }

// answering answers every request the same way.
func answering(s string) func(*peer) {
	return func(p *peer) {
		for p.request() {
			p.say(s)
		}
	}
}

const noContent = "HTTP/1.1 204 No Content\r\n\r\n"

// authority is a certificate authority for one test.
type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	pool *x509.CertPool
}

func newAuthority(t *testing.T) *authority {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	tmpl := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test authority"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, tmpl, tmpl, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	a := &authority{cert: cert, key: key, pool: x509.NewCertPool()}
	a.pool.AddCert(cert)
	return a
}

// issue makes a certificate for the names, valid until the given time.
func (a *authority) issue(t *testing.T, until time.Time, names ...string) tls.Certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	tmpl := &x509.Certificate{
		SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: "leaf"}, DNSNames: names,
		NotBefore: time.Now().Add(-2 * time.Hour), NotAfter: until,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, tmpl, a.cert, &key.PublicKey, a.key)
	if err != nil {
		t.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
}

func (a *authority) serverConfig(t *testing.T, names ...string) *tls.Config {
	return &tls.Config{Certificates: []tls.Certificate{a.issue(t, time.Now().Add(time.Hour), names...)}}
}
