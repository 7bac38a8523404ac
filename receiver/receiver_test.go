package receiver_test

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/surehook/surehook/receiver"
	"github.com/surehook/surehook/signing"
)

const (
	secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
	older  = "whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD"
	rawKey = "schlüssel" // not ASCII, as A-10 wants it
)

var (
	at   = time.Unix(1674087231, 0)
	text = "{ \"id\":\"evt_1\",\"event_id\":\"Ev1\", \"name\":\"Łódź 🚀\\u00e9\" }\n"
)

func mac(key, head, body string) []byte {
	m := hmac.New(sha256.New, []byte(key))
	m.Write([]byte(head + body))
	return m.Sum(nil)
}

// standard signs by the specification's text, not by package signing.
func standard(key, id string, when time.Time, body string) http.Header {
	raw, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(key, "whsec_"))
	if err != nil {
		panic(err)
	}
	ts := strconv.FormatInt(when.Unix(), 10)
	return http.Header{"Webhook-Id": {id}, "Webhook-Timestamp": {ts},
		"Webhook-Signature": {"v1," + base64.StdEncoding.EncodeToString(mac(string(raw), id+"."+ts+".", body))}}
}

func stamped(name, prefix, head, body string) http.Header {
	return http.Header{http.CanonicalHeaderKey(name): {prefix + hex.EncodeToString(mac(rawKey, head, body))}}
}

func with(h http.Header, pairs ...string) http.Header {
	h = h.Clone()
	for i := 0; i < len(pairs); i += 2 {
		h.Set(pairs[i], pairs[i+1])
	}
	return h
}

