package profile

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/surehook/surehook"
	"github.com/surehook/surehook/internal/retry"
)

func every(t *testing.T) []Profile {
	t.Helper()
	var ps []Profile
	for _, n := range Names() {
		p, ok := ByName(n)
		if !ok || p.Name != n {
			t.Fatalf("no profile %q", n)
		}
		ps = append(ps, p)
	}
	return ps
}

// code is what the egress reports for a status.
func code(status int) surehook.Code {
	switch {
	case status >= 200 && status <= 299:
		return surehook.OK
	case status >= 300 && status <= 399:
		return surehook.Redirect
	case status == 410:
		return surehook.Status410
	case status == 429:
		return surehook.Status429
	case status >= 400 && status <= 499:
		return surehook.Status4xx
	}
	return surehook.Status5xx
}

// D-08: only what no other attempt could change is final.
func TestD08_NetworkErrorsAreRetried(t *testing.T) {
	for _, p := range every(t) {
		for _, c := range []surehook.Code{surehook.DNS, surehook.Connect, surehook.TLS, surehook.Timeout, surehook.SSRFBlocked} {
			for _, status := range []int{0, 200, 302, 404} { // the answer may have begun before it broke
				if d := Classify(p, c, status); d != Retry {
					t.Errorf("%s: %s with status %d: %s", p.Name, c, status, d)
				}
			}
		}
		for _, c := range []surehook.Code{surehook.EventUnavailable, surehook.EndpointDisabled, surehook.PayloadTooLarge, surehook.Crashed} {
			if d := Classify(p, c, 0); d != Dead {
				t.Errorf("%s: %s: %s", p.Name, c, d)
			}
		}
	}
}

// D-09: a 204 is as good as a 200.
func TestD09_Any2xxSucceeds(t *testing.T) {
	for _, p := range every(t) {
		for status := 200; status <= 299; status++ {
			if d := Classify(p, surehook.OK, status); d != Succeeded {
				t.Errorf("%s: %d: %s", p.Name, status, d)
			}
		}
		for _, status := range []int{0, 100, 199, 300, 500} {
			if d := Classify(p, surehook.OK, status); d == Succeeded {
				t.Errorf("%s: %d succeeded", p.Name, status)
			}
		}
	}
}

func TestD11_A3xxIsAFailure(t *testing.T) {
	for name, want := range map[string]Decision{"standard": Retry, "pylota": Retry, "sentinel": Retry, "purple-wolf": Dead} {
		p, _ := ByName(name)
		for _, status := range []int{300, 301, 302, 303, 304, 307, 308, 399} {
			if d := Classify(p, surehook.Redirect, status); d != want {
				t.Errorf("%s: %d: %s, want %s", name, status, d, want)
			}
		}
	}
}

// D-15, D-17: a 410 ends its delivery in every profile.
func TestD15_A410NeverStaysDue(t *testing.T) {
	for name, want := range map[string]Decision{"standard": Disable, "pylota": Disable, "sentinel": Dead, "purple-wolf": Dead} {
		p, _ := ByName(name)
		for _, c := range []surehook.Code{surehook.Status410, surehook.OK} {
			if d := Classify(p, c, 410); d != want {
				t.Errorf("%s: %s, want %s", name, d, want)
			}
		}
	}
	if d := Classify(Profile{}, surehook.Status410, 410); d != Dead {
		t.Errorf("a profile that says nothing: %s", d)
	}
}

// D-16: a 404 isn't a 410.
func TestD16_A404IsRetriedSinceDeploysCauseIt(t *testing.T) {
	for name, want := range map[string]Decision{"standard": Retry, "pylota": Retry, "sentinel": Retry, "purple-wolf": Dead} {
		p, _ := ByName(name)
		if d := Classify(p, surehook.Status4xx, 404); d != want {
			t.Errorf("%s: %s, want %s", name, d, want)
		}
	}
}

