package cli

import (
	"context"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/surehook/surehook"
	"github.com/surehook/surehook/client"
)

// row is one endpoint's line of the demo's table. What the API says and what
// the receiver saw must agree before it is compared with what must be.
type row struct {
	Endpoint     string  `json:"endpoint"`
	Delivered    int     `json:"delivered"`
	Retried      int     `json:"retried"`
	Dead         int     `json:"dead"`
	Disabled     string  `json:"disabled"` // the reason, or empty
	P50          float64 `json:"p50_ms"`
	P99          float64 `json:"p99_ms"`
	BadSignature int     `json:"signature_failures"`
}

// result is everything that the demo found.
type result struct {
	Events  int      `json:"events"`
	Rows    []row    `json:"endpoints"`
	Seconds float64  `json:"seconds"`
	OK      bool     `json:"ok"`
	wrong   []string // numbers that are not as they must be, yet
	refused []string // lines that the API refused: no waiting mends that
}

// look takes stock through the API and at the receiver.
func (d *demo) look(ctx context.Context) (*result, error) {
	d.mu.Lock()
	r := &result{Events: len(d.published), refused: slices.Clone(d.refused)}
	promised, marked := d.promised, 0
	for _, p := range d.published {
		if p.hole {
			marked++
		}
	}
	d.mu.Unlock()
	for _, h := range d.hooks {
		got, err := d.row(ctx, h, r)
		if err != nil {
			return nil, err
		}
		r.Rows = append(r.Rows, got)
		must := d.must(h.name, r.Events, marked, promised)
		r.expect(got, must)
	}
	d.exact(r)
	r.OK, r.Seconds = len(r.wrong)+len(r.refused) == 0, time.Since(d.began).Seconds()
	return r, nil
}

// must derives what an endpoint's numbers have to be from the events that were
// accepted and from its script. The news that "gone" was disabled is an event
// too (webhook.disabled), and goes to those who subscribe to everything.
func (d *demo) must(name string, accepted, marked, promised int) row {
	m := row{Endpoint: name}
	everything := accepted + 1
	switch name {
	case "good":
		m.Delivered = everything
	case "flaky":
		m.Delivered, m.Retried = everything, flakyTimes*min(flakyEvents, everything)
	case "gone": // whatever it was promised before its first answer
		m.Dead, m.Disabled = promised-2*accepted-marked, "gone"
	case "black-hole":
		m.Retried, m.Dead = marked*len(demoWaits), marked
	}
	return m
}

func (r *result) expect(got, must row) {
	for _, c := range []struct {
		what      string
		got, must any
	}{
		{"delivered", got.Delivered, must.Delivered}, {"retried", got.Retried, must.Retried}, {"dead", got.Dead, must.Dead},
		{"disabled", got.Disabled, must.Disabled}, {"signature failures", got.BadSignature, 0},
	} {
		if c.got != c.must {
			r.wrong = append(r.wrong, fmt.Sprintf("%s: %s is %v, and must be %v", got.Endpoint, c.what, c.got, c.must))
		}
	}
}

// row counts an endpoint's attempts and dead letters in the API, and holds them
// against what the receiver saw.
func (d *demo) row(ctx context.Context, h *demoHook, r *result) (row, error) {
	out := row{Endpoint: h.name}
	hook, err := d.api.Webhook(ctx, h.id)
	if err != nil {
		return out, err
	}
	if !hook.Enabled {
		out.Disabled = deref(hook.DisabledReason)
	}
	attempts := 0
	for a, err := range d.api.WebhookAttempts(ctx, h.id, client.Page{Limit: 1000}) {
		if err != nil {
			return out, err
		}
		if deref(a.Error) != string(surehook.EndpointDisabled) { // such a one tells why no request was made
			attempts++
		}
		if a.Status == "succeeded" {
			out.Delivered++
		}
		if a.Attempt > 1 {
			out.Retried++
		}
	}
	for _, err := range d.api.DeadLetters(ctx, client.DeadLetterFilter{WebhookID: h.id}) {
		if err != nil {
			return out, err
		}
		out.Dead++
	}
	saw := h.counts()
	out.BadSignature = saw.badSigs
	out.P50, out.P99 = d.latency(h)
	if saw.trouble != "" {
		r.wrong = append(r.wrong, saw.trouble)
	}
	if attempts != saw.requests || out.Delivered != saw.delivered {
		r.wrong = append(r.wrong, fmt.Sprintf("%s: the API tells of %d attempts and %d deliveries, the receiver of %d and %d",
			h.name, attempts, out.Delivered, saw.requests, saw.delivered))
	}
	return out, nil
}

