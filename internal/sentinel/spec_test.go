package sentinel

import (
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/surehook/surehook"
	"github.com/surehook/surehook/engine"
)

// refusal is the code and the field of an error; "" and "": there is none.
func refusal(err error) (code, path string) {
	if err == nil {
		return "", ""
	}
	e, ok := err.(*surehook.Error) //nolint:errorlint // it is one of this package's own
	if !ok || len(e.Fields) != 1 {
		return err.Error(), ""
	}
	return string(e.Code), e.Fields[0].Path
}

func TestShort(t *testing.T) {
	for _, c := range []struct {
		in         Short
		code, path string
	}{
		{Short{}, "missing_subject", "subject"},
		{Short{Subject: "a", PRURL: "https://github.com/o/r/pull/7", SessionID: "s"}, "ambiguous_subject", "prUrl"},
		{Short{PRURL: "https://github.com/o/r", SessionID: "s"}, "invalid_pr_url", "prUrl"},
		{Short{Subject: "a"}, "no_caller_identity", "sessionId"},
		{Short{Subject: "a", SessionID: "s", Until: "count"}, "invalid_request", "until"},
		{Short{Subject: "a", SessionID: "s", Until: "never"}, "", ""},
	} {
		_, err := c.in.Spec()
		if code, path := refusal(err); code != c.code || path != c.path {
			t.Errorf("%+v: %s at %q", c.in, code, path)
		}
	}
	got, err := Short{PRURL: "https://github.com/o/r/pull/7", SessionID: "s", Types: []string{"x"}, Urgency: "steer", Provider: "p", Group: "g", Label: "l"}.Spec()
	want := Spec{Match: []MatchClause{{Subject: "github:o/r#7", Types: []string{"x"}}}, Until: Until{Kind: "subject_terminal"}, Target: Target{Kind: "session", SessionID: "s", Urgency: "steer"},
		Provider: "p", Group: "g", Label: "l"}
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, %v", got, err)
	}
}

func TestPullRequest(t *testing.T) {
	for raw, want := range map[string]string{
		"https://github.com/octocat/Hello-World/pull/1347":             "github:octocat/Hello-World#1347",
		"http://www.GitHub.com/o/r.x_y/pull/7/":                        "github:o/r.x_y#7",
		"https://github.com/o/r/pull/7/files?w=1#discussion_r1":        "github:o/r#7",
		"https://github.com/o/r/pull/07":                               "",
		"https://github.com/o/r/pull/0":                                "",
		"https://github.com/o/r/pull/-7":                               "",
		"https://github.com/o/r/pull/99999999999":                      "",
		"https://github.com/o/r/pull":                                  "",
		"https://github.com/o/r/issues/7":                              "",
		"https://github.com/o/../pull/7":                               "",
		"https://github.com/o%20x/r/pull/7":                            "",
		"https://github.com.evil.example/o/r/pull/7":                   "",
		"https://u:p@github.com/o/r/pull/7":                            "",
		"ftp://github.com/o/r/pull/7":                                  "",
		"github.com/o/r/pull/7":                                        "",
		"https://github.com/" + strings.Repeat("o", 101) + "/r/pull/7": "",
		"https://github.com/o/r/pull/7?" + strings.Repeat("x", 512):    "",
		"": "",
	} {
		if got, err := PullRequest(raw); got != want || (err == nil) != (want != "") {
			t.Errorf("%q: %q, %v", raw, got, err)
		}
	}
}

