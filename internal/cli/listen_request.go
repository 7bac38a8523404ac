package cli

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/surehook/surehook/internal/diagnose"
	"github.com/surehook/surehook/receiver"
	"github.com/surehook/surehook/signing"
)

// received is one request, as --json prints it and --record keeps it.
type received struct {
	Time      time.Time        `json:"time"`
	Method    string           `json:"method"`
	Path      string           `json:"path"`
	Query     string           `json:"query,omitempty"`
	ID        string           `json:"webhook_id"`
	Attempt   int              `json:"attempt,omitempty"`
	Seen      int              `json:"seen,omitempty"` // how often this event had come before
	Signature string           `json:"signature"`      // valid, unchecked, or why it was refused
	Causes    []diagnose.Cause `json:"causes,omitempty"`
	Status    int              `json:"status"`
	Header    http.Header      `json:"header"`
	Bytes     int              `json:"bytes"`
	Body      string           `json:"body"`                  // as it came: the signature is over its bytes
	Raw       []byte           `json:"body_base64,omitempty"` // in place of it, where it isn't UTF-8

	sent http.Header // Header, with the names as the sender wrote them
}

func (r *received) body() []byte {
	if r.Raw != nil {
		return r.Raw
	}
	return []byte(r.Body)
}

// ServeHTTP implements http.Handler.
func (l *listener) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	body, err := io.ReadAll(http.MaxBytesReader(w, req.Body, maxListened))
	sent := asSent(req)
	if err != nil {
		status := http.StatusBadRequest
		if _, ok := errors.AsType[*http.MaxBytesError](err); ok {
			status = http.StatusRequestEntityTooLarge
		}
		l.c.say("a body couldn't be read, answered %d: %s", status, err)
		http.Error(w, "the body couldn't be read", status)
		return
	}
	r := received{Time: l.now().UTC().Truncate(time.Millisecond), Method: req.Method, Path: req.URL.Path, Query: req.URL.RawQuery,
		Attempt: attemptOf(req.Header), Header: req.Header, Bytes: len(body), Status: l.status, sent: sent}
	if utf8.Valid(body) {
		r.Body = string(body)
	} else {
		r.Raw = body
	}
	right := l.judge(&r)
	r.Seen = l.count(r.ID, right)
	switch {
	case !right:
	case l.fail.times > r.Seen:
		r.Status = l.fail.status
	case l.forward != nil:
		l.sendOn(w, req, &r)
		l.print(&r)
		return
	}
	if l.wait(req) {
		w.WriteHeader(r.Status)
	}
	l.print(&r)
}

// wait is --delay; false: the sender has hung up meanwhile.
func (l *listener) wait(req *http.Request) bool {
	if l.delay == 0 {
		return true
	}
	timer := time.NewTimer(l.delay)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-req.Context().Done():
		return false
	}
}

// judge sets the verdict and, where it is a refusal, its status and causes.
func (l *listener) judge(r *received) (right bool) {
	r.Signature, r.ID = "unchecked", r.Header.Get(signing.HeaderID)
	if l.rc == nil {
		return true
	}
	body := r.body()
	req := (&http.Request{Method: r.Method, Header: r.Header, Body: io.NopCloser(bytes.NewReader(body))})
	m, err := l.rc.Verify(nil, req)
	if m.ID != "" {
		r.ID = m.ID
	}
	if err == nil {
		r.Signature = "valid"
		if m.Attempt > 0 {
			r.Attempt = m.Attempt
		}
		return true
	}
	r.Signature, r.Status = err.Error(), http.StatusBadRequest
	if e, ok := errors.AsType[*receiver.Error](err); ok {
		r.Signature, r.Status = whyNot(e.Reason), e.Status
	}
	v, err := diagnose.Judge(diagnose.Input{Scheme: l.scheme, Secrets: l.secrets, Header: r.Header, Body: body, Now: l.now(), Tolerance: signing.Tolerance, Search: 10 * time.Minute})
	if err == nil {
		r.Causes = v.Causes
	}
	return false
}

// count tells how often a right request of this event had come before.
func (l *listener) count(id string, right bool) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := l.seen[id]
	if right && (n > 0 || len(l.seen) < maxCounted) {
		l.seen[id] = n + 1
	}
	return n
}

// print shows the request and keeps it.
func (l *listener) print(r *received) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.record != nil {
		if err := (&output{w: l.record}).value(r); err != nil {
			l.c.say("surehook: a request wasn't recorded: %s", err)
		}
	}
	if l.c.json {
		if err := l.c.out.value(r); err != nil {
			l.c.say("surehook: %s", err)
		}
	} else {
		l.text(r)
	}
	if l.left > 0 {
		if l.left--; l.left == 0 {
			close(l.done)
		}
	}
}

func (l *listener) text(r *received) {
	o := l.c.out
	mark := o.paint(yellow, r.Signature)
	switch {
	case r.Signature == "valid":
		mark = o.paint(green, "valid signature")
	case l.rc != nil:
		mark = o.paint(red, "refused: "+r.Signature)
	}
	again := ""
	if r.Attempt > 1 {
		again = fmt.Sprintf(", attempt %d", r.Attempt)
	}
	if r.Seen > 0 && r.ID != "" {
		again += fmt.Sprintf(", came %s before", plural(r.Seen, "time", "times"))
	}
	o.line("%s  %s %s  %s%s  %s  %d bytes, answered %d", clock(r.Time), printable(r.Method), printable(r.Path), printable(r.ID), again, mark, r.Bytes, r.Status)
	l.c.causes(r.Causes)
	l.headers(r.Header)
	if shown := l.shown(r); shown != "" {
		o.line("  %s", strings.ReplaceAll(printable(shown), "\n", "\n  "))
	}
}

// headers shows those that are about the event, or all.
func (l *listener) headers(h http.Header) {
	var names []string
	for name := range h {
		low := strings.ToLower(name)
		about := strings.HasPrefix(low, "webhook-") || strings.HasPrefix(low, "surehook-") || strings.Contains(low, "signature") || strings.HasPrefix(low, "x-purplewolf-") || low == "content-type"
		if l.full || about {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	for _, name := range names {
		for _, value := range h[name] {
			l.c.out.line("  %s %s", l.c.out.paint(dim, printable(name)+":"), printable(value))
		}
	}
}

// shown is the body as the screen gets it: JSON is indented, token by token as
// it came.
func (l *listener) shown(r *received) string {
	body := r.body()
	var indented bytes.Buffer
	if !l.raw && json.Indent(&indented, body, "", "  ") == nil {
		body = bytes.TrimSpace(indented.Bytes())
	}
	if l.full || len(body) <= maxShown {
		return string(body)
	}
	cut := body[:maxShown]
	for len(cut) > 0 && !utf8.RuneStart(body[len(cut)]) {
		cut = cut[:len(cut)-1]
	}
	return fmt.Sprintf("%s … and %d bytes more", cut, len(body)-len(cut))
}

// printable keeps a stranger's text from steering the terminal.
func printable(s string) string {
	return strings.Map(func(r rune) rune {
		if r == '\n' || r == '\t' || unicode.IsPrint(r) {
			return r
		}
		return '�'
	}, s)
}
