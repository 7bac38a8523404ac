package conformance

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/surehook/surehook/receiver"
	"github.com/surehook/surehook/signing"
)

const (
	current  = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
	previous = "whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD"
	retired  = "whsec_AAECAwQFBgcICQoLDA0ODxAREhMUFRYX"
)

// counter counts effects.
type counter struct {
	mu sync.Mutex
	n  int
}

func (c *counter) add() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.n++
}

func (c *counter) count(context.Context) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.n, nil
}

func run(t *testing.T, h http.Handler, o Options) *Report {
	t.Helper()
	srv := httptest.NewServer(h)
	defer srv.Close()
	o.URL = srv.URL + "/hooks"
	r, err := Run(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func failed(r *Report) []string {
	var names []string
	for _, c := range r.Results {
		if !c.Pass && c.Skipped == "" {
			names = append(names, c.Name)
		}
	}
	return names
}

// The middleware that we give to people passes all of it, under every scheme.
func TestTheMiddlewarePasses(t *testing.T) {
	private, err := signing.NewPrivateKey(bytes.NewReader(make([]byte, 32)))
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		scheme  receiver.Scheme
		profile string
		secrets []string
		retired string
		cases   int
		skipped int
	}{
		"standard":    {receiver.Standard(current, previous), "standard", []string{current, previous}, retired, 53, 0},
		"v1a":         {receiver.Standard(private.Public().Encode()), "pylota", []string{private.Encode()}, retired, 53, 3},
		"purple-wolf": {receiver.PurpleWolf("new", "old"), "purple-wolf", []string{"new", "old"}, "ancient", 47, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var effects counter
			rc, err := receiver.New(c.scheme, receiver.NewMemory(1000, time.Hour))
			if err != nil {
				t.Fatal(err)
			}
			r := run(t, rc.Handle(func(context.Context, receiver.Message) error { effects.add(); return nil }),
				Options{Profile: c.profile, Secrets: c.secrets, Retired: c.retired, Effects: effects.count})
			for _, f := range r.Results {
				if !f.Pass && f.Skipped == "" {
					t.Errorf("%+v", f)
				}
			}
			if r.Passed+r.Skipped < c.cases || r.Skipped != c.skipped || r.Failed != 0 || !r.Effects {
				t.Errorf("%d passed, %d skipped, %d failed", r.Passed, r.Skipped, r.Failed)
			}
		})
	}
}

// faulty is a receiver by Standard Webhooks in which each part can be wrong.
type faulty struct {
	effects  counter
	mu       sync.Mutex
	seen     map[string]bool
	raw      func(r *http.Request) ([]byte, error)
	skew     func(d time.Duration) bool
	stamp    func(string) (int64, error)
	split    func(header string) []string
	equal    func(a, b string) bool
	key      []byte
	more     [][]byte // keys that are taken too
	signed   func(id, ts string, body []byte) string
	twice    bool
	marks    bool // an id is marked as seen before the check
	status   int
	required []string
	lag      time.Duration                // an effect comes so long after its answer
	keyOf    func(r *http.Request) []byte // what the request says of the key; nil: nothing
}

// keyOf decodes a secret; what isn't one is an empty key that nobody signs with.
func keyOf(secret string) []byte {
	key, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(secret, "whsec_"))
	if err != nil || len(key) == 0 {
		return []byte("none")
	}
	return key
}

func correct() *faulty {
	return &faulty{seen: map[string]bool{}, key: keyOf(current), status: 401,
		raw: func(r *http.Request) ([]byte, error) {
			b, err := io.ReadAll(io.LimitReader(r.Body, 1<<20+1))
			if len(b) > 1<<20 {
				err = errors.New("too large")
			}
			return b, err
		},
		skew:     func(d time.Duration) bool { return d.Abs() <= 5*time.Minute },
		stamp:    func(s string) (int64, error) { return strconv.ParseInt(s, 10, 64) },
		split:    strings.Fields,
		equal:    func(a, b string) bool { return hmac.Equal([]byte(a), []byte(b)) },
		signed:   func(id, ts string, body []byte) string { return id + "." + ts + "." + string(body) },
		required: []string{"Webhook-Id", "Webhook-Timestamp", "Webhook-Signature"},
	}
}

