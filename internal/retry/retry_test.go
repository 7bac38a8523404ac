package retry

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/surehook/surehook"
	"pgregory.net/rapid"
)

func ladder() surehook.RetryPolicy {
	return surehook.RetryPolicy{
		Waits: []time.Duration{5 * time.Second, 5 * time.Minute, 30 * time.Minute, 2 * time.Hour,
			5 * time.Hour, 10 * time.Hour, 10 * time.Hour},
		JitterHigh: 0.2, HonourRetryAfter: true, MaxRetryAfter: 24 * time.Hour, MaxWait: 24 * time.Hour,
	}
}

func growing(base time.Duration) surehook.RetryPolicy {
	return surehook.RetryPolicy{Base: base, Factor: 2, Max: 24 * time.Hour, Attempts: 1 << 20, JitterLow: -0.2, JitterHigh: 0.2}
}

// D-01: bounded before it is a Duration, the wait is never nothing, negative or
// over the maximum, and never shorter than the one before.
func TestD01_NoAttemptNumberOverflows(t *testing.T) {
	for _, base := range []time.Duration{0, 1, time.Millisecond, 30 * time.Second, time.Hour, 100 * 24 * time.Hour, math.MaxInt64} {
		p, last := growing(base), time.Duration(0)
		for k := range 10_001 {
			if d := Table(p, k); d < last || d <= 0 || d > p.Max {
				t.Fatalf("base %s, attempt %d: %s after %s", base, k, d, last)
			} else {
				last = d
			}
			for _, rnd := range []float64{0, 0.5, 0.999999} {
				d, again := Next(p, k, 0, rnd)
				if !again || d <= 0 || d > p.Max {
					t.Fatalf("base %s, attempt %d: %s, %v", base, k, d, again)
				}
			}
		}
	}
}

// D-02: a power within its bounds times a base may still be too much.
func TestD02_BoundedExponentStillReachesTheMaximumOnly(t *testing.T) {
	if d := Table(growing(30*time.Second), 31); d != 24*time.Hour {
		t.Fatal(d)
	}
}

// D-03: no number of attempts brings the wait back to nothing.
func TestD03_WaitStaysAtTheMaximum(t *testing.T) {
	for _, k := range []int{63, 64, 65, 66, 1000, math.MaxInt} {
		if d := Table(growing(time.Hour), k); d != 24*time.Hour {
			t.Errorf("attempt %d: %s", k, d)
		}
	}
}

// D-04: whatever wait and random number it is asked for.
func TestD04_JitterNeverPanics(t *testing.T) {
	odd := []float64{0, -1, 1, 2, 1e300, -1e300, math.NaN(), math.Inf(1), math.Inf(-1), 0.5}
	for _, wait := range []time.Duration{math.MinInt64, -1, 0, 1, time.Hour, math.MaxInt64} {
		for _, low := range odd {
			for _, high := range odd {
				for _, rnd := range odd {
					p := surehook.RetryPolicy{Waits: []time.Duration{wait}, JitterLow: low, JitterHigh: high, MaxWait: time.Hour, RoundTo: time.Second}
					if d, again := Next(p, 1, 0, rnd); !again || d <= 0 || d > time.Hour {
						t.Fatalf("wait %d, jitter %v to %v, random %v: %s", wait, low, high, rnd, d)
					}
				}
			}
		}
	}
}

// D-05: a limit of three is three sends.
func TestD05_AttemptsEnd(t *testing.T) {
	for _, c := range []struct {
		name string
		p    surehook.RetryPolicy
		want int
	}{
		{"table", ladder(), 8},
		{"limit", surehook.RetryPolicy{Waits: ladder().Waits, Attempts: 3}, 3},
		{"limit beyond the table", surehook.RetryPolicy{Waits: ladder().Waits[:1], Attempts: 4}, 4},
		{"growing", surehook.RetryPolicy{Base: 1, Factor: 2, Attempts: 5}, 5},
		{"nothing said", surehook.RetryPolicy{}, 1},
		{"endpoint's limit", ladder().With(surehook.Limits{Attempts: 2}), 2},
		{"endpoint's waits", ladder().With(surehook.Limits{Waits: []time.Duration{time.Millisecond, 2 * time.Millisecond}}), 3},
	} {
		sends := 1
		for ; sends < 1000; sends++ {
			if _, again := Next(c.p, sends, 0, 0.5); !again {
				break
			}
		}
		if sends != c.want {
			t.Errorf("%s: %d sends, want %d", c.name, sends, c.want)
		}
	}
}

