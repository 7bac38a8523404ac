package api

import (
	"bytes"
	"crypto/sha256"
	"encoding/base32"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"strconv"
	"strings"

	"github.com/surehook/surehook"
	"github.com/surehook/surehook/engine"
)

const (
	eventOverhead = 64 << 10 // an event's fields beside its data
	bigBody       = 64 << 10 // bodies from here on share bodyBudget
	bodyBudget    = 64 << 20
)

// publishOne answers POST /v1/events.
func (s *server) publishOne(w http.ResponseWriter, r *http.Request, c *call) ([]byte, error) {
	name, err := idempotencyKey(r)
	if err != nil {
		return nil, err
	}
	as, err := formOf(r, false)
	if err != nil {
		return nil, err
	}
	body, done, err := s.body(w, r, s.opt.MaxEventBytes+eventOverhead, as == formBinary)
	if err != nil {
		return nil, err
	}
	defer done()
	ev := surehook.Event{Trace: traceparent(r.Header)}
	if err := s.decode(r, as, body, "", &ev, c); err != nil {
		return nil, err
	}
	if 2*len(ev.Data) < len(body) {
		ev.Data = bytes.Clone(ev.Data) // not to hold what surrounds it
	}
	s.identify(&ev, name, -1)
	rc, err := s.e.Publish(r.Context(), ev)
	if err != nil {
		return nil, unknownOutcome(err, ev.ID)
	}
	s.counted(c, &ev, &rc)
	return append(receipt(make([]byte, 0, 128), &rc), '\n'), nil
}

// unknownOutcome adds the ids to publish with again, where the store can't tell.
func unknownOutcome(err error, ids ...string) error {
	if surehook.CodeOf(err) != surehook.Unavailable {
		return err
	}
	return &unknown{error: err, ids: ids}
}

// decode reads one event and settles its tenant and its schema.
func (s *server) decode(r *http.Request, as form, body []byte, prefix string, ev *surehook.Event, c *call) error {
	d := decoder{prefix: prefix}
	var err error
	switch as {
	case formBinary:
		d.cloudHeaders(r.Header, body, ev)
	case formStructured, formBatch:
		err = d.cloudEvent(body, ev)
	default:
		err = d.event(body, ev)
	}
	if err != nil {
		if prefix != "" {
			return surehook.Invalid(strings.TrimSuffix(prefix, "."), err.Error())
		}
		return bodyError(err)
	}
	if err := d.err(); err != nil {
		return err
	}
	if ev.Tenant, err = c.scope(ev.Tenant); err != nil {
		return err
	}
	if c.partner() != "" && ev.Tenant == "" {
		return surehook.Invalid(prefix+"tenant_id", "is required with a partner's key: whose event it is")
	}
	return s.types.check(r.Context(), ev.Type, ev.Content())
}

// identify gives an event without an id one: from the Idempotency-Key, so that
// the store's own test for repeats answers, or a new one.
func (s *server) identify(ev *surehook.Event, name string, index int) {
	switch {
	case ev.ID != "":
	case name != "":
		sum := sha256.Sum256(fmt.Appendf(nil, "surehook event\x00%s\x00%s\x00%d", ev.Tenant, name, index))
		ev.ID = "evt_" + base32.HexEncoding.EncodeToString(sum[:20])
	default:
		ev.ID = s.e.NewID("evt")
	}
}

// publishMany answers POST /v1/events/batch.
func (s *server) publishMany(w http.ResponseWriter, r *http.Request, c *call) ([]byte, error) {
	name, err := idempotencyKey(r)
	if err != nil {
		return nil, err
	}
	as, err := formOf(r, true)
	if err != nil {
		return nil, err
	}
	body, done, err := s.body(w, r, maxBatchBody, false)
	if err != nil {
		return nil, err
	}
	defer done()
	read := batch
	if as == formBatch {
		read = cloudBatch
	}
	raw, err := read(body)
	if err != nil {
		return nil, err
	}
	receipts := make([]engine.Receipt, len(raw))
	good, where := make([]surehook.Event, 0, len(raw)), make([]int, 0, len(raw))
	ids := make([]string, 0, len(raw))
	trace := traceparent(r.Header)
	for i := range raw {
		ev := surehook.Event{Trace: trace}
		if receipts[i].Err = s.decode(r, as, raw[i], fmt.Sprintf("events[%d].", i), &ev, c); receipts[i].Err != nil {
			continue
		}
		ev.Data = bytes.Clone(ev.Data) // one event in a lane must not hold the whole body
		s.identify(&ev, name, i)
		good, where, ids = append(good, ev), append(where, i), append(ids, ev.ID)
	}
	if len(good) > 0 {
		rs, err := s.e.Enqueue(r.Context(), good...)
		if err != nil {
			return nil, unknownOutcome(err, ids...)
		}
		for j := range rs {
			s.counted(c, &good[j], &rs[j])
			receipts[where[j]] = rs[j]
		}
	}
	return s.results(receipts, c), nil
}