func TestUntil(t *testing.T) {
	for _, c := range []struct {
		in   Until
		want surehook.Until
		path string
	}{
		{Until{Kind: "subject_terminal"}, surehook.Until{Kind: surehook.UntilTerminal}, ""},
		{Until{Kind: "never"}, surehook.Until{Kind: surehook.UntilNever}, ""},
		{Until{Kind: "at", MS: 1500}, surehook.Until{Kind: surehook.UntilAt, At: time.UnixMilli(1500).UTC()}, ""},
		{Until{Kind: "count", N: 3}, surehook.Until{Kind: surehook.UntilCount, Count: 3}, ""},
		{Until{Kind: "at"}, surehook.Until{}, "until.ms"},
		{Until{Kind: "at", MS: maxMillis + 1}, surehook.Until{}, "until.ms"},
		{Until{Kind: "at", MS: 1, N: 1}, surehook.Until{}, "until.n"},
		{Until{Kind: "count"}, surehook.Until{}, "until.n"},
		{Until{Kind: "count", N: maxCount + 1}, surehook.Until{}, "until.n"},
		{Until{Kind: "count", N: 1, MS: 1}, surehook.Until{}, "until.ms"},
		{Until{Kind: "never", N: 1}, surehook.Until{}, "until.n"},
		{Until{Kind: "soon"}, surehook.Until{}, "until.kind"},
		{Until{}, surehook.Until{}, "until.kind"},
	} {
		got, err := c.in.domain()
		if _, path := refusal(err); path != c.path || path == "" && got != c.want {
			t.Errorf("%+v: %+v, %v", c.in, got, err)
		}
	}
}

func TestTarget(t *testing.T) {
	for _, c := range []struct {
		in         Target
		code, path string
	}{
		{Target{Kind: "webhook", URL: "https://example.com/", Secret: "whsec_x"}, "", ""},
		{Target{Kind: "webhook", Secret: "whsec_x"}, "invalid_request", "target.url"},
		{Target{Kind: "webhook", URL: "https://example.com/"}, "invalid_request", "target.secret"},
		{Target{Kind: "webhook", URL: "u", Secret: "s", Urgency: "fyi"}, "invalid_request", "target.urgency"},
		{Target{Kind: "webhook", URL: "u", Secret: "s", RoutineID: "r"}, "invalid_request", "target.routineId"},
		{Target{Kind: "session", SessionID: "s", Urgency: "interrupt"}, "", ""},
		{Target{Kind: "session"}, "no_caller_identity", "target.sessionId"},
		{Target{Kind: "session", SessionID: "s", Urgency: "now"}, "invalid_request", "target.urgency"},
		{Target{Kind: "session", SessionID: "s", URL: "u"}, "invalid_request", "target.url"},
		{Target{Kind: "session", SessionID: "s", Secret: "x"}, "invalid_request", "target.secret"},
		{Target{Kind: "routine", RoutineID: "r"}, "not_implemented", "target.kind"},
		{Target{Kind: "mail"}, "invalid_request", "target.kind"},
		{Target{}, "invalid_request", "target.kind"},
	} {
		if code, path := refusal(c.in.into(&engine.Sentinel{})); code != c.code || path != c.path {
			t.Errorf("%+v: %s at %q", c.in, code, path)
		}
	}
	var in engine.Sentinel
	if err := (Target{Kind: "session", SessionID: "s"}).into(&in); err != nil || in.Urgency != surehook.UrgencyNextTurn || in.Session != "s" {
		t.Errorf("%+v, %v", in, err)
	}
}

// A clause without types has the provider's for its subject.
func TestClauses(t *testing.T) {
	got, err := clauses([]MatchClause{{Subject: "GitHub:o/r#7"}, {Subject: "build:1"}, {Subject: "github:o", Types: []string{"x.*"}}}, Pushed{})
	if err != nil || len(got[0].Types) != 6 || got[1].Types != nil || got[2].Types[0] != "x.*" {
		t.Errorf("%+v, %v", got, err)
	}
	for path, match := range map[string][]MatchClause{"match": nil, "match[1].subject": {{Subject: "a"}, {}}} {
		_, err := clauses(match, Pushed{})
		if code, at := refusal(err); code != "missing_subject" || at != path {
			t.Errorf("%v", err)
		}
	}
}

