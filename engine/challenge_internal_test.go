package engine

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/surehook/surehook"
	"github.com/surehook/surehook/internal/egress"
)

// What an answer to a challenge is worth: nothing else than the challenge given back
// passes.
func TestJudge(t *testing.T) {
	word := strings.Repeat("0a", 32)
	for _, c := range []struct {
		res    egress.Result
		reason string
	}{
		{egress.Result{Status: 200, Body: []byte(`{"challenge":"` + word + `"}`)}, ""},
		{egress.Result{Status: 299, Body: []byte(` {"more":[1],"challenge":"` + word + `"} `)}, ""},
		{egress.Result{Status: 200, Body: []byte(`{"challenge":"` + strings.ToUpper(word) + `"}`)}, ChallengeFailed},
		{egress.Result{Status: 200, Body: []byte(`{"challenge":"` + word[:63] + `"}`)}, ChallengeFailed},
		{egress.Result{Status: 200, Body: []byte(`{}`)}, ChallengeFailed},
		{egress.Result{Status: 200, Body: []byte(`{"Challenge":"` + word + `"}`)}, ChallengeFailed},
		{egress.Result{Status: 200, Body: []byte(`{"challenge":["` + word + `"]}`)}, ChallengeFailed},
		{egress.Result{Status: 200, Code: surehook.Timeout, Truncated: true}, ChallengeTimeout},
		{egress.Result{Status: 200, Body: []byte(word)}, ChallengeFailed},
		{egress.Result{Status: 200, Body: []byte(`"` + word + `"`)}, ChallengeFailed},
		{egress.Result{Status: 200, Body: []byte(`{"challenge":"` + word + `"}{}`)}, ChallengeFailed},
		{egress.Result{Status: 200, Truncated: true, Body: []byte(`{"challenge":"` + word + `"}`)}, ChallengeFailed},
		{egress.Result{Status: 204}, ChallengeFailed},
		{egress.Result{Status: 300, Code: surehook.Redirect}, ChallengeBlocked},
		{egress.Result{Code: surehook.SSRFBlocked}, ChallengeBlocked},
		{egress.Result{Status: 404, Code: surehook.Status4xx, Body: []byte(`{"challenge":"` + word + `"}`)}, ChallengeStatus},
		{egress.Result{Status: 500, Code: surehook.Status5xx}, ChallengeStatus},
		{egress.Result{Code: surehook.Timeout}, ChallengeTimeout},
		{egress.Result{Code: surehook.Connect}, ChallengeTimeout},
		{egress.Result{Code: surehook.TLS}, ChallengeTimeout},
		{egress.Result{Code: surehook.DNS}, ChallengeTimeout},
	} {
		reason := ""
		if refused, ok := errors.AsType[*ChallengeError](judge(c.res, word)); ok {
			reason = refused.Reason
		}
		if reason != c.reason {
			t.Errorf("%d %s %.40s: %q, want %q", c.res.Status, c.res.Code, c.res.Body, reason, c.reason)
		}
	}
}

// A challenge that passed is good for 10 minutes, for the same principal, URL and
// secret alone.
func TestPassed(t *testing.T) {
	var p passed
	now := time.Unix(1000, 0)
	key := passedKey("key_1", "https://example.com/", []byte("secret"))
	p.note(key, now)
	for after, want := range map[time.Duration]bool{0: true, passedFor - 1: true, passedFor: false, -1: false} {
		if p.fresh(key, now.Add(after)) != want {
			t.Errorf("after %v", after)
		}
	}
	for _, other := range [][32]byte{passedKey("key_2", "https://example.com/", []byte("secret")), passedKey("key_1", "https://example.com/x", []byte("secret")),
		passedKey("key_1", "https://example.com/", []byte("secret2")), passedKey("key_1|https", "://example.com/", []byte("secret"))} {
		if p.fresh(other, now) {
			t.Error("something else passes too")
		}
	}
	for i := range mostPassed {
		p.note(passedKey("key_1", "https://example.com/", []byte{byte(i), byte(i >> 8)}), now)
	}
	if len(p.at) > mostPassed {
		t.Errorf("%d are remembered", len(p.at))
	}
}
