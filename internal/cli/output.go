package cli

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"time"
	"unicode/utf8"
)

// output writes results: JSON lines, or aligned tables with colours on a
// terminal.
type output struct {
	w      io.Writer
	json   bool
	colour bool
}

func (c *cmd) output() *output {
	return &output{w: c.env.Stdout, json: c.json, colour: c.colours(c.env.StdoutTerminal)}
}

// colours follows https://no-color.org.
func (c *cmd) colours(terminal bool) bool {
	return terminal && c.env.getenv("NO_COLOR") == "" && c.env.getenv("TERM") != "dumb"
}

// value writes one JSON value on one line, as it is: nothing in it is escaped
// for HTML.
func (o *output) value(v any) error {
	if raw, ok := v.(json.RawMessage); ok {
		var one bytes.Buffer
		if err := json.Compact(&one, raw); err != nil {
			return err
		}
		one.WriteByte('\n')
		_, err := o.w.Write(one.Bytes())
		return err
	}
	enc := json.NewEncoder(o.w)
	enc.SetEscapeHTML(false)
	return enc.Encode(v)
}

type colour string

const (
	plain  colour = ""
	bold   colour = "\x1b[1m"
	dim    colour = "\x1b[2m"
	red    colour = "\x1b[31m"
	green  colour = "\x1b[32m"
	yellow colour = "\x1b[33m"
)

func (o *output) paint(c colour, s string) string {
	if !o.colour || c == plain || s == "" {
		return s
	}
	return string(c) + s + "\x1b[0m"
}

// cell is a piece of a table.
type cell struct {
	text   string
	colour colour
	right  bool // numbers
}

func text(s string) cell { return cell{text: s} }

func count[T int | int64](n T) cell { return cell{text: fmt.Sprint(n), right: true} }

// table writes rows under a head, aligned; columns are two blanks apart.
func (o *output) table(head []string, rows [][]cell) error {
	all := make([][]cell, 0, len(rows)+1)
	top := make([]cell, len(head))
	for i, h := range head {
		top[i] = cell{text: h, colour: bold, right: len(rows) > 0 && rows[0][i].right}
	}
	all = append(append(all, top), rows...)
	width := make([]int, len(head))
	for _, row := range all {
		for i, c := range row {
			width[i] = max(width[i], utf8.RuneCountInString(c.text))
		}
	}
	var b strings.Builder
	for _, row := range all {
		var line strings.Builder
		for i, c := range row {
			gap := strings.Repeat(" ", width[i]-utf8.RuneCountInString(c.text))
			switch {
			case c.right:
				line.WriteString(gap + o.paint(c.colour, c.text))
			case i == len(row)-1:
				line.WriteString(o.paint(c.colour, c.text))
			default:
				line.WriteString(o.paint(c.colour, c.text) + gap)
			}
			if i < len(row)-1 {
				line.WriteString("  ")
			}
		}
		b.WriteString(strings.TrimRight(line.String(), " ") + "\n")
	}
	_, err := io.WriteString(o.w, b.String())
	return err
}

// fields writes one thing as "name  value" lines; empty values are left out.
func (o *output) fields(pairs ...string) error {
	var rows [][2]string
	width := 0
	for i := 0; i+1 < len(pairs); i += 2 {
		if pairs[i+1] == "" {
			continue
		}
		rows = append(rows, [2]string{pairs[i], pairs[i+1]})
		width = max(width, len(pairs[i]))
	}
	for _, r := range rows {
		gap := strings.Repeat(" ", width-len(r[0])+2)
		if _, err := io.WriteString(o.w, o.paint(dim, r[0])+gap+r[1]+"\n"); err != nil {
			return err
		}
	}
	return nil
}

func (o *output) line(format string, args ...any) {
	_, _ = fmt.Fprintf(o.w, format+"\n", args...) // a reader that has gone wants no more
}

// ms shows a duration for people.
func ms(d time.Duration) string {
	switch {
	case d < 10*time.Millisecond:
		return fmt.Sprintf("%.1f ms", float64(d.Microseconds())/1000)
	case d < 10*time.Second:
		return fmt.Sprintf("%d ms", d.Milliseconds())
	}
	return fmt.Sprintf("%.1f s", d.Seconds())
}
