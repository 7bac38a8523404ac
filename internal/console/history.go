package console

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// moment is one thing in an endpoint's history.
type moment struct {
	At    stamp
	Until stamp // of a time in which it failed; zero: it was a moment
	Class string
	What  string
	Who   word
}

func (m moment) latest() time.Time {
	if m.Until.IsZero() {
		return m.At.Time
	}
	return m.Until.Time
}

// historyPart is what happened to an endpoint, newest first.
type historyPart struct {
	Endpoint word
	Moments  []moment
	More     bool // times of failure are still to be looked for
}

// deed is an entry of the audit log about an endpoint.
type deed struct {
	At      stamp  `json:"at"`
	Action  string `json:"action"`
	Actor   word   `json:"actor"`
	Details struct {
		Changed []string `json:"changed"`
		Enabled *bool    `json:"enabled"`
		Paused  *bool    `json:"paused"`
		Reason  string   `json:"reason"`
		Overlap float64  `json:"overlap_hours"`
	} `json:"details"`
}

// settings are what the fields of an endpoint are called on its page.
var settings = strings.NewReplacer("url", "URL", "event_types", "event types", "identity_ids", "identities", "ordering", "order")

// moment says in words what was done.
func (d deed) moment() moment {
	m, x := moment{At: d.At, Who: d.Actor}, d.Details
	switch {
	case d.Action == "webhook.create":
		m.What = "Created."
	case d.Action == "webhook.disable":
		m.Class, m.What = "bad", disabledBecause[x.Reason].what
	case d.Action == "webhook.enable":
		m.Class, m.What = "good", "A test passed, so it was enabled."
	case d.Action == "webhook.rotate_secret":
		m.What = fmt.Sprintf("The secret was rotated; the old one signed for %s more.", spell(time.Duration(x.Overlap*float64(time.Hour))))
		if x.Overlap == 0 {
			m.What = "The secret was rotated; the old one ended at once."
		}
	case d.Action == "webhook.revoke_previous_secret":
		m.What = "The old secret was ended."
	case d.Action == "webhook.replay":
		m.What = "Past events were queued again."
	case slices.Contains(x.Changed, "url"):
		m.Class, m.What = "warn", "The URL was changed; a test must pass before events are sent there."
	case x.Enabled != nil && *x.Enabled:
		m.Class, m.What = "good", "Enabled."
	case x.Enabled != nil:
		m.Class, m.What = "bad", "Disabled."
	case x.Paused != nil && *x.Paused:
		m.Class, m.What = "warn", "Paused."
	case x.Paused != nil:
		m.Class, m.What = "good", "Resumed."
	case len(x.Changed) > 0:
		m.What = "Changed: " + settings.Replace(strings.Join(x.Changed, ", ")) + "."
	default:
		m.What = "Settings were changed."
	}
	return m
}

// spells are the times in which most attempts failed. Hours without an attempt belong
// to the failure around them: the next try was far off.
func spells(bs []bucket, step time.Duration) (out []moment) {
	var open bool
	var sum bucket
	end := func() {
		if open {
			m := &out[len(out)-1]
			m.What = fmt.Sprintf("%s of %s failed.", count(sum.Failed+sum.Dead), plural(sum.Attempts, "attempt", "attempts"))
		}
		open, sum = false, bucket{}
	}
	for _, b := range bs {
		bad := b.Failed + b.Dead
		switch {
		case b.Attempts == 0:
			continue
		case 2*bad < b.Attempts:
			end()
			continue
		case !open:
			open = true
			out = append(out, moment{At: b.Start, Class: "bad"})
		}
		sum = totals([]bucket{sum, b})
		out[len(out)-1].Until = stamp{b.Start.Add(step)}
	}
	end()
	return out
}

// history is fetched after the page: it counts a week's attempts.
func (v *visit) history() error {
	p, err := v.historyOf(v.r.PathValue("id"))
	if err != nil {
		return err
	}
	return v.part("endpoint.html", "history", p)
}

func (v *visit) historyOf(id string) (historyPart, error) {
	p := historyPart{Endpoint: word(id)}
	path := "/v1/webhooks/" + seg(id)
	l, err := get[list[deed]](v, path+"/history", nil)
	if err != nil {
		return p, err
	}
	until := v.now().Truncate(time.Hour).Add(time.Hour)
	since := until.Add(-7 * 24 * time.Hour)
	c, err := v.count(path+"/stats", since, until, time.Hour)
	if err != nil {
		return p, err
	}
	p.More = c.From.After(since)
	p.Moments = spells(c.Items, time.Hour)
	for i, m := range p.Moments {
		if now := v.now(); m.Until.After(now) { // the hour isn't over
			p.Moments[i].Until = stamp{now}
		}
	}
	for _, d := range l.Items {
		p.Moments = append(p.Moments, d.moment())
	}
	slices.SortStableFunc(p.Moments, func(a, b moment) int { return b.latest().Compare(a.latest()) })
	p.Moments = p.Moments[:min(len(p.Moments), 20)]
	return p, nil
}