func TestD07_TheScheduleIsTheDocumentedOne(t *testing.T) {
	for k, want := range ladder().Waits {
		for rnd, want := range map[float64]time.Duration{0: want, 0.5: want + want/10, 1: want + want/5} {
			if d, again := Next(ladder(), k+1, 0, rnd); !again || d.Round(time.Microsecond) != want {
				t.Errorf("after attempt %d with %v: %s, want %s", k+1, rnd, d, want)
			}
		}
	}
	p := ladder()
	p.Attempts = 10
	if d := Table(p, 9); d != 10*time.Hour {
		t.Errorf("the last wait doesn't repeat: %s", d)
	}
}

func TestD19_RetryAfterStretchesOnly(t *testing.T) {
	for _, c := range []struct {
		name     string
		k        int
		after    time.Duration
		rnd      float64
		from, to time.Duration
	}{
		{"longer than ours", 1, 120 * time.Second, 0, 120 * time.Second, 120 * time.Second},
		{"spread upwards", 1, 120 * time.Second, 0.5, 131 * time.Second, 133 * time.Second},
		{"shorter than ours", 2, 120 * time.Second, 0, 5 * time.Minute, 5 * time.Minute},
		{"a week", 1, 7 * 24 * time.Hour, 0.9, 24 * time.Hour, 24 * time.Hour},
		{"for ever", 1, math.MaxInt64, 0.9, 24 * time.Hour, 24 * time.Hour},
		{"negative", 1, -time.Hour, 0, 5 * time.Second, 5 * time.Second},
	} {
		if d, again := Next(ladder(), c.k, c.after, c.rnd); !again || d < c.from || d > c.to {
			t.Errorf("%s: %s", c.name, d)
		}
	}
	p := ladder()
	p.HonourRetryAfter = false
	if d, _ := Next(p, 1, time.Hour, 0); d != 5*time.Second {
		t.Errorf("not honoured, yet %s", d)
	}
	p.HonourRetryAfter, p.MaxRetryAfter = true, 0
	if d, _ := Next(p, 1, math.MaxInt64, 0); d != 24*time.Hour {
		t.Errorf("no bound set, yet %s", d)
	}
	if _, again := Next(ladder(), 8, time.Hour, 0); again {
		t.Error("Retry-After bought one more attempt")
	}
}

// D-20: seconds and the three forms of a date; everything else is as good as
// nothing. D-19's test has the bounds.
func TestD20_RetryAfterForms(t *testing.T) {
	now := time.Date(2026, 10, 21, 7, 0, 0, 0, time.UTC)
	for _, c := range []struct {
		values []string
		want   time.Duration
		ok     bool
	}{
		{[]string{"120"}, 2 * time.Minute, true},
		{[]string{" 120\t"}, 2 * time.Minute, true},
		{[]string{"0"}, 0, true},
		{[]string{"Wed, 21 Oct 2026 07:28:00 GMT"}, 28 * time.Minute, true},
		{[]string{"Wednesday, 21-Oct-26 07:28:00 GMT"}, 28 * time.Minute, true},
		{[]string{"Wed Oct 21 07:28:00 2026"}, 28 * time.Minute, true},
		{[]string{"Sun Nov  1 07:00:00 2026"}, 11 * 24 * time.Hour, true},
		{[]string{"Wed, 21 Oct 2026 06:59:59 GMT"}, 0, false},
		{[]string{"Wed, 21 Oct 2026 07:28:00 PST"}, 0, false},
		{[]string{"Wed, 21 Oct 2026 07:28:00"}, 0, false},
		{[]string{"-5"}, 0, false},
		{[]string{"+5"}, 0, false},
		{[]string{"1.5"}, 0, false},
		{[]string{"1e3"}, 0, false},
		{[]string{"120s"}, 0, false},
		{[]string{"120, 240"}, 0, false},
		{[]string{"abc"}, 0, false},
		{[]string{"١٢"}, 0, false},
		{[]string{""}, 0, false},
		{nil, 0, false},
		{[]string{"999999999"}, longest, true},
		{[]string{"99999999999999999999999999999999"}, longest, true},
		{[]string{"Fri, 31 Dec 9999 23:59:59 GMT"}, longest, true},
		{[]string{"abc", "60"}, time.Minute, true},
		{[]string{"60", "120"}, time.Minute, true},
	} {
		if d, ok := ParseRetryAfter(c.values, now); ok != c.ok || (ok && d != c.want) {
			t.Errorf("%q: %s, %v; want %s, %v", c.values, d, ok, c.want, c.ok)
		}
		if d := After(c.values, now); d != c.want {
			t.Errorf("%q: %s, want %s", c.values, d, c.want)
		}
	}
}

func FuzzParseRetryAfter(f *testing.F) {
	now := time.Date(2026, 10, 21, 7, 0, 0, 0, time.UTC)
	for _, s := range []string{"120", "-5", "1.5", "999999999999999999999", "Wed, 21 Oct 2026 07:28:00 GMT"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if d, ok := ParseRetryAfter([]string{s}, now); ok && (d < 0 || d > longest) {
			t.Fatalf("%q: %s", s, d)
		}
	})
}