func (f *faulty) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := f.raw(r)
	if err != nil {
		w.Header().Set("Connection", "close")
		w.WriteHeader(http.StatusRequestEntityTooLarge)
		return
	}
	id, ts := r.Header.Get("webhook-id"), r.Header.Get("webhook-timestamp")
	for _, name := range f.required {
		if r.Header.Get(name) == "" {
			w.WriteHeader(http.StatusBadRequest)
			return
		}
	}
	isNew := f.marks && f.fresh(id)
	n, err := f.stamp(ts)
	if err != nil || !f.skew(time.Since(time.Unix(n, 0))) || strings.Contains(id, ".") {
		w.WriteHeader(f.status)
		return
	}
	keys := append([][]byte{f.key}, f.more...)
	if f.keyOf != nil {
		keys = append(keys, f.keyOf(r))
	}
	right := func(key []byte) bool {
		mac := hmac.New(sha256.New, key)
		mac.Write([]byte(f.signed(id, ts, body)))
		want := "v1," + base64.StdEncoding.EncodeToString(mac.Sum(nil))
		return slices.ContainsFunc(f.split(r.Header.Get("webhook-signature")), func(s string) bool { return f.equal(s, want) })
	}
	if !slices.ContainsFunc(keys, right) {
		w.WriteHeader(f.status)
		return
	}
	switch {
	case f.lag > 0: // it answers first, and looks what it has had when it gets to it
		known := f.knows(id)
		time.AfterFunc(f.lag, func() {
			if f.fresh(id) || !known {
				f.effects.add()
			}
		})
	case f.twice || isNew || !f.marks && f.fresh(id):
		f.effects.add()
	}
}

func (f *faulty) knows(id string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.seen[id]
}

func (f *faulty) fresh(id string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.seen[id] {
		return false
	}
	f.seen[id] = true
	return true
}

// fault is a receiver that is spoilt, and some of the cases that must find it.
type fault struct {
	spoil func(f *faulty)
	want  []string
}

func faults() map[string]fault {
	parsed := func(b []byte) string { // as JSON.stringify(JSON.parse(body)) does
		var out bytes.Buffer
		if json.Compact(&out, b) != nil {
			return string(b)
		}
		return out.String()
	}
	return map[string]fault{
		"nothing": {func(*faulty) {}, nil},
		"JSON is parsed": {func(f *faulty) {
			f.signed = func(id, ts string, b []byte) string { return id + "." + ts + "." + parsed(b) }
		}, []string{"raw body", "trailing newline", "appended", "re-serialised", "tampered in chunks"}},
		"text is decoded": {func(f *faulty) {
			f.signed = func(id, ts string, b []byte) string {
				return id + "." + ts + "." + strings.ToValidUTF8(string(b), "\uFFFD")
			}
		}, []string{"lossy", "binary"}},
		"ASCII only": {func(f *faulty) {
			f.signed = func(id, ts string, b []byte) string {
				return id + "." + ts + "." + strings.Map(func(r rune) rune {
					if r > 127 {
						return '?'
					}
					return r
				}, string(b))
			}
		}, []string{"non-ascii", "large"}},
		"any age":                   {func(f *faulty) { f.skew = func(time.Duration) bool { return true } }, []string{"stale", "very stale", "future", "milliseconds", "negative time"}},
		"only the old":              {func(f *faulty) { f.skew = func(d time.Duration) bool { return d <= 5*time.Minute } }, []string{"future", "milliseconds"}},
		"a minute":                  {func(f *faulty) { f.skew = func(d time.Duration) bool { return d.Abs() <= time.Minute } }, []string{"four minutes old", "four minutes ahead"}},
		"one signature":             {func(f *faulty) { f.split = func(s string) []string { return strings.Fields(s)[:1] } }, []string{"multi-signature", "unknown version", "v1a beside"}},
		"the whole header":          {func(f *faulty) { f.split = func(s string) []string { return []string{s} } }, []string{"multi-signature", "unknown version", "v1a beside"}},
		"a prefix is enough":        {func(f *faulty) { f.equal = func(a, b string) bool { return strings.HasPrefix(b, a) } }, []string{"cut signature", "no comma"}},
		"no dedupe":                 {func(f *faulty) { f.twice = true }, []string{"replayed", "retried", "five at once"}},
		"no check":                  {func(f *faulty) { f.equal = func(string, string) bool { return true } }, []string{"tampered", "other secret", "empty secret", "sixty signatures"}},
		"unset secret":              {func(f *faulty) { f.key = nil }, []string{"plain", "empty secret"}},
		"no id needed":              {func(f *faulty) { f.signed = func(_, ts string, b []byte) string { return ts + "." + string(b) } }, []string{"plain"}},
		"seen before it is checked": {func(f *faulty) { f.marks = true }, []string{"refused, then right"}},
		"crashes":                   {func(f *faulty) { f.status = 500 }, []string{"tampered", "stale", "other secret"}},
		"stops senders":             {func(f *faulty) { f.status = 410 }, []string{"tampered", "stale"}},
		"reads it all":              {func(f *faulty) { f.raw = func(r *http.Request) ([]byte, error) { return io.ReadAll(r.Body) } }, []string{"huge", "huge in chunks"}},
		"a low bound": {func(f *faulty) {
			f.raw = func(r *http.Request) ([]byte, error) {
				b, err := io.ReadAll(io.LimitReader(r.Body, 100<<10))
				return b, err
			}
		}, []string{"large"}},
		"trims": {func(f *faulty) {
			raw := f.raw
			f.raw = func(r *http.Request) ([]byte, error) { b, err := raw(r); return bytes.TrimSpace(b), err }
		}, []string{"trailing newline", "appended"}},
		"no chunks": {func(f *faulty) {
			raw := f.raw
			f.raw = func(r *http.Request) ([]byte, error) {
				if r.ContentLength < 0 {
					return nil, nil
				}
				return raw(r)
			}
		}, []string{"chunked"}},
	}
}

