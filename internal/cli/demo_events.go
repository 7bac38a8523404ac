package cli

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"

	"github.com/surehook/surehook/client"
	examples "github.com/surehook/surehook/examples/events"
)

// demoEvent is an event and where it came from.
type demoEvent struct {
	client.Event
	from string // "orders.jsonl line 3"
}

const (
	maxSubjects  = 16
	maxEventLine = 64 << 20
)

// demoEvents reads the events: the built-in ones, a file's, or standard
// input's. The first few are marked for the black hole.
func (c *cmd) demoEvents(file string) ([]demoEvent, error) {
	var events []demoEvent
	var err error
	switch file {
	case "":
		events, err = exampleEvents()
	case "-":
		events, err = readEvents(c.env.Stdin, "standard input")
	default:
		f, ferr := os.Open(file)
		if ferr != nil {
			return nil, ferr
		}
		events, err = readEvents(f, file)
		err = errors.Join(err, f.Close())
	}
	if err != nil {
		return nil, err
	}
	if len(events) == 0 {
		return nil, usage("no events to publish: give one JSON value a line")
	}
	for i, marked := 0, 0; i < len(events) && marked < holeEvents; i++ {
		if len(events[i].Subjects) < maxSubjects {
			events[i].Subjects = append(events[i].Subjects, holeSubject)
			marked++
		}
	}
	return events, nil
}

func exampleEvents() ([]demoEvent, error) {
	var all []demoEvent
	err := fs.WalkDir(examples.Files, ".", func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		raw, err := examples.Files.ReadFile(path)
		if err != nil {
			return err
		}
		events, err := readEvents(bytes.NewReader(raw), path)
		all = append(all, events...)
		return err
	})
	return all, err
}

// readEvents reads JSON lines.
func readEvents(r io.Reader, name string) ([]demoEvent, error) {
	var events []demoEvent
	lines := bufio.NewScanner(r)
	lines.Buffer(make([]byte, 64<<10), maxEventLine)
	for n := 1; lines.Scan(); n++ {
		line := bytes.TrimSpace(lines.Bytes())
		if len(line) == 0 {
			continue
		}
		from := fmt.Sprintf("%s line %d", name, n)
		ev, err := parseEvent(bytes.Clone(line))
		if err != nil {
			return nil, usage("%s: %s", from, err)
		}
		events = append(events, demoEvent{ev, from})
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("reading %s: %w", name, err)
	}
	return events, nil
}

// parseEvent takes a line as a publish request if it looks like one, else as
// the data of an event. The data's bytes stay as they are.
func parseEvent(line []byte) (client.Event, error) {
	if e, ok := errors.AsType[*client.JSONError](client.CheckJSON(line)); ok {
		return client.Event{}, fmt.Errorf("it isn't one JSON value, as column %d shows: %s", e.Column, e.Reason)
	}
	var shape struct {
		Type *string
		Data json.RawMessage
	}
	if err := json.Unmarshal(line, &shape); err != nil || shape.Type == nil || shape.Data == nil {
		return client.Event{Type: "demo.event", Data: line}, nil //nolint:nilerr // another shape is no error
	}
	return client.ParseEvent(line)
}
