package cli

import (
	"crypto/hmac"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"
)

// The demo's receiver is written as somebody else would write theirs, from the
// Standard Webhooks specification. It imports nothing of the sender: what it
// finds right was found right twice.

const demoMaxBody = 72 << 20

// script says how a receiver answers the nth request for an event; 0: never.
type script func(event string, nth int) (status int)

// seen is what a receiver knows of one event.
type seen struct {
	requests  int
	delivered int // 2xx answers
	arrived   time.Time
	typ       string
	data      [sha256.Size]byte // of the event's data, as it stood in the body
}

// demoReceiver is one endpoint of the demo.
type demoReceiver struct {
	name   string
	answer script
	bare   bool // the body is the data alone, not wrapped
	quit   <-chan struct{}
	now    func() time.Time

	mu       sync.Mutex
	secret   []byte
	events   map[string]*seen
	requests int
	badSigs  int
	badBody  int
	trouble  string // the first thing that was wrong
}

func newReceiver(name string, bare bool, quit <-chan struct{}, answer script) *demoReceiver {
	return &demoReceiver{name: name, bare: bare, quit: quit, answer: answer, now: time.Now, events: make(map[string]*seen)}
}

// trust sets the secret that the API showed once.
func (r *demoReceiver) trust(secret string) error {
	text, ok := strings.CutPrefix(secret, "whsec_")
	raw, err := base64.StdEncoding.DecodeString(text)
	if !ok || err != nil {
		return errors.New("the API's secret isn't whsec_ and base64")
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.secret = raw
	return nil
}

// ServeHTTP implements http.Handler.
func (r *demoReceiver) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	arrived := r.now()
	body, err := io.ReadAll(io.LimitReader(req.Body, demoMaxBody))
	if err != nil {
		return // the sender gave up half-way
	}
	id := req.Header.Get("webhook-id")
	status := r.take(req.Method, id, req.Header.Get("webhook-timestamp"), req.Header.Get("webhook-signature"), body, arrived)
	if status == 0 {
		select { // the black hole: holds the line until the sender hangs up
		case <-req.Context().Done():
		case <-r.quit:
		}
		return
	}
	w.WriteHeader(status)
}

// take checks a request and says how to answer.
func (r *demoReceiver) take(method, id, timestamp, signatures string, body []byte, arrived time.Time) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.requests++
	if err := r.signed(id, timestamp, signatures, body, arrived); err != nil || method != http.MethodPost {
		r.badSigs++
		r.note("a request's signature: %v", err)
		return http.StatusUnauthorized
	}
	typ, data, err := r.unwrap(id, body)
	if err != nil {
		r.badBody++
		r.note("a request's body: %v", err)
		return http.StatusBadRequest
	}
	e := r.events[id]
	if e == nil {
		e = &seen{typ: typ, data: data}
		r.events[id] = e
	} else if e.data != data {
		r.badBody++
		r.note("event %s changed between two attempts", id)
	}
	e.requests++
	status := r.answer(id, e.requests)
	if status >= 200 && status < 300 {
		if e.delivered++; e.delivered == 1 {
			e.arrived = arrived
		}
	}
	return status
}

// signed verifies by Standard Webhooks: HMAC-SHA256 over "id.timestamp.body",
// base64, one of the signatures in the header.
func (r *demoReceiver) signed(id, timestamp, signatures string, body []byte, now time.Time) error {
	seconds, err := strconv.ParseInt(timestamp, 10, 64)
	if err != nil {
		return errors.New("no timestamp")
	}
	if age := now.Sub(time.Unix(seconds, 0)); age > 5*time.Minute || age < -5*time.Minute {
		return errors.New("the timestamp is off by more than 5 minutes")
	}
	mac := hmac.New(sha256.New, r.secret)
	mac.Write([]byte(id + "." + timestamp + "."))
	mac.Write(body)
	want := "v1," + base64.StdEncoding.EncodeToString(mac.Sum(nil))
	for _, got := range strings.Fields(signatures) {
		if subtle.ConstantTimeCompare([]byte(got), []byte(want)) == 1 {
			return nil
		}
	}
	return errors.New("no signature matches")
}