func (s *server) results(receipts []engine.Receipt, c *call) []byte {
	b := append(make([]byte, 0, 80*len(receipts)+16), `{"results":[`...)
	for i := range receipts {
		if i > 0 {
			b = append(b, ',')
		}
		if receipts[i].Err == nil {
			b = receipt(b, &receipts[i])
			continue
		}
		b = append(b, s.refusal(i, receipts[i].Err, c)...)
	}
	return append(b, "]}\n"...)
}

// refusal is one event's error, with its paths as they stand in the batch.
func (s *server) refusal(i int, err error, c *call) []byte {
	p := s.problem(c.requestID, err)
	prefix := fmt.Sprintf("events[%d]", i)
	out := BatchResult{Error: &BatchError{Code: p.Code, Message: p.Detail, Errors: make([]surehook.FieldError, len(p.Errors))}}
	for j, f := range p.Errors {
		switch {
		case strings.HasPrefix(f.Path, prefix):
		case f.Path == "body":
			f.Path = prefix
		default: // the engine and the catalogue don't know about batches
			f.Path = prefix + "." + f.Path
		}
		out.Error.Errors[j] = f
	}
	b, err := json.Marshal(out)
	if err != nil {
		return []byte(`{"error":{"code":"internal","message":""}}`) // strings always marshal
	}
	return b
}

// counted leaves out of a receipt's deliveries those to endpoints that the caller
// doesn't see: that others subscribe to a tenant's events isn't for it to know.
func (s *server) counted(c *call, ev *surehook.Event, r *engine.Receipt) {
	if r.Deliveries > 0 && !c.platform() {
		r.Deliveries = s.e.Matching(*ev, c.seesEndpoint)
	}
}

// receipt appends {id, duplicate, deliveries}.
func receipt(b []byte, r *engine.Receipt) []byte {
	b = append(b, `{"id":"`...)
	b = append(b, r.ID...) // letters, digits and _:- need no escape
	b = append(b, `","duplicate":`...)
	b = strconv.AppendBool(b, r.Duplicate)
	b = append(b, `,"deliveries":`...)
	b = strconv.AppendInt(b, int64(r.Deliveries), 10)
	return append(b, '}')
}

// body reads a request's body up to limit. done gives its memory back to the
// budget that large bodies share.
func (s *server) body(w http.ResponseWriter, r *http.Request, limit int, mayBeEmpty bool) (body []byte, done func(), err error) {
	size := r.ContentLength
	if size > int64(limit) {
		return nil, nil, tooLarge(limit)
	}
	if size < 0 {
		size = int64(limit)
	}
	done = func() {}
	if size >= bigBody {
		if err := s.bodies.Acquire(r.Context(), size); err != nil {
			return nil, nil, err
		}
		done = func() { s.bodies.Release(size) }
	}
	if r.ContentLength >= 0 {
		body = make([]byte, r.ContentLength)
		_, err = io.ReadFull(r.Body, body)
	} else {
		body, err = io.ReadAll(http.MaxBytesReader(w, r.Body, int64(limit)))
	}
	if err == nil && len(body) == 0 && !mayBeEmpty {
		err = surehook.Invalid("body", "is required")
	}
	if err != nil {
		done()
		return nil, nil, readError(err, limit)
	}
	return body, done, nil
}

func readError(err error, limit int) error {
	if _, ok := errors.AsType[*http.MaxBytesError](err); ok {
		return tooLarge(limit)
	}
	if _, ok := errors.AsType[*surehook.Error](err); ok {
		return err
	}
	return newProblem(codeTimeout, "the request's body didn't arrive whole", nil)
}

func tooLarge(limit int) error {
	return surehook.Errorf(surehook.TooLarge, "the request's body is over %d bytes", limit)
}

// checkMedia refuses a body that doesn't claim to be JSON. No claim is fine.
func checkMedia(r *http.Request) error {
	ct := r.Header.Get("Content-Type")
	if ct == "" || ct == "application/json" {
		return nil
	}
	media, params, err := mime.ParseMediaType(ct)
	if charset := params["charset"]; err == nil && media == "application/json" && (charset == "" || strings.EqualFold(charset, "utf-8")) {
		return nil
	}
	return newProblem(codeMedia, "send Content-Type: application/json, in UTF-8", nil)
}

// idempotencyKey reads the header, and refuses one that can't be kept.
func idempotencyKey(r *http.Request) (string, error) {
	v := r.Header.Get("Idempotency-Key")
	if len(v) > 255 {
		return "", surehook.Invalid("Idempotency-Key", "is over 255 characters")
	}
	return v, nil
}

// traceparent gives the publisher's trace context when it is a valid one of
// version 00; anything else is as if it weren't there, as the standard has it.
func traceparent(h http.Header) string {
	v := h["Traceparent"]
	if len(v) != 1 || len(v[0]) != 55 {
		return ""
	}
	t := v[0]
	if t[:3] != "00-" || t[35] != '-' || t[52] != '-' || !hexDigits(t[3:35]) || !hexDigits(t[36:52]) || !hexDigits(t[53:]) {
		return ""
	}
	if strings.Trim(t[3:35], "0") == "" || strings.Trim(t[36:52], "0") == "" {
		return ""
	}
	return t
}

func hexDigits(s string) bool {
	for i := range len(s) {
		if c := s[i]; (c < '0' || c > '9') && (c < 'a' || c > 'f') {
			return false
		}
	}
	return true
}