func ask(h http.Handler, header http.Header, body string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(http.MethodPost, "/hooks?token=planted", strings.NewReader(body))
	r.Header = header
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

func create(t *testing.T, s receiver.Scheme, d receiver.Dedupe, o ...receiver.Option) *receiver.Receiver {
	t.Helper()
	rc, err := receiver.New(s, d, append([]receiver.Option{receiver.WithClock(func() time.Time { return at })}, o...)...)
	if err != nil {
		t.Fatal(err)
	}
	return rc
}

func memory() *receiver.Memory { return receiver.NewMemory(10, time.Hour) }

// Every scheme: what is right is taken once, what is wrong isn't.
func TestSchemes(t *testing.T) {
	private, err := signing.NewPrivateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	asymmetric, err := signing.NewSigner(private)
	if err != nil {
		t.Fatal(err)
	}
	v1a := with(standard(secret, "e1", at, text), "Webhook-Signature", asymmetric.Sign("e1", at.Unix(), []byte(text)))
	const ts = "1674087231"
	wolf := `{"schema":"purple-wolf.audit/v1","event_id":"01HX","attempt":3,"event":{"new":"Łódź"},"more":1}`
	for _, c := range []struct {
		name   string
		scheme receiver.Scheme
		header http.Header
		body   string
		want   receiver.Message
		sigs   string // the header that holds the signature
	}{
		{"standard", receiver.Standard(secret), with(standard(secret, "e1", at, text), "Surehook-Attempt", "2"), text, receiver.Message{ID: "e1", Time: at, Attempt: 2}, "Webhook-Signature"},
		{"rotation", receiver.Standard(secret, older), standard(older, "e1", at, text), text, receiver.Message{ID: "e1", Time: at}, "Webhook-Signature"},
		{"v1a", receiver.Standard(private.Public().Encode()), v1a, text, receiver.Message{ID: "e1", Time: at}, "Webhook-Signature"},
		{"purple-wolf", receiver.PurpleWolf("other", rawKey), with(stamped(signing.PurpleWolfSignature, "sha256=", ts+".", wolf), signing.PurpleWolfTimestamp, ts, signing.PurpleWolfEventID, "01HX"),
			wolf, receiver.Message{ID: "01HX", Time: at, Attempt: 3}, signing.PurpleWolfSignature},
		{"github", receiver.GitHub(rawKey), with(stamped(signing.GitHubSignature, "sha256=", "", text), "X-GitHub-Delivery", "g1"), text, receiver.Message{ID: "g1"}, signing.GitHubSignature},
		{"stripe", receiver.Stripe(rawKey), stamped("Stripe-Signature", "t="+ts+",v1=", ts+".", text), text, receiver.Message{ID: "evt_1", Time: at}, "Stripe-Signature"},
		{"shopify", receiver.Shopify(rawKey), http.Header{"X-Shopify-Hmac-Sha256": {base64.StdEncoding.EncodeToString(mac(rawKey, "", text))}, "X-Shopify-Event-Id": {"s1"}, "X-Shopify-Topic": {"orders/paid"}},
			text, receiver.Message{ID: "orders/paid s1"}, "X-Shopify-Hmac-Sha256"},
		{"slack", receiver.Slack(rawKey), with(stamped(signing.SlackSignature, "v0=", "v0:"+ts+":", text), signing.SlackTimestamp, ts, "X-Slack-Retry-Num", "1"), text, receiver.Message{ID: "Ev1", Time: at, Attempt: 2}, signing.SlackSignature},
	} {
		t.Run(c.name, func(t *testing.T) {
			var got []receiver.Message
			h := create(t, c.scheme, memory()).Handle(func(_ context.Context, m receiver.Message) error {
				got = append(got, m)
				return nil
			})
			refused := func(why string, status int, header http.Header, body string) {
				t.Helper()
				if w := ask(h, header, body); w.Code != status || len(got) != 0 {
					t.Errorf("%s: %d, %d calls", why, w.Code, len(got))
				}
			}
			refused("tampered", 401, c.header, strings.Replace(c.body, "Łódź", "Lodz", 1))
			refused("no signature", 400, with(c.header, c.sigs, ""), c.body)
			twice := c.header.Clone()
			twice[http.CanonicalHeaderKey(c.sigs)] = append(twice.Values(c.sigs), "x")
			refused("two signature headers", 400, twice, c.body)
			for range 2 {
				if w := ask(h, c.header, c.body); w.Code != 200 {
					t.Fatalf("%d: %s", w.Code, w.Body)
				}
			}
			if len(got) != 1 {
				t.Fatalf("called %d times", len(got))
			}
			m := got[0]
			if string(m.Body) != c.body || m.ID != c.want.ID || !m.Time.Equal(c.want.Time) || m.Attempt != c.want.Attempt {
				t.Errorf("%+v", m)
			}
		})
	}
}

func TestPurpleWolfsContract(t *testing.T) {
	const ts = "1674087231"
	for name, c := range map[string]struct {
		header, body string
		status       int
	}{
		"another major":   {"01HX", `{"schema":"purple-wolf.audit/v2","event_id":"01HX"}`, 422},
		"another id":      {"01HY", `{"schema":"purple-wolf.audit/v1","event_id":"01HX"}`, 400},
		"no id":           {"", `{"schema":"purple-wolf.audit/v1","event_id":"01HX"}`, 400},
		"no id in body":   {"01HX", `{"schema":"purple-wolf.audit/v1"}`, 400},
		"not JSON":        {"01HX", `schema`, 422},
		"unknown members": {"01HX", `{"schema":"purple-wolf.audit/v1","event_id":"01HX","z":{}}`, 200},
	} {
		h := create(t, receiver.PurpleWolf(rawKey), memory()).Handle(func(context.Context, receiver.Message) error { return nil })
		header := with(stamped(signing.PurpleWolfSignature, "sha256=", ts+".", c.body), signing.PurpleWolfTimestamp, ts, signing.PurpleWolfEventID, c.header)
		if w := ask(h, header, c.body); w.Code != c.status {
			t.Errorf("%s: %d %s", name, w.Code, w.Body)
		}
	}
}

// A request without an id, such as Slack's challenge, is handled each time.
func TestWithoutAnIDNothingIsADuplicate(t *testing.T) {
	const ts, form = "1674087231", "command=%2Fdeploy"
	calls := 0
	h := create(t, receiver.Slack(rawKey), memory()).Handle(func(context.Context, receiver.Message) error { calls++; return nil })
	for range 2 {
		ask(h, with(stamped(signing.SlackSignature, "v0=", "v0:"+ts+":", form), signing.SlackTimestamp, ts), form)
	}
	if calls != 2 {
		t.Errorf("%d calls", calls)
	}
}

func TestNewRefuses(t *testing.T) {
	for name, c := range map[string]struct {
		scheme receiver.Scheme
		dedupe receiver.Dedupe
		option receiver.Option
		want   error
	}{
		"no scheme":         {receiver.Scheme{}, memory(), nil, nil},
		"no secret":         {receiver.Standard(), memory(), nil, signing.ErrNoKey},
		"an empty secret":   {receiver.Standard(secret, ""), memory(), nil, signing.ErrPrefix},
		"a short secret":    {receiver.Standard("whsec_AAAA"), memory(), nil, signing.ErrLength},
		"an empty key":      {receiver.GitHub(""), memory(), nil, signing.ErrLength},
		"too many":          {receiver.Stripe("a", "b", "c", "d", "e"), memory(), nil, signing.ErrTooManyKeys},
		"no store":          {receiver.Standard(secret), nil, nil, nil},
		"tolerance 0":       {receiver.Standard(secret), memory(), receiver.WithTolerance(0), signing.ErrTolerance},
		"no body":           {receiver.Standard(secret), memory(), receiver.WithMaxBody(0), nil},
		"forgetting":        {receiver.Standard(secret), receiver.NewMemory(1, time.Minute), nil, nil},
		"memory for none":   {receiver.Standard(secret), receiver.NewMemory(0, time.Hour), nil, nil},
		"a table; DROP all": {receiver.Standard(secret), receiver.NewSQL(nil, "x"), nil, nil},
	} {
		var o []receiver.Option
		if c.option != nil {
			o = append(o, c.option)
		}
		_, err := receiver.New(c.scheme, c.dedupe, o...)
		if err == nil || c.want != nil && !errors.Is(err, c.want) || strings.Contains(err.Error(), "MfKQ") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// Errors are typed, are answered as they should, and tell nothing secret.
func TestAnswersAndLogs(t *testing.T) {
	var logs bytes.Buffer
	boom := errors.New("disk on fire")
	var next error
	rc := create(t, receiver.Standard(secret), memory(), receiver.WithMaxBody(100), receiver.WithLogger(slog.New(slog.NewTextHandler(&logs, nil))))
	h := rc.Handle(func(context.Context, receiver.Message) error { return next })
	for name, c := range map[string]struct {
		header http.Header
		body   string
		next   error
		status int
		words  string
	}{
		"too large":        {standard(secret, "e1", at, strings.Repeat("x", 101)), strings.Repeat("x", 101), nil, 413, "larger"},
		"as large as can":  {standard(secret, "e2", at, strings.Repeat("x", 100)), strings.Repeat("x", 100), nil, 200, ""},
		"too old":          {standard(secret, "e1", at.Add(-301*time.Second), text), text, nil, 401, "too old"},
		"old":              {standard(secret, "e3", at.Add(-300*time.Second), text), text, nil, 200, ""},
		"too new":          {standard(secret, "e1", at.Add(301*time.Second), text), text, nil, 401, "future"},
		"no number":        {with(standard(secret, "e1", at, text), "Webhook-Timestamp", "soon"), text, nil, 400, "timestamp"},
		"a dot":            {standard(secret, "e.1", at, text), text, nil, 400, "dot"},
		"only v2":          {with(standard(secret, "e1", at, text), "Webhook-Signature", "v2,AAAA"), text, nil, 401, "version"},
		"handler":          {standard(secret, "e1", at, text), text, boom, 500, "handler failed"},
		"handler's status": {standard(secret, "e1", at, text), text, receiver.Answer(410, boom), 410, "handler failed"},
		"no failure":       {standard(secret, "e1", at, text), text, receiver.Answer(204, boom), 500, "handler failed"},
	} {
		next = c.next
		w := ask(h, c.header, c.body)
		if w.Code != c.status || !strings.Contains(w.Body.String(), c.words) || strings.Contains(w.Body.String(), "fire") {
			t.Errorf("%s: %d %s", name, w.Code, w.Body)
		}
	}
	get := httptest.NewRecorder()
	h.ServeHTTP(get, httptest.NewRequest(http.MethodGet, "/", nil))
	if get.Code != 405 || get.Header().Get("Allow") != "POST" {
		t.Errorf("%d %v", get.Code, get.Header())
	}
	for _, planted := range []string{"MfKQ", "Łódź", "planted", "xxxx"} {
		if strings.Contains(logs.String(), planted) {
			t.Errorf("the log holds %s", planted)
		}
	}
	for _, told := range []string{"disk on fire", "id=e1", "status=410", "too old"} {
		if !strings.Contains(logs.String(), told) {
			t.Errorf("the log doesn't hold %q", told)
		}
	}
	r := httptest.NewRequest(http.MethodPost, "/", strings.NewReader(text))
	r.Header = standard(older, "e1", at, text)
	_, err := rc.Verify(httptest.NewRecorder(), r)
	if e, ok := errors.AsType[*receiver.Error](err); !ok || e.Status != 401 || !errors.Is(err, signing.ErrNoMatch) {
		t.Errorf("%v", err)
	}
}

// A body that breaks off is no body.
func TestABodyThatBreaksOff(t *testing.T) {
	h := create(t, receiver.Standard(secret), memory()).Handle(func(context.Context, receiver.Message) error {
		t.Error("called")
		return nil
	})
	r := httptest.NewRequest(http.MethodPost, "/", io.MultiReader(strings.NewReader(text), broken{}))
	r.Header = standard(secret, "e1", at, text)
	w := httptest.NewRecorder()
	if h.ServeHTTP(w, r); w.Code != 400 {
		t.Errorf("%d", w.Code)
	}
}

type broken struct{}

func (broken) Read([]byte) (int, error) { return 0, io.ErrUnexpectedEOF }

// An event whose handler failed comes again, and is handled then.
func TestAFailureIsNoDuplicate(t *testing.T) {
	calls := 0
	rc := create(t, receiver.Standard(secret), memory())
	h := rc.Handle(func(context.Context, receiver.Message) error {
		if calls++; calls == 1 {
			return errors.New("not now")
		}
		return nil
	})
	for i, want := range []int{500, 200, 200} {
		if w := ask(h, standard(secret, "e1", at.Add(time.Duration(i)*time.Second), text), text); w.Code != want {
			t.Errorf("%d: %d", i, w.Code)
		}
	}
	if calls != 2 {
		t.Errorf("%d calls", calls)
	}
}

func TestMiddleware(t *testing.T) {
	statuses := []int{503, 204}
	next := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		m, ok := receiver.FromContext(r.Context())
		if err != nil || string(body) != text || !ok || m.ID != "e1" || r.ContentLength != int64(len(text)) {
			t.Errorf("%q %v %+v", body, err, m)
		}
		w.Header().Set("X-Mine", "yes")
		w.WriteHeader(statuses[0])
		statuses = statuses[1:]
	})
	h := create(t, receiver.Standard(secret), memory()).Middleware(next)
	if w := ask(h, standard(older, "e1", at, text), text); w.Code != 401 {
		t.Errorf("%d", w.Code)
	}
	for i, want := range []int{503, 204, 200} {
		w := ask(h, standard(secret, "e1", at, text), text)
		if w.Code != want || (w.Header().Get("X-Mine") == "yes") != (i < 2) {
			t.Errorf("%d: %d %v", i, w.Code, w.Header())
		}
	}
}