// keyFaults are about which key and which signature is taken, and when.
func keyFaults() map[string]fault {
	return map[string]fault{
		"a retired secret": {func(f *faulty) { f.more = [][]byte{keyOf(retired)} }, []string{"retired secret"}},
		"any case":         {func(f *faulty) { f.equal = strings.EqualFold }, []string{"swapped case"}},
		"any version": {func(f *faulty) {
			f.equal = func(a, b string) bool {
				_, a, _ = strings.Cut(a, ",")
				_, b, _ = strings.Cut(b, ",")
				return a == b
			}
		}, []string{"only an unknown version"}},
		"anywhere in the header": {func(f *faulty) {
			f.split = func(s string) []string { return []string{s} }
			f.equal = func(a, b string) bool { return strings.Contains(a, b[3:]) }
		}, []string{"only an unknown version"}},
		"the key by header": {func(f *faulty) {
			f.keyOf = func(r *http.Request) []byte { return keyOf(r.Header.Get("webhook-key-id")) }
		}, []string{"secret of the request"}},
		"the key by URL":      {func(f *faulty) { f.keyOf = func(r *http.Request) []byte { return keyOf(r.URL.Query().Get("secret")) } }, []string{"secret of the request"}},
		"answers, then looks": {func(f *faulty) { f.lag = 100 * time.Millisecond }, []string{"replayed", "retried", "five at once"}},
	}
}

// Each fault is found, by the cases that are about it.
func TestFaultsAreFound(t *testing.T) {
	all := faults()
	maps.Copy(all, keyFaults())
	for name, c := range all {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := correct()
			c.spoil(f)
			r := run(t, f, Options{Profile: "standard", Secrets: []string{current}, Retired: retired, Effects: f.effects.count})
			if (r.Late > 0) != (f.lag > 0) {
				t.Errorf("%d effects were late", r.Late)
			}
			got := failed(r)
			for _, want := range c.want {
				if !slices.Contains(got, want) {
					t.Errorf("%q wasn't found, only %q", want, got)
				}
			}
			if c.want == nil && len(got) != 0 {
				t.Errorf("%+v", r.Results)
			}
			for _, x := range r.Results {
				if (x.Risk == "") == (!x.Pass && x.Skipped == "") {
					t.Errorf("%+v: a failure has a risk, nothing else has", x)
				}
			}
		})
	}
}

// Without a count of effects, duplicates are judged by their answers.
func TestWithoutEffects(t *testing.T) {
	f := correct()
	f.twice = true
	if r := run(t, f, Options{Profile: "sentinel", Secrets: []string{current}}); r.Failed != 0 || r.Effects || r.Skipped != 3 {
		t.Errorf("%d failed: %v", r.Failed, failed(r))
	}
}

func TestRunRefuses(t *testing.T) {
	down := httptest.NewServer(nil)
	down.Close()
	for name, o := range map[string]Options{
		"no URL":       {URL: "hooks", Profile: "standard", Secrets: []string{current}},
		"profile":      {URL: "http://127.0.0.1:1", Profile: "pigeon", Secrets: []string{current}},
		"no secret":    {URL: "http://127.0.0.1:1", Profile: "standard"},
		"bad secret":   {URL: "http://127.0.0.1:1", Profile: "standard", Secrets: []string{"whsec_AAAA"}},
		"public key":   {URL: "http://127.0.0.1:1", Profile: "standard", Secrets: []string{"whpk_AAAA"}},
		"retired":      {URL: "http://127.0.0.1:1", Profile: "standard", Secrets: []string{current}, Retired: current},
		"bad retired":  {URL: "http://127.0.0.1:1", Profile: "standard", Secrets: []string{current}, Retired: "whsec_AAAA"},
		"nobody there": {URL: down.URL + "/?token=planted", Profile: "standard", Secrets: []string{current}},
		"no count":     {URL: down.URL, Profile: "standard", Secrets: []string{current}, Effects: func(context.Context) (int, error) { return 0, errors.New("x") }},
	} {
		if _, err := Run(t.Context(), o); err == nil || strings.Contains(err.Error(), "planted") || strings.Contains(err.Error(), "AAAA") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// Names are what --json's readers know cases by.
func TestCasesHaveNamesAndRisks(t *testing.T) {
	for name, cases := range map[string][]testCase{"standard": standardCases(), "purple-wolf": purpleWolfCases()} {
		seen := map[string]bool{}
		for _, c := range cases {
			if c.name == "" || c.what == "" || c.risk == "" || c.want == "" || seen[c.name] {
				t.Errorf("%s: %+v", name, fmt.Sprint(c.name, c.what, c.risk, c.want))
			}
			seen[c.name] = true
		}
		if len(cases) < 30 {
			t.Errorf("%s has %d cases", name, len(cases))
		}
	}
}
