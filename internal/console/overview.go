package console

import (
	"net/url"
	"strconv"
	"time"

	"github.com/surehook/surehook"
)

// standing is how endpoints do, and what waits.
type standing struct {
	Webhooks struct {
		Healthy  int64 `json:"healthy"`
		Failing  int64 `json:"failing"`
		Paused   int64 `json:"paused"`
		Disabled int64 `json:"disabled"`
	} `json:"webhooks"`
	Pending     int64 `json:"pending"`
	DeadLetters int64 `json:"dead_letters"`
}

// Endpoints is how many there are.
func (s standing) Endpoints() int64 {
	return s.Webhooks.Healthy + s.Webhooks.Failing + s.Webhooks.Paused + s.Webhooks.Disabled
}

// overviewPage is what the first page shows.
type overviewPage struct {
	Standing standing
	Window   window
	Chart    *chartPart // nil: fetched after the page
	Failing  []endpoint // the first few that fail
	Letters  []letter   // the latest
}

func (v *visit) overview() error {
	p := overviewPage{Window: windowOf(v.r.URL.Query().Get("window"))}
	var err error
	if p.Standing, err = get[standing](v, "/v1/overview", nil); err != nil {
		return err
	}
	if v.r.URL.Query().Get("chart") != "" { // without JavaScript
		c, err := v.sums("", p.Window)
		if err != nil {
			return err
		}
		p.Chart = &c
	}
	if p.Standing.DeadLetters > 0 {
		l, err := get[list[letter]](v, "/v1/dead-letters", url.Values{"limit": {"5"}})
		if err != nil {
			return err
		}
		p.Letters = l.Items
	}
	if p.Standing.Webhooks.Failing+p.Standing.Webhooks.Disabled > 0 {
		l, err := get[list[endpoint]](v, "/v1/webhooks", url.Values{"limit": {"200"}})
		if err != nil {
			return err
		}
		for _, e := range l.Items {
			if e.State() != "healthy" && e.State() != "paused" && len(p.Failing) < 5 {
				p.Failing = append(p.Failing, e)
			}
		}
	}
	return v.show("overview.html", p)
}

// window is a span of time that a chart can show.
type window struct {
	Name  string // in the URL
	Label string
	Span  time.Duration
	Step  time.Duration
}

var windows = []window{
	{"hour", "last hour", time.Hour, time.Minute},
	{"day", "last 24 hours", 24 * time.Hour, 30 * time.Minute},
	{"week", "last 7 days", 7 * 24 * time.Hour, 3 * time.Hour},
}

func windowOf(name string) window {
	for _, w := range windows {
		if w.Name == name {
			return w
		}
	}
	return windows[1]
}

// chartPart is a chart with what belongs to it.
type chartPart struct {
	Buckets []bucket
	Sum     bucket
	Latest  bucket // the latest step that had attempts: its latencies are the present ones
	Window  window
	Windows []window
	From    stamp  // where the sums begin
	More    bool   // older steps are still to be counted
	Path    string // of the part itself, for the other windows
	Page    string
	Every   string // after which it is drawn anew
}

// Empty tells that there was no attempt.
func (c chartPart) Empty() bool { return c.Sum.Attempts == 0 }

// Shown are the steps that had attempts, for the table.
func (c chartPart) Shown() []bucket {
	var out []bucket
	for _, b := range c.Buckets {
		if b.Attempts > 0 {
			out = append(out, b)
		}
	}
	return out
}

// patience is how long a page counts: what it hasn't by then, it fetches afterwards.
const patience = "40"

// counted are steps of time, as far as they are counted.
type counted struct {
	list[bucket]
	From stamp `json:"from"`
}

func (v *visit) count(path string, since, until time.Time, step time.Duration) (counted, error) {
	return get[counted](v, path, url.Values{"since": {since.UTC().Format(time.RFC3339)}, "until": {until.UTC().Format(time.RFC3339)}, "step_s": {strconv.Itoa(int(step.Seconds()))}, "wait_ms": {patience}})
}

// sums reads a chart: of one endpoint, or of all.
func (v *visit) sums(endpoint string, w window) (chartPart, error) {
	until := v.now().Truncate(w.Step).Add(w.Step)
	path, page := "/v1/stats", "/"
	if endpoint != "" {
		path, page = "/v1/webhooks/"+seg(endpoint)+"/stats", "/endpoints/"+seg(endpoint)
	}
	since := until.Add(-w.Span)
	l, err := v.count(path, since, until, w.Step)
	c := chartPart{Buckets: l.Items, From: l.From, More: l.From.After(since), Sum: totals(l.Items), Window: w, Windows: windows, Path: "/chart?endpoint=" + url.QueryEscape(endpoint), Page: page,
		Every: strconv.FormatInt(v.opt.Refresh.Milliseconds(), 10) + "ms"}
	for _, b := range l.Items {
		if b.Attempts > 0 {
			c.Latest = b
		}
	}
	for at := l.From.Time; err == nil && at.After(since); { // the picture is of the whole window
		at = at.Add(-w.Step)
		c.Buckets = append([]bucket{{Start: stamp{at}}}, c.Buckets...)
	}
	return c, err
}

func (v *visit) chart() error {
	q := v.r.URL.Query()
	c, err := v.sums(q.Get("endpoint"), windowOf(q.Get("window")))
	if err != nil {
		return err
	}
	return v.part("overview.html", "chart", c)
}

var errNothing = surehook.Errorf(surehook.NotFound, "there is no such page")
