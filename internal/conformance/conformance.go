// Package conformance sends a receiver what it must take and what it must
// refuse, and says what each wrong answer risks.
//
// It guarantees that every request is signed from the specifications' text by
// this package itself, not by the package that a receiver may verify with; and
// that a request which is to be accepted is right in every byte, so that a
// failure is the receiver's.
package conformance

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"
)

// Options are the receiver and what is known of it.
type Options struct {
	URL     string
	Profile string   // standard, pylota, sentinel or purple-wolf
	Secrets []string // the current one; a second is the one before, in a rotation
	Retired string   // a secret that is no longer valid; empty: none is known
	Timeout time.Duration
	Client  *http.Client // nil: one that follows no redirect
	Now     func() time.Time
	// Effects counts what the receiver has done so far. With it duplicates are
	// judged by what they did, not by their answers alone.
	Effects func(context.Context) (int, error)
	Each    func(Result) // gets each result as it comes
}

// Profiles are the names that Options.Profile takes.
func Profiles() []string { return []string{"standard", "pylota", "sentinel", "purple-wolf"} }

// Result is what one case showed.
type Result struct {
	Name     string `json:"name"`
	What     string `json:"what"`
	Want     string `json:"want"`
	Got      string `json:"got"`
	Statuses []int  `json:"statuses"` // 0: no answer
	Pass     bool   `json:"pass"`
	Skipped  string `json:"skipped,omitempty"` // why it wasn't asked
	Risk     string `json:"risk,omitempty"`    // of the wrong answer
}

// Report is what all of them showed.
type Report struct {
	Profile string   `json:"profile"`
	Passed  int      `json:"passed"`
	Failed  int      `json:"failed"`
	Skipped int      `json:"skipped"`
	Effects bool     `json:"effects_counted"`
	Late    int      `json:"late_effects"` // events that were answered 2xx before their effect was there
	Results []Result `json:"results"`
}

// want is the class of answers that is right.
type want string

const (
	accept  want = "2xx"
	again   want = "2xx, and no second effect"
	refuse  want = "4xx, not 408, 410 or 429"
	bounded want = "4xx, or the connection closed"
	byBytes want = "2xx, or a 4xx other than 401 and 403"
	nothing want = "no second effect: 2xx or 4xx"
	once    want = "at least one 2xx, the others 2xx, 409 or 5xx, and one effect"
)

// A testCase is one thing to show.
type testCase struct {
	name, what, risk string
	want             want
	first            want // of the first step, where it differs
	together         bool // the steps are sent at once
	steps            func(k *kit) []message
	effects          int    // that it must have, or anyNumber
	needs            string // a second secret, or a kind of scheme: see kit.lacks
}

// anyNumber of effects is right.
const anyNumber = -1

// Run sends every case. An error means that nothing could be judged.
func Run(ctx context.Context, o Options) (*Report, error) {
	k, err := newKit(o)
	if err != nil {
		return nil, err
	}
	if err := k.reach(ctx); err != nil {
		return nil, err
	}
	report := &Report{Profile: o.Profile, Effects: o.Effects != nil}
	for _, c := range k.scheme.cases() {
		r, err := k.run(ctx, c)
		if err != nil {
			return nil, err
		}
		switch {
		case r.Skipped != "":
			report.Skipped++
		case r.Pass:
			report.Passed++
		default:
			report.Failed++
		}
		report.Results = append(report.Results, r)
		if o.Each != nil {
			o.Each(r)
		}
	}
	report.Late = k.late
	return report, nil
}

func newKit(o Options) (*kit, error) {
	u, err := url.Parse(o.URL)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return nil, errors.New("the receiver's URL must begin with http:// or https://")
	}
	if !slices.Contains(Profiles(), o.Profile) {
		return nil, fmt.Errorf("unknown profile; it must be one of %s", strings.Join(Profiles(), ", "))
	}
	if len(o.Secrets) == 0 || len(o.Secrets) > 2 {
		return nil, errors.New("give the receiver's secret, and the one before during a rotation")
	}
	k := &kit{o: o, u: u, client: o.Client, now: o.Now, scheme: standard()}
	if o.Profile == "purple-wolf" {
		k.scheme = purpleWolf()
	}
	if k.client == nil {
		k.client = &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	}
	if k.now == nil {
		k.now = time.Now
	}
	if k.o.Timeout <= 0 {
		k.o.Timeout = 15 * time.Second
	}
	for i, text := range o.Secrets {
		s, err := k.scheme.signer(text)
		if err != nil {
			return nil, fmt.Errorf("secret %d: %w", i+1, err)
		}
		k.signers = append(k.signers, s)
	}
	if o.Retired != "" {
		if slices.Contains(o.Secrets, o.Retired) {
			return nil, errors.New("the retired secret is one of the valid ones")
		}
		if k.retired, err = k.scheme.signer(o.Retired); err != nil {
			return nil, fmt.Errorf("the retired secret: %w", err)
		}
	}
	return k, nil
}