// latency gives the median and the 99th percentile from publishing to arrival,
// in milliseconds.
func (d *demo) latency(h *demoHook) (p50, p99 float64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	var all []time.Duration
	for id, p := range d.published {
		if e, ok := h.event(id); ok && e.delivered > 0 {
			all = append(all, e.arrived.Sub(p.at))
		}
	}
	if len(all) == 0 {
		return 0, 0
	}
	slices.Sort(all)
	at := func(q float64) float64 {
		return float64(all[int(math.Ceil(q*float64(len(all))))-1].Microseconds()) / 1000
	}
	return at(.5), at(.99)
}

// exact compares each event's data, as it arrived, with what was published.
func (d *demo) exact(r *result) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, h := range d.hooks {
		if h.name != "good" && h.name != "flaky" {
			continue
		}
		missing, changed := 0, 0
		for id, p := range d.published {
			e, ok := h.event(id)
			switch {
			case !ok || e.delivered == 0:
				missing++
			case e.data != p.data:
				changed++
			}
		}
		if missing > 0 {
			r.wrong = append(r.wrong, fmt.Sprintf("%s: %d events didn't arrive", h.name, missing))
		}
		if changed > 0 {
			r.wrong = append(r.wrong, fmt.Sprintf("%s: %d events arrived with other bytes than were published", h.name, changed))
		}
	}
}

// report prints the table and the verdict.
func (d *demo) report(r *result) error {
	o := d.c.out
	if d.c.json {
		return o.value(struct {
			*result
			Wrong []string `json:"wrong"`
		}{r, append(append([]string{}, r.refused...), r.wrong...)})
	}
	o.line("")
	var rows [][]cell
	for _, x := range r.Rows {
		p50, p99, disabled := "–", "–", text("–")
		if x.Delivered > 0 {
			p50, p99 = ms(time.Duration(x.P50*1e6)), ms(time.Duration(x.P99*1e6))
		}
		if x.Disabled != "" {
			disabled = cell{text: x.Disabled, colour: yellow}
		}
		signatures := count(x.BadSignature)
		if x.BadSignature > 0 {
			signatures.colour = red
		}
		rows = append(rows, []cell{text(x.Endpoint), count(x.Delivered), count(x.Retried), count(x.Dead), disabled,
			{text: p50, right: true}, {text: p99, right: true}, signatures})
	}
	if err := o.table([]string{"ENDPOINT", "DELIVERED", "RETRIED", "DEAD", "DISABLED", "P50", "P99", "SIGNATURE FAILURES"}, rows); err != nil {
		return err
	}
	o.line("")
	if !r.OK {
		o.line("%s  after %.1f s", o.paint(red, "FAILED"), r.Seconds)
		d.list("not as it must be:", r.wrong)
		d.list("refused by the API:", r.refused)
		return nil
	}
	o.line("%s  %d events accepted, %d accounted for, 0 lost, in %.1f s", o.paint(green, "OK"), r.Events, r.Events, r.Seconds)
	o.line("Every event arrived byte for byte, under signatures that independent code found right; failures were retried until")
	o.line("they passed or became dead letters, a 410 disabled its endpoint, and a receiver that never answers held nobody up.")
	o.line("good and flaky got one more than was published: webhook.disabled, the news that gone was disabled. black-hole subscribes to")
	o.line("%s alone: after their last attempts they are dead letters, which can be replayed.", plural(r.Rows[len(r.Rows)-1].Dead, "event", "events"))
	return nil
}

// list prints a few lines under a title.
func (d *demo) list(title string, lines []string) {
	const most = 20
	if len(lines) == 0 {
		return
	}
	d.c.out.line("%s", title)
	for _, l := range lines[:min(len(lines), most)] {
		d.c.out.line("  %s", l)
	}
	if len(lines) > most {
		d.c.out.line("  and %d more", len(lines)-most)
	}
}