// D-22: ten minutes of an outage cost three tries.
func TestD22_NoBurstDuringAnOutage(t *testing.T) {
	var clock time.Duration
	sends := 1
	for clock < 10*time.Minute {
		d, again := Next(ladder(), sends, 0, 0)
		if clock += d; !again || clock >= 10*time.Minute {
			break
		}
		sends++
	}
	if sends != 3 {
		t.Fatalf("%d sends in ten minutes", sends)
	}
}

// spread counts the fullest second of 10,000 deliveries that failed together.
func spread(p surehook.RetryPolicy, k int, after time.Duration) int {
	rnd, buckets, most := rand.New(rand.NewPCG(1, 2)), map[int64]int{}, 0
	for range 10_000 {
		d, _ := Next(p, k, after, rnd.Float64())
		second := int64(d / time.Second)
		buckets[second]++
		most = max(most, buckets[second])
	}
	return most
}

func TestD23_HerdIsSpread(t *testing.T) {
	if n := spread(ladder(), 2, 0); n > 300 { // 5 min, 60 s wide
		t.Errorf("%d of 10,000 in one second", n)
	}
	if n := spread(ladder(), 1, 20*time.Minute); n > 100 { // all told to come back at once
		t.Errorf("%d of 10,000 in one second after Retry-After", n)
	}
	p := growing(time.Hour) // far past its maximum: the window must not collapse there
	if n := spread(p, 50, 0); n > 20 {
		t.Errorf("%d of 10,000 in one second at the maximum", n)
	}
}

func TestD24_HourStepsAreSpreadInSeconds(t *testing.T) {
	p := surehook.RetryPolicy{Waits: []time.Duration{time.Hour}, JitterLow: -0.1, JitterHigh: 0.1, RoundTo: time.Second}
	if n := spread(p, 1, 0); n > 50 { // 720 s wide
		t.Errorf("%d of 10,000 in one second", n)
	}
}

func TestGrainNeverPullsBelowTheTable(t *testing.T) {
	p := surehook.RetryPolicy{Waits: []time.Duration{1400 * time.Millisecond}, RoundTo: time.Second, JitterHigh: 0.01}
	if d, _ := Next(p, 1, 0, 0); d != 2*time.Second {
		t.Error(d)
	}
	p = surehook.RetryPolicy{Waits: []time.Duration{300 * time.Millisecond}, RoundTo: time.Second, JitterLow: -0.1}
	if d, _ := Next(p, 1, 0, 0); d != time.Second {
		t.Errorf("rounded to %s", d)
	}
}

func TestAnyPolicyKeepsItsBounds(t *testing.T) {
	wait := rapid.Custom(func(t *rapid.T) time.Duration { return time.Duration(rapid.Int64().Draw(t, "ns")) })
	rapid.Check(t, func(t *rapid.T) {
		p := surehook.RetryPolicy{
			Waits: rapid.SliceOfN(wait, 0, 4).Draw(t, "waits"), Base: wait.Draw(t, "base"),
			Factor: rapid.Float64().Draw(t, "factor"), Max: wait.Draw(t, "max"), Attempts: rapid.IntRange(2, 20_000).Draw(t, "attempts"),
			JitterLow: rapid.Float64Range(-2, 2).Draw(t, "low"), JitterHigh: rapid.Float64Range(-2, 2).Draw(t, "high"),
			RoundTo: wait.Draw(t, "grain"), MaxWait: wait.Draw(t, "maxWait"),
			HonourRetryAfter: rapid.Bool().Draw(t, "honour"), MaxRetryAfter: wait.Draw(t, "maxAfter"),
		}
		k, after, rnd := rapid.IntRange(1, 10_000).Draw(t, "k"), wait.Draw(t, "after"), rapid.Float64Range(0, 0.9999999).Draw(t, "rnd")
		d, again := Next(p, k, after, rnd)
		if again != (k < p.Attempts) {
			t.Fatalf("again = %v", again)
		}
		if !again {
			return
		}
		plain, _ := Next(p, k, 0, rnd)
		top := bound(p)
		if plain <= 0 || plain > top || d < plain {
			t.Fatalf("plain %s, with Retry-After %s, bound %s", plain, d, top)
		}
		if p.JitterLow >= 0 && plain < Table(p, k) {
			t.Fatalf("%s is earlier than the table's %s", plain, Table(p, k))
		}
		limit := p.MaxRetryAfter
		if limit <= 0 {
			limit = day
		}
		if d > max(top, limit) || (!p.HonourRetryAfter && d != plain) {
			t.Fatalf("%s is over %s and %s", d, top, limit)
		}
	})
}