// Listings say how the last delivery went, in the specs' words; no view has a secret, and
// a URL's query is for those alone who may manage webhooks.
func TestViews(t *testing.T) {
	now := time.UnixMilli(5000)
	for _, c := range []struct {
		last surehook.Attempt
		want DeliveryStatus
	}{
		{surehook.Attempt{Status: surehook.AttemptSucceeded, Number: 2}, DeliveryStatus{LastStatus: "delivered", Attempts: 2}},
		{surehook.Attempt{Status: surehook.AttemptFailed, Number: 1, Code: surehook.Status5xx, HTTPStatus: 503}, DeliveryStatus{LastStatus: "pending", Attempts: 1, LastError: "status_5xx: HTTP 503"}},
		{surehook.Attempt{Status: surehook.AttemptFailed, Number: 1, Code: surehook.Connect, Error: "connection refused"}, DeliveryStatus{LastStatus: "pending", Attempts: 1, LastError: "connection refused"}},
		{surehook.Attempt{Status: surehook.AttemptDead, Number: 5, Code: surehook.Status4xx, HTTPStatus: 404}, DeliveryStatus{LastStatus: "dead", Attempts: 5, LastError: "status_4xx: HTTP 404"}},
		{surehook.Attempt{Status: surehook.AttemptDead, Number: 1, Code: surehook.Status410, HTTPStatus: 410}, DeliveryStatus{LastStatus: "dead", Attempts: 1, LastError: "delivered_rejected: status_410: HTTP 410"}},
		{surehook.Attempt{Status: surehook.AttemptDead, Number: 1, Code: surehook.Status4xx, HTTPStatus: 413}, DeliveryStatus{LastStatus: "dead", Attempts: 1, LastError: "delivered_rejected: status_4xx: HTTP 413"}},
		{surehook.Attempt{Status: surehook.AttemptDead, Number: 1, Code: surehook.SecretUnavailable, Error: "it can't be unsealed"}, DeliveryStatus{LastStatus: "dead", Attempts: 1, LastError: "delivered_rejected: it can't be unsealed"}},
		{surehook.Attempt{Status: surehook.AttemptDead, Number: 1, Code: surehook.ExpiredSentinel, Error: "the sentinel's time was over"}, DeliveryStatus{LastStatus: "dead", Attempts: 1, LastError: "sentinel_expired"}},
	} {
		c.last.CreatedAt, c.want.LastDeliveryAt, c.want.Active, c.want.Dead = now, 5000, 3, 4
		if got := deliveryStatus(surehook.SentinelDelivery{Any: true, Pending: 3, Dead: 4, Last: &c.last}); *got != c.want {
			t.Errorf("%+v, want %+v", *got, c.want)
		}
	}
	if got := deliveryStatus(surehook.SentinelDelivery{Any: true, Pending: 1}); *got != (DeliveryStatus{Active: 1, LastStatus: "pending"}) {
		t.Errorf("before the first attempt: %+v", *got)
	}
	ep := &surehook.Endpoint{ID: "sen_1", URL: "https://example.com/in?token=t0ken", Secrets: surehook.Secrets{Current: "pm1.sealed"}, Sentinel: &surehook.Sentinel{Status: surehook.SentinelActive}}
	for manages, url := range map[bool]string{true: ep.URL, false: "https://example.com/in?[hidden]"} {
		if got := view(Caller{Manages: manages}, ep).Target; got != (TargetView{Kind: "webhook", URL: url, HasSecret: true, SecretRedacted: true}) {
			t.Errorf("%+v", got)
		}
	}
	ep.DisabledReason = surehook.ReasonSession
	if got := view(Caller{}, ep).Status; got != "orphaned" {
		t.Error(got)
	}
	if ep.Sentinel.Status = surehook.SentinelExpired; view(Caller{}, ep).Status != "expired" {
		t.Error("an end doesn't outlast the session's")
	}
}
