package console

import (
	"fmt"
	"html/template"
	"strings"
)

// bucket sums the attempts of one step of time.
type bucket struct {
	Start     stamp   `json:"start"`
	Attempts  int64   `json:"attempts"`
	Succeeded int64   `json:"succeeded"`
	Failed    int64   `json:"failed"`
	Dead      int64   `json:"dead"`
	P50       float64 `json:"p50_ms"`
	P95       float64 `json:"p95_ms"`
	P99       float64 `json:"p99_ms"`
}

// totals sums buckets.
func totals(bs []bucket) (out bucket) {
	for _, b := range bs {
		out.Attempts += b.Attempts
		out.Succeeded += b.Succeeded
		out.Failed += b.Failed
		out.Dead += b.Dead
	}
	return out
}

const (
	chartW, chartH = 720, 160
	chartPad       = 4
)

// bars draws how many attempts succeeded, failed and died in each step, one above
// the other. Its numbers are in the table beside it: the picture is for the eye.
func bars(bs []bucket) template.HTML {
	var most int64 = 1
	for _, b := range bs {
		most = max(most, b.Attempts)
	}
	var s strings.Builder
	fmt.Fprintf(&s, `<svg class="chart" viewBox="0 0 %d %d" preserveAspectRatio="none" aria-hidden="true" focusable="false">`, chartW, chartH)
	grid(&s)
	w := float64(chartW) / float64(max(len(bs), 1))
	for i, b := range bs {
		y := float64(chartH)
		for _, part := range []struct {
			class string
			n     int64
		}{{"good", b.Succeeded}, {"warn", b.Failed}, {"bad", b.Dead}} {
			if part.n == 0 {
				continue
			}
			h := max(float64(part.n)/float64(most)*(chartH-chartPad), 1.5)
			y -= h
			fmt.Fprintf(&s, `<rect class="%s" x="%.2f" y="%.2f" width="%.2f" height="%.2f"/>`, part.class, float64(i)*w+w*0.08, max(y, 0), w*0.84, h)
		}
	}
	s.WriteString(`</svg>`)
	return template.HTML(s.String()) //nolint:gosec // numbers alone
}

func grid(s *strings.Builder) {
	for _, y := range []int{chartPad, chartH / 2, chartH - 1} {
		fmt.Fprintf(s, `<line class="grid" x1="0" x2="%d" y1="%d" y2="%d"/>`, chartW, y, y)
	}
}

// lines draws the latencies; steps without attempts are gaps.
func lines(bs []bucket) template.HTML {
	most := 1.0
	for _, b := range bs {
		most = max(most, b.P99)
	}
	var s strings.Builder
	fmt.Fprintf(&s, `<svg class="chart" viewBox="0 0 %d %d" preserveAspectRatio="none" aria-hidden="true" focusable="false">`, chartW, chartH)
	grid(&s)
	w := float64(chartW) / float64(max(len(bs), 1))
	for _, of := range []struct {
		class string
		value func(bucket) float64
	}{{"p99", func(b bucket) float64 { return b.P99 }}, {"p95", func(b bucket) float64 { return b.P95 }}, {"p50", func(b bucket) float64 { return b.P50 }}} {
		var path strings.Builder
		pen := "M"
		for i, b := range bs {
			if b.Attempts == 0 {
				pen = "M"
				continue
			}
			x, y := float64(i)*w, chartH-of.value(b)/most*(chartH-chartPad)
			fmt.Fprintf(&path, "%s%.1f %.1fL%.1f %.1f", pen, x, y, x+w, y)
			pen = "L"
		}
		if path.Len() > 0 {
			fmt.Fprintf(&s, `<path class="%s" d="%s"/>`, of.class, path.String())
		}
	}
	s.WriteString(`</svg>`)
	return template.HTML(s.String()) //nolint:gosec // numbers alone
}

// phases are the parts of an attempt's time, in milliseconds.
type phases struct {
	Resolve float64 `json:"resolve_ms"`
	Connect float64 `json:"connect_ms"`
	TLS     float64 `json:"tls_ms"`
	Write   float64 `json:"write_ms"`
	Wait    float64 `json:"wait_ms"`
	Read    float64 `json:"read_ms"`
}

// phase is one of them.
type phase struct {
	Name  string
	Class string
	MS    float64
}

// shortest is the shortest time that is shown, in milliseconds.
const shortest = 0.05

// Each lists the phases that took any time.
func (p phases) Each() []phase {
	var out []phase
	for _, x := range []phase{{"look-up", "ph1", p.Resolve}, {"connect", "ph2", p.Connect}, {"TLS", "ph3", p.TLS}, {"write", "ph4", p.Write}, {"wait", "ph5", p.Wait}, {"read", "ph6", p.Read}} {
		if x.MS >= shortest {
			out = append(out, x)
		}
	}
	return out
}

// Bar draws the phases by their share of the attempt's time.
func (p phases) Bar() template.HTML {
	sum := 0.0
	for _, x := range p.Each() {
		sum += x.MS
	}
	if sum == 0 {
		return ""
	}
	var s strings.Builder
	s.WriteString(`<svg class="phases" viewBox="0 0 200 8" preserveAspectRatio="none" aria-hidden="true" focusable="false">`)
	at := 0.0
	for _, x := range p.Each() {
		w := x.MS / sum * 200
		fmt.Fprintf(&s, `<rect class="%s" x="%.2f" y="0" width="%.2f" height="8"/>`, x.Class, at, w)
		at += w
	}
	s.WriteString(`</svg>`)
	return template.HTML(s.String()) //nolint:gosec // numbers alone
}