// D-18: the published table of 4xx and 5xx answers.
func TestD18_StatusTable(t *testing.T) {
	statuses := []int{400, 401, 403, 404, 405, 408, 409, 413, 415, 422, 425, 429, 499, 500, 502, 503, 504, 599, 100, 600, 999}
	dead := map[string][]int{
		"standard":    nil,
		"pylota":      nil,
		"sentinel":    {413},
		"purple-wolf": {400, 401, 403, 404, 405, 409, 413, 415, 422, 425, 499},
	}
	for name, final := range dead {
		p, _ := ByName(name)
		for _, status := range statuses {
			want := Retry
			if slices.Contains(final, status) {
				want = Dead
			}
			if d := Classify(p, code(status), status); d != want {
				t.Errorf("%s: %d: %s, want %s", name, status, d, want)
			}
		}
	}
}

func TestSecretThatCantBeReadIsFinalForSentinelsOnly(t *testing.T) {
	for name, want := range map[string]Decision{"standard": Retry, "pylota": Retry, "sentinel": Dead, "purple-wolf": Retry} {
		p, _ := ByName(name)
		if d := Classify(p, surehook.SecretUnavailable, 0); d != want {
			t.Errorf("%s: %s, want %s", name, d, want)
		}
	}
}

func TestThrottle(t *testing.T) {
	for _, p := range every(t) {
		for status := range 600 {
			if got, want := p.Throttles(status), status == 429 || status == 502 || status == 504; got != want {
				t.Errorf("%s: %d: %v", p.Name, status, got)
			}
		}
	}
}

// D-22: the schedules of the documents, before jitter.
func TestD22_Schedules(t *testing.T) {
	for _, c := range []struct {
		name     string
		attempts int
		sum      time.Duration
		first    time.Duration
	}{
		{"standard", 8, 27*time.Hour + 35*time.Minute + 5*time.Second, 5 * time.Second},
		{"pylota", 13, 70*time.Hour + 42*time.Minute + 30*time.Second, 30 * time.Second},
		{"sentinel", 5, 7500 * time.Millisecond, 500 * time.Millisecond},
		{"purple-wolf", 8, 63500 * time.Millisecond, 500 * time.Millisecond},
	} {
		p, _ := ByName(c.name)
		var sum time.Duration
		k := 1
		for ; ; k++ {
			if _, again := retry.Next(p.Retry, k, 0, 0.5); !again {
				break
			}
			sum += retry.Table(p.Retry, k)
		}
		if k != c.attempts || sum != c.sum || retry.Table(p.Retry, 1) != c.first {
			t.Errorf("%s: %d attempts over %s, first wait %s", c.name, k, sum, retry.Table(p.Retry, 1))
		}
	}
}

func TestD23_JitterWindows(t *testing.T) {
	for _, c := range []struct {
		name      string
		k         int
		low, high time.Duration
	}{
		{"standard", 2, 5 * time.Minute, 6 * time.Minute},
		{"pylota", 5, 54 * time.Minute, 66 * time.Minute},
		{"sentinel", 4, 4 * time.Second, 4 * time.Second},
		{"purple-wolf", 1, 400 * time.Millisecond, 600 * time.Millisecond},
	} {
		p, _ := ByName(c.name)
		low, _ := retry.Next(p.Retry, c.k, 0, 0)
		high, _ := retry.Next(p.Retry, c.k, 0, 1)
		if low.Round(time.Millisecond) != c.low || high.Round(time.Millisecond) != c.high {
			t.Errorf("%s: %s to %s", c.name, low, high)
		}
	}
}