// reach asks once whether anybody is there, so that fifty failures don't say it.
func (k *kit) reach(ctx context.Context) error {
	m := message{method: http.MethodPost, body: []byte("{}"), header: [][2]string{{"Content-Type", "application/json"}}}
	if a := k.send(ctx, m); a.status == 0 {
		return errors.New("the receiver can't be reached: " + reason(a.err))
	}
	return nil
}

func (k *kit) run(ctx context.Context, c testCase) (Result, error) {
	r := Result{Name: c.name, What: c.what, Want: string(c.want), Statuses: []int{}}
	if r.Skipped = k.lacks(c.needs); r.Skipped != "" {
		return r, nil
	}
	before, err := k.effects(ctx)
	if err != nil {
		return r, err
	}
	answers := k.answers(ctx, c)
	if err := ctx.Err(); err != nil {
		return r, err
	}
	var wrong []string
	for i, a := range answers {
		r.Statuses = append(r.Statuses, a.status)
		if !right(c.stepWant(i), a) {
			wrong = append(wrong, a.String())
		}
	}
	if c.want == once && !slices.ContainsFunc(answers, func(a answer) bool { return a.status/100 == 2 }) {
		wrong = append(wrong, "no 2xx")
	}
	expected := 0
	if slices.ContainsFunc(answers, func(a answer) bool { return a.status/100 == 2 }) {
		expected = c.effects
	}
	did, err := k.settled(ctx, before, c, expected)
	if err != nil {
		return r, err
	}
	if k.o.Effects != nil && did != c.effects && c.effects != anyNumber {
		wrong = append(wrong, fmt.Sprintf("%d effects, not %d", did, c.effects))
	}
	r.Pass = len(wrong) == 0
	if !r.Pass {
		r.Got, r.Risk = strings.Join(wrong, "; "), k.risk(c, answers)
		return r, nil
	}
	r.Got = told(answers)
	return r, nil
}

// stepWant is what the i-th answer must be: of repeats, the first is fresh.
func (c testCase) stepWant(i int) want {
	switch {
	case i == 0 && c.first != "":
		return c.first
	case i == 0 && (c.want == again || c.want == nothing):
		return accept
	}
	return c.want
}

// risk says what a failure means: a crash on a stranger's request is another
// risk than accepting it.
func (k *kit) risk(c testCase, answers []answer) string {
	for i, a := range answers {
		switch w := c.stepWant(i); {
		case right(w, a) || w == accept || w == again || w == once:
		case a.status == http.StatusGone:
			return "410 tells the sender to stop for good"
		case a.status == 0 || a.status >= 500 || a.status == 408 || a.status == 429:
			return "anybody can make it fail, and a sender would try such a request again and again"
		case a.status >= 300 && a.status < 400:
			return "senders don't follow redirects; give them the final URL"
		}
	}
	return c.risk
}

// right judges one answer.
func right(w want, a answer) bool {
	s := a.status
	refused := s >= 400 && s < 500 && s != http.StatusRequestTimeout && s != http.StatusGone && s != http.StatusTooManyRequests
	switch w {
	case accept, again:
		return s/100 == 2
	case refuse:
		return refused
	case bounded:
		return refused || s == 0 && a.closed
	case byBytes:
		return s/100 == 2 || refused && s != http.StatusUnauthorized && s != http.StatusForbidden
	case nothing:
		return s/100 == 2 || refused
	case once:
		return s/100 == 2 || s/100 == 5 || s == http.StatusConflict
	}
	return false
}

// told sums up answers, as "200, 200".
func told(answers []answer) string {
	words := make([]string, len(answers))
	for i, a := range answers {
		words[i] = a.String()
	}
	return strings.Join(words, ", ")
}

func (k *kit) effects(ctx context.Context) (int, error) {
	if k.o.Effects == nil {
		return 0, nil
	}
	n, err := k.o.Effects(ctx)
	if err != nil {
		return 0, fmt.Errorf("counting the effects: %w", err)
	}
	return n, nil
}

// settled gives the effects since before. Work that waits in a queue has two
// seconds to be done, where there should be some. Of events that were sent
// more than once, a second effect may come a little after the first.
func (k *kit) settled(ctx context.Context, before int, c testCase, expected int) (int, error) {
	if k.o.Effects == nil {
		return 0, nil
	}
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	started := time.Now()
	end := started.Add(2 * time.Second)
	if c.want == again || c.want == once || c.want == nothing {
		started = started.Add(grace)
	}
	late := 0
	for first := true; ; first = false {
		n, err := k.effects(ctx)
		if err != nil {
			return 0, err
		}
		if first && n-before < expected && !k.vain { // unless it never comes
			late = 1
		}
		now := time.Now()
		if (n-before >= expected || k.vain) && !now.Before(started) {
			k.late += late
			return n - before, nil
		}
		if now.After(end) {
			k.vain = true // whoever waited once in vain needn't wait fifty times
			return n - before, nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return 0, ctx.Err()
		}
	}
}

// grace is how long a second effect is waited for.
const grace = 300 * time.Millisecond