// unwrap finds the data in the body, without changing a byte of it.
func (r *demoReceiver) unwrap(id string, body []byte) (string, [sha256.Size]byte, error) {
	if r.bare {
		return "", sha256.Sum256(body), nil
	}
	var envelope struct {
		ID, Type string
		Data     json.RawMessage
	}
	if err := json.Unmarshal(body, &envelope); err != nil {
		return "", [sha256.Size]byte{}, errors.New("isn't JSON")
	}
	if envelope.ID != id {
		return "", [sha256.Size]byte{}, errors.New("its id isn't the webhook-id")
	}
	return envelope.Type, sha256.Sum256(envelope.Data), nil
}

func (r *demoReceiver) note(format string, args ...any) {
	if r.trouble == "" {
		r.trouble = r.name + ": " + fmt.Sprintf(format, args...)
	}
}

// counts are a receiver's totals.
type counts struct {
	requests, delivered, retried, badSigs, badBody int
	trouble                                        string
}

func (r *demoReceiver) counts() counts {
	r.mu.Lock()
	defer r.mu.Unlock()
	c := counts{requests: r.requests, badSigs: r.badSigs, badBody: r.badBody, trouble: r.trouble}
	for _, e := range r.events {
		c.retried += e.requests - 1
		if e.delivered > 0 {
			c.delivered++
		}
	}
	return c
}

// event gives what is known of one event.
func (r *demoReceiver) event(id string) (seen, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if e := r.events[id]; e != nil {
		return *e, true
	}
	return seen{}, false
}

// receivers listen together on one loopback port, each on its path.
type receivers struct {
	all  []*demoReceiver
	addr string
	quit chan struct{}
	srv  *http.Server
}

const (
	flakyEvents = 4 // events that the flaky endpoint fails: 8 failures in all, two below what opens a breaker
	flakyTimes  = 2 // how often it fails each
)

func listenDemo() (*receivers, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0") //nolint:noctx // there is nothing to wait for on loopback
	if err != nil {
		return nil, fmt.Errorf("the demo's receiver can't listen: %w", err)
	}
	rs := &receivers{addr: l.Addr().String(), quit: make(chan struct{})}
	good := newReceiver("good", true, rs.quit, func(string, int) int { return http.StatusNoContent })
	flaky := newReceiver("flaky", false, rs.quit, flakyScript())
	gone := newReceiver("gone", false, rs.quit, func(string, int) int { return http.StatusGone })
	hole := newReceiver("black-hole", false, rs.quit, func(string, int) int { return 0 })
	rs.all = []*demoReceiver{good, flaky, gone, hole}
	mux := http.NewServeMux()
	for _, r := range rs.all {
		mux.Handle("/"+r.name, r)
	}
	rs.srv = &http.Server{Handler: mux, ReadHeaderTimeout: 10 * time.Second}
	go func() { _ = rs.srv.Serve(l) }() // ends with close
	return rs, nil
}

// flakyScript fails the first few events twice each, then recovers.
func flakyScript() script {
	fails := map[string]bool{} // guarded by the receiver's lock
	return func(event string, nth int) int {
		if !fails[event] && nth == 1 && len(fails) < flakyEvents {
			fails[event] = true
		}
		if fails[event] && nth <= flakyTimes {
			return []int{http.StatusInternalServerError, http.StatusServiceUnavailable}[nth-1]
		}
		return http.StatusOK
	}
}

func (rs *receivers) url(r *demoReceiver) string { return "http://" + rs.addr + "/" + r.name }

func (rs *receivers) close() error {
	close(rs.quit)
	return rs.srv.Close()
}