// D-24: the whole of pylota's schedule: each wait times a factor between 0.9 and 1.1,
// as the random number says, in whole seconds, and never over a day.
func TestD24_PylotaRetryTable(t *testing.T) {
	table := []int{30, 120, 600, 1800, 3600, 7200, 14400, 28800, 43200, 43200, 43200, 68400} // seconds
	sum := 0
	for i, want := range table {
		sum += want
		for step := range 1001 {
			rnd := float64(step) / 1000
			wait, again := retry.Next(Pylota.Retry, i+1, time.Hour, rnd) // a Retry-After isn't listened to
			drawn := time.Duration(float64(want) * (0.9 + 0.2*rnd) * float64(time.Second))
			if !again || wait%time.Second != 0 || (wait-drawn).Abs() > 501*time.Millisecond || wait > 86_400*time.Second {
				t.Fatalf("after attempt %d with %v: %s, want %s", i+1, rnd, wait, drawn)
			}
		}
	}
	if sum != 70*3600+42*60+30 {
		t.Errorf("%d seconds in all", sum)
	}
	for k := 13; k < 20; k++ {
		if _, again := retry.Next(Pylota.Retry, k, 0, 0.5); again {
			t.Errorf("attempt %d isn't the last", k)
		}
	}
	long := Pylota.Retry.With(surehook.Limits{Waits: []time.Duration{day}}) // an endpoint's own wait
	for _, rnd := range []float64{0, 0.5, 0.999999} {
		if wait, again := retry.Next(long, 1, 0, rnd); !again || wait > 86_400*time.Second {
			t.Errorf("a day with %v: %s", rnd, wait)
		}
	}
}

func TestOnlyStandardHonoursRetryAfter(t *testing.T) {
	for _, p := range every(t) {
		if p.Retry.HonourRetryAfter != (p.Name == "standard") {
			t.Error(p.Name)
		}
	}
}

func TestF05_DisableNeedsTime(t *testing.T) {
	for name, want := range map[string]DisableRule{
		"standard": {0, 5 * day}, "pylota": {100, day}, "sentinel": {}, "purple-wolf": {},
	} {
		if p, _ := ByName(name); p.Disable != want {
			t.Errorf("%s: %+v", name, p.Disable)
		}
	}
}

func TestL08_OverlapIsBounded(t *testing.T) {
	for _, c := range []struct {
		name string
		d    time.Duration
		ok   bool
	}{
		{"pylota", 0, true}, {"pylota", 168 * time.Hour, true}, {"pylota", 169 * time.Hour, false}, {"pylota", -1, false},
		{"sentinel", 10 * time.Minute, true}, {"sentinel", time.Hour, false},
		{"purple-wolf", 0, true}, {"purple-wolf", 1, false},
	} {
		p, _ := ByName(c.name)
		err := p.Overlap(c.d)
		if (err == nil) != c.ok {
			t.Errorf("%s: %s: %v", c.name, c.d, err)
		}
		if e, ok := errors.AsType[*surehook.Error](err); !c.ok && (!ok || e.Code != surehook.InvalidRequest) {
			t.Errorf("%s: %T", c.name, err)
		}
	}
}

func TestNamesAndAgents(t *testing.T) {
	if got := Names(); !slices.Equal(got, []string{"standard", "pylota", "sentinel", "purple-wolf"}) {
		t.Error(got)
	}
	if p, ok := ByName(""); !ok || p.Name != "standard" {
		t.Error("no default")
	}
	if _, ok := ByName("Standard"); ok {
		t.Error("names are exact")
	}
	if a := Standard.Agent("1.2.3"); a != "Surehook/1.2.3" {
		t.Error(a)
	}
	if a := PurpleWolf.Agent("1.2.3"); a != "purple-wolf-relay/1.2.3" {
		t.Error(a)
	}
	for _, d := range []Decision{Retry, Succeeded, Dead, Disable} {
		if d.String() == "" {
			t.Error("a decision has no name")
		}
	}
}

func TestProfilesCantBeChangedByTheirUsers(t *testing.T) {
	p, _ := ByName("standard")
	p.Retry.Waits[0], p.Throttle[0] = time.Hour, 200
	if q, _ := ByName("standard"); q.Retry.Waits[0] != 5*time.Second || q.Throttle[0] != 429 || Standard.Throttle[0] != 429 {
		t.Error("one user's change reaches another")
	}
}
