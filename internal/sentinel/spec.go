// Package sentinel is watches with a lifetime as their callers see them: the spec
// that asks for one, the view that shows it, the providers that bring its events.
//
// It guarantees that no view holds a secret or more of a callback's URL than its
// host, and that a provider's watch is cancelled when its sentinel ends, after a
// crash too. What an engine does with a sentinel (matching, the challenge,
// delivery, the end) is package engine's.
package sentinel

import (
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/surehook/surehook"
)

// Spec asks for a sentinel.
type Spec struct {
	Match    []MatchClause `json:"match"`
	Until    Until         `json:"until"`
	Target   Target        `json:"target"`
	Provider string        `json:"provider,omitempty"`
	Group    string        `json:"group,omitempty"`
	Label    string        `json:"label,omitempty"`
}

// MatchClause is one of the ways to match. Without types, those that the provider
// has for the subject.
type MatchClause struct {
	Subject string   `json:"subject"`
	Types   []string `json:"types,omitempty"`
}

// Until says when watching stops: Kind is subject_terminal, at (with MS, Unix
// milliseconds), count (with N) or never.
type Until struct {
	Kind string `json:"kind"`
	MS   int64  `json:"ms,omitempty"`
	N    int64  `json:"n,omitempty"`
}

// The kinds of targets.
const (
	TargetWebhook = "webhook"
	TargetSession = "session"
	TargetRoutine = "routine" // its shape is fixed; it isn't implemented
)

// Target says where events go: a webhook (URL and Secret), a session (SessionID
// and Urgency), or a routine, which is refused.
type Target struct {
	Kind      string `json:"kind"`
	URL       string `json:"url,omitempty"`
	Secret    string `json:"secret,omitempty"` // whsec_…
	SessionID string `json:"sessionId,omitempty"`
	Urgency   string `json:"urgency,omitempty"`
	RoutineID string `json:"routineId,omitempty"`
}

// Short is the other way to ask, for a session: one subject, or the URL of a pull
// request of GitHub's.
type Short struct {
	Subject   string   `json:"subject,omitempty"`
	PRURL     string   `json:"prUrl,omitempty"`
	SessionID string   `json:"sessionId,omitempty"`
	Types     []string `json:"types,omitempty"`
	Urgency   string   `json:"urgency,omitempty"`
	Until     string   `json:"until,omitempty"` // subject_terminal (default) or never
	Provider  string   `json:"provider,omitempty"`
	Group     string   `json:"group,omitempty"`
	Label     string   `json:"label,omitempty"`
}

// Spec is what a Short asks for.
func (s Short) Spec() (Spec, error) {
	subject := s.Subject
	switch {
	case s.Subject == "" && s.PRURL == "":
		return Spec{}, refuse(MissingSubject, "subject", "is required, or prUrl")
	case s.Subject != "" && s.PRURL != "":
		return Spec{}, refuse(AmbiguousSubject, "prUrl", "is given beside subject: give one of them")
	case s.PRURL != "":
		var err error
		if subject, err = PullRequest(s.PRURL); err != nil {
			return Spec{}, err
		}
	}
	until := Until{Kind: s.Until}
	switch until.Kind {
	case "":
		until.Kind = string(surehook.UntilTerminal)
	case string(surehook.UntilTerminal), string(surehook.UntilNever):
	default:
		return Spec{}, surehook.Invalid("until", "must be subject_terminal or never")
	}
	if s.SessionID == "" {
		return Spec{}, refuse(NoCallerIdentity, "sessionId", "is required: it names the session that the events are for")
	}
	return Spec{Match: []MatchClause{{Subject: subject, Types: s.Types}}, Until: until, Provider: s.Provider, Group: s.Group, Label: s.Label,
		Target: Target{Kind: TargetSession, SessionID: s.SessionID, Urgency: s.Urgency}}, nil
}

// PullRequest gives the subject of a pull request's URL,
// https://github.com/OWNER/REPO/pull/N: github:OWNER/REPO#N.
func PullRequest(raw string) (string, error) {
	bad := refuse(InvalidPRURL, "prUrl", "must be https://github.com/OWNER/REPO/pull/NUMBER")
	u, err := url.Parse(raw)
	if err != nil || len(raw) > 512 || (u.Scheme != "https" && u.Scheme != "http") || !strings.EqualFold(strings.TrimPrefix(strings.ToLower(u.Host), "www."), "github.com") || u.User != nil {
		return "", bad
	}
	parts := strings.Split(strings.Trim(u.Path, "/"), "/")
	if len(parts) < 4 || parts[2] != "pull" || !githubName(parts[0]) || !githubName(parts[1]) {
		return "", bad
	}
	n, err := strconv.ParseInt(parts[3], 10, 32)
	if err != nil || n < 1 || strconv.FormatInt(n, 10) != parts[3] {
		return "", bad
	}
	return fmt.Sprintf("github:%s/%s#%d", parts[0], parts[1], n), nil
}

// githubName tells names that an owner or a repository of GitHub's may have.
func githubName(s string) bool {
	return s != "" && len(s) <= 100 && s != "." && s != ".." && !strings.ContainsFunc(s, func(r rune) bool {
		return !('a' <= r && r <= 'z' || 'A' <= r && r <= 'Z' || '0' <= r && r <= '9' || r == '-' || r == '_' || r == '.')
	})
}

// domain gives the stored form of when watching stops.
func (u Until) domain() (surehook.Until, error) {
	out := surehook.Until{Kind: surehook.UntilKind(u.Kind)}
	switch out.Kind {
	case surehook.UntilTerminal, surehook.UntilNever:
	case surehook.UntilAt:
		if u.MS < 1 || u.MS > maxMillis {
			return out, surehook.Invalid("until.ms", "must be a time in Unix milliseconds, before the year 10000")
		}
		out.At = time.UnixMilli(u.MS).UTC()
	case surehook.UntilCount:
		if u.N < 1 || u.N > maxCount {
			return out, surehook.Invalid("until.n", fmt.Sprintf("must be 1 to %d", int64(maxCount)))
		}
		out.Count = u.N
	default:
		return out, surehook.Invalid("until.kind", "must be subject_terminal, at, count or never")
	}
	switch {
	case u.MS != 0 && out.Kind != surehook.UntilAt:
		return out, surehook.Invalid("until.ms", "goes with the kind at alone")
	case u.N != 0 && out.Kind != surehook.UntilCount:
		return out, surehook.Invalid("until.n", "goes with the kind count alone")
	}
	return out, nil
}

const (
	maxMillis = 253402300799999 // the end of the year 9999
	maxCount  = 1_000_000_000
)
