package archtest

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/surehook/surehook"
	"github.com/surehook/surehook/profile"
)

// The table of profiles holds what the code does; this is where a stale one shows.
func TestProfilesAreDocumented(t *testing.T) {
	page, err := os.ReadFile("../../docs/profiles.md")
	if err != nil {
		t.Fatal(err)
	}
	if want := profileTable(profile.Standard, profile.Pylota, profile.Sentinel, profile.PurpleWolf); !strings.Contains(string(page), want) {
		t.Errorf("docs/profiles.md is stale: its table must be\n%s", want)
	}
}

func profileTable(all ...profile.Profile) string {
	var b strings.Builder
	row := func(name string, value func(profile.Profile) string) {
		b.WriteString("| " + name + " |")
		for _, p := range all {
			b.WriteString(" " + value(p) + " |")
		}
		b.WriteString("\n")
	}
	row("", func(p profile.Profile) string { return "`" + p.Name + "`" })
	b.WriteString("|" + strings.Repeat("---|", len(all)+1) + "\n")
	row("attempts", func(p profile.Profile) string { return fmt.Sprint(p.Retry.Attempts) })
	row("waits between them", func(p profile.Profile) string {
		if len(p.Retry.Waits) == 0 {
			return fmt.Sprintf("%s, each %g times the one before, %s at most", short(p.Retry.Base), p.Retry.Factor, short(p.Retry.Max))
		}
		waits, sum := make([]string, len(p.Retry.Waits)), time.Duration(0)
		for i, w := range p.Retry.Waits {
			waits[i], sum = short(w), sum+w
		}
		return fmt.Sprintf("%s: %s in all", strings.Join(waits, ", "), short(sum))
	})
	row("jitter", func(p profile.Profile) string {
		return fmt.Sprintf("%+.0f %% to %+.0f %%", 100*p.Retry.JitterLow, 100*p.Retry.JitterHigh)
	})
	row("`Retry-After`", func(p profile.Profile) string {
		if p.Retry.HonourRetryAfter {
			return "stretches a wait, up to " + short(p.Retry.MaxRetryAfter)
		}
		return "doesn't count"
	})
	row("timeout of an attempt", func(p profile.Profile) string {
		if p.ConnectTimeout > 0 {
			return fmt.Sprintf("%s, of it %s to connect", short(p.Timeout), short(p.ConnectTimeout))
		}
		return short(p.Timeout)
	})
	row("succeeded", outcomes(profile.Succeeded))
	row("tried again", outcomes(profile.Retry))
	row("dead at once", outcomes(profile.Dead))
	row("disabled at once", outcomes(profile.Disable))
	row("disabled after", func(p profile.Profile) string {
		if p.Disable == (profile.DisableRule{}) {
			return "never"
		}
		over := short(p.Disable.Over) + " of nothing but failures"
		if p.Disable.After > 0 {
			return fmt.Sprintf("%d failures in a row over at least %s", p.Disable.After, short(p.Disable.Over))
		}
		return over
	})
	row("slows its lane down", func(p profile.Profile) string {
		return strings.ReplaceAll(strings.Trim(fmt.Sprint(p.Throttle), "[]"), " ", ", ")
	})
	return b.String()
}

// outcomes names what leads to a decision.
func outcomes(want profile.Decision) func(profile.Profile) string {
	cases := []struct {
		name   string
		code   surehook.Code
		status int
	}{{"any 2xx", surehook.OK, 204}, {"3xx (never followed)", surehook.Redirect, 302}, {"4xx but 408, 410, 413 and 429", surehook.Status4xx, 404}, {"413", surehook.Status4xx, 413}, {"408", surehook.Status4xx, 408}, {"429", surehook.Status429, 429},
		{"410", surehook.Status410, 410}, {"5xx", surehook.Status5xx, 503}, {"a timeout", surehook.Timeout, 0}, {"an error of the network", surehook.Connect, 0},
		{"a name without an address", surehook.DNS, 0}, {"a TLS handshake that failed", surehook.TLS, 0}, {"an address that the guard refused", surehook.SSRFBlocked, 0},
		{"data that was erased", surehook.EventUnavailable, 0}, {"a body over the bound", surehook.PayloadTooLarge, 0}, {"a secret that can't be unsealed", surehook.SecretUnavailable, 0}}
	return func(p profile.Profile) string {
		var names []string
		for _, c := range cases {
			if profile.Classify(p, c.code, c.status) == want {
				names = append(names, c.name)
			}
		}
		if len(names) == 0 {
			return "–"
		}
		return strings.Join(names, ", ")
	}
}

// short writes a duration without its zeroes.
func short(d time.Duration) string {
	s := d.String()
	if strings.HasSuffix(s, "m0s") {
		s = strings.TrimSuffix(s, "0s")
	}
	if strings.HasSuffix(s, "h0m") {
		s = strings.TrimSuffix(s, "0m")
	}
	return s
}
