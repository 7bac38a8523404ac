package api

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"mime"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/surehook/surehook"
)

// CloudEvents 1.0 by its HTTP binding and JSON format, into events of ours. What
// an event has no field for is kept in its data; see surehook.CloudEvent.

// form is how a request holds its events.
type form uint8

const (
	formPlain      form = iota // our own JSON
	formStructured             // one CloudEvent as JSON
	formBinary                 // its data; the attributes are headers
	formBatch                  // an array of structured ones
)

const (
	mediaCloudEvent = "application/cloudevents+json"
	mediaBatch      = "application/cloudevents-batch+json"
	maxSummary      = 4096 // bytes: it takes the place of data that is too large
)

// formOf tells what a request holds, by its headers as the binding has it.
func formOf(r *http.Request, many bool) (form, error) {
	ct := r.Header.Get("Content-Type")
	if len(ct) >= len("application/cloudevents") && strings.EqualFold(ct[:len("application/cloudevents")], "application/cloudevents") {
		return cloudForm(ct, many)
	}
	if !many {
		for _, name := range [...]string{"Ce-Specversion", "Ce-Id", "Ce-Type", "Ce-Source"} {
			if len(r.Header[name]) > 0 {
				return formBinary, nil
			}
		}
	}
	return formPlain, checkMedia(r)
}

func cloudForm(ct string, many bool) (form, error) {
	media, params, err := mime.ParseMediaType(ct)
	switch charset := params["charset"]; {
	case err != nil || charset != "" && !strings.EqualFold(charset, "utf-8"):
		return 0, newProblem(codeMedia, "send CloudEvents in UTF-8", nil)
	case media == mediaCloudEvent && !many:
		return formStructured, nil
	case media == mediaBatch && many:
		return formBatch, nil
	case media == mediaCloudEvent:
		return 0, newProblem(codeMedia, "send one CloudEvent to /v1/events, or a batch as "+mediaBatch, nil)
	case media == mediaBatch:
		return 0, newProblem(codeMedia, "send a batch of CloudEvents to /v1/events/batch", nil)
	}
	return 0, newProblem(codeMedia, "send CloudEvents as "+mediaCloudEvent+" or "+mediaBatch+", or in binary mode", nil)
}

// cloudBatch cuts a batch of CloudEvents.
func cloudBatch(body []byte) ([][]byte, error) {
	s := scanner{b: body}
	if s.next() != '[' {
		return nil, surehook.Invalid("body", "must be an array of CloudEvents")
	}
	v, err := s.value()
	if err == nil {
		err = s.end()
	}
	var out [][]byte
	if err == nil {
		out, err = cut(v)
	}
	if err != nil {
		return nil, bodyError(err)
	}
	return counted(out, "body")
}

// cloud gathers one CloudEvent.
type cloud struct {
	*decoder
	ev       *surehook.Event
	out      surehook.CloudEvent
	seen     map[string]bool
	subjects []string
}

// cloudEvent decodes a structured one.
func (d *decoder) cloudEvent(body []byte, ev *surehook.Event) error {
	s := scanner{b: body}
	if s.next() != '{' {
		d.refuse("body", "must be a CloudEvent, a JSON object")
		return nil
	}
	c := cloud{decoder: d, ev: ev, seen: make(map[string]bool, 12)}
	err := s.members(func(name string, v []byte) error {
		if c.seen[name] {
			d.refuse(name, "is given twice")
		} else if c.seen[name] = true; string(v) != "null" || name == "data" { // null: as if it weren't there
			c.member(name, v)
		} else if name != "data_base64" {
			delete(c.seen, name)
		}
		return nil
	})
	if err == nil {
		err = s.end()
	}
	if err == nil {
		c.finish()
	}
	return err
}

// member takes a JSON member: its value becomes a string, a bool or a number.
func (c *cloud) member(name string, v []byte) {
	switch {
	case name == "data":
		c.content(v, false)
	case name == "data_base64":
		var s string
		if !c.text(name, v, &s) {
			return
		}
		data, err := base64.StdEncoding.DecodeString(s)
		if err != nil {
			c.refuse(name, "must be base64")
			return
		}
		c.content(binaryContent(data), true)
	case v[0] == '"':
		var s string
		if c.text(name, v, &s) {
			c.attribute(name, s)
		}
	case string(v) == "true" || string(v) == "false":
		c.attribute(name, string(v) == "true")
	case name == "subjects" && v[0] == '[':
		c.list(v)
	default:
		n, err := strconv.ParseInt(string(v), 10, 32)
		if err != nil || strconv.FormatInt(n, 10) != string(v) {
			c.refuse(name, "must be a string, true or false, or a whole number of 32 bits")
			return
		}
		c.attribute(name, n)
	}
}

func (c *cloud) content(v []byte, base64 bool) {
	if c.out.Content != nil {
		c.refuse("data_base64", "and data are both given")
		return
	}
	c.out.Content, c.out.Base64 = v, base64
}

func binaryContent(data []byte) []byte {
	b := make([]byte, 0, base64.StdEncoding.EncodedLen(len(data))+2)
	return append(base64.StdEncoding.AppendEncode(append(b, '"'), data), '"')
}

// list takes subjects as an array, which CloudEvents itself doesn't have.
func (c *cloud) list(v []byte) {
	var ev surehook.Event
	c.decoder.subjects(v, &ev)
	for i, s := range ev.Subjects {
		if strings.Contains(s, ",") {
			c.refuse(fmt.Sprintf("subjects[%d]", i), "must have no comma: a CloudEvent has no arrays, and goes on with its subjects in one string")
		}
	}
	c.subjects = ev.Subjects
}

// attribute takes a string, bool or int64. Names are those of CloudEvents in
// every mode.
func (c *cloud) attribute(name string, v any) {
	switch name {
	case "specversion":
		if v != "1.0" {
			c.refuse(name, "must be 1.0")
		}
	case "id":
		c.filled(name, v, &c.ev.ID)
	case "type":
		c.filled(name, v, &c.ev.Type)
	case "source":
		if c.filled(name, v, &c.out.Source) {
			if _, err := url.Parse(c.out.Source); err != nil {
				c.refuse(name, "must be a URI reference")
			}
		}
	case "subject":
		c.filled(name, v, &c.out.Subject)
	case "time":
		if c.filled(name, v, &c.out.Time) {
			c.at(name, c.out.Time, &c.ev.OccurredAt)
		}
	case "datacontenttype":
		if c.filled(name, v, &c.out.DataContentType) {
			if _, _, err := mime.ParseMediaType(c.out.DataContentType); err != nil {
				c.refuse(name, "must be a media type")
			}
		}
	case "dataschema":
		if c.filled(name, v, &c.out.DataSchema) {
			if u, err := url.Parse(c.out.DataSchema); err != nil || !u.IsAbs() {
				c.refuse(name, "must be a URI with its scheme")
			}
		}
	default:
		c.extension(name, v)
	}
}

func (c *cloud) filled(name string, v any, to *string) bool {
	s, ok := v.(string)
	if !ok {
		c.refuse(name, "must be a string")
	} else if strings.TrimSpace(s) == "" {
		c.refuse(name, "must not be empty")
		return false
	}
	*to = s
	return ok
}

// extension takes those that mean something here as what they are, whatever type
// they were written as, so that both modes give the same event.
func (c *cloud) extension(name string, v any) {
	switch name {
	case "subjects":
		c.commas(v)
		return
	case "terminal":
		if s, ok := v.(string); ok && (s == "true" || s == "false") {
			v = s == "true"
		}
		if _, ok := v.(bool); !ok {
			c.refuse(name, "must be true or false")
			return
		}
	case "seq":
		if s, ok := v.(string); ok {
			if n, err := strconv.ParseInt(s, 10, 64); err == nil {
				v = n
			}
		}
		if n, ok := v.(int64); !ok || n < 0 || n > math.MaxInt32 {
			c.refuse(name, fmt.Sprintf("must be a whole number of 0 to %d", math.MaxInt32))
			return
		}
	case "summary":
		if s, ok := v.(string); !ok || len(s) > maxSummary {
			c.refuse(name, fmt.Sprintf("must be a string of at most %d bytes", maxSummary))
			return
		}
	case "tenantid":
		c.filled(name, v, &c.ev.Tenant)
	case "identityid":
		c.filled(name, v, &c.ev.Identity)
	case "owner":
		c.filled(name, v, &c.ev.Owner)
	}
	if !extensionName(name) {
		c.refuse(name, "is no name of an attribute: those have lower-case letters and digits alone")
		return
	}
	c.extend(name, v)
}

func (c *cloud) extend(name string, v any) {
	if c.out.Extensions == nil {
		c.out.Extensions = make(map[string]any, 8)
	}
	c.out.Extensions[name] = v
}

func extensionName(s string) bool {
	for i := range len(s) {
		if ch := s[i]; (ch < 'a' || ch > 'z') && (ch < '0' || ch > '9') {
			return false
		}
	}
	return s != "" && s != "data"
}

// commas takes subjects as one string.
func (c *cloud) commas(v any) {
	s, ok := v.(string)
	if !ok {
		c.refuse("subjects", "must be an array of strings, or one string with commas between them")
		return
	}
	for one := range strings.SplitSeq(s, ",") {
		if one = strings.TrimSpace(one); one == "" {
			c.refuse("subjects", "holds an empty one")
			return
		}
		c.subjects = append(c.subjects, one)
	}
}

// finish makes the event of what was gathered.
func (c *cloud) finish() {
	for _, name := range [...]string{"specversion", "id", "source", "type"} {
		if !c.seen[name] {
			c.refuse(name, "is required in a CloudEvent")
		}
	}
	if ct := c.out.DataContentType; ct != "" && !jsonMedia(ct) && c.out.Content != nil && c.out.Content[0] != '"' {
		c.refuse("data", "must be a string where datacontenttype isn't JSON")
	}
	if c.out.Subject != "" {
		c.ev.Subjects = append(c.ev.Subjects, c.out.Subject)
	}
	for _, s := range c.subjects {
		if !slices.Contains(c.ev.Subjects, s) {
			c.ev.Subjects = append(c.ev.Subjects, s)
		}
	}
	if len(c.subjects) > 0 {
		c.extend("subjects", strings.Join(c.subjects, ","))
	}
	if trace, ok := c.out.Extensions["traceparent"].(string); ok && c.ev.Trace == "" {
		c.ev.Trace = trace
	}
	c.ev.Data = c.out.Form()
}

// cloudHeaders decodes a binary one.
func (d *decoder) cloudHeaders(h http.Header, body []byte, ev *surehook.Event) {
	c := cloud{decoder: d, ev: ev, seen: make(map[string]bool, 12)}
	for _, key := range slices.Sorted(maps.Keys(h)) {
		name, ok := strings.CutPrefix(key, "Ce-")
		if !ok {
			continue
		}
		name = strings.ToLower(name)
		v, ok := headerText(h[key][0])
		switch c.seen[name] = true; {
		case len(h[key]) > 1:
			d.refuse(name, "is given twice")
		case name == "datacontenttype":
			d.refuse(name, "is the header Content-Type in binary mode")
		case !ok:
			d.refuse(name, "must be valid UTF-8, once its percent-encoding is undone")
		default:
			c.attribute(name, v)
		}
	}
	if ct := h.Get("Content-Type"); ct != "" {
		c.attribute("datacontenttype", ct)
	}
	c.body(body)
	c.finish()
}

// body takes the data of binary mode: JSON as it stands, text as a string, and
// everything else in base64.
func (c *cloud) body(body []byte) {
	ct := c.out.DataContentType
	media, params, err := mime.ParseMediaType(ct)
	charset := strings.ToLower(params["charset"])
	utf := charset == "" || charset == "utf-8" || charset == "us-ascii"
	trimmed := strings.Trim(string(body), " \t\r\n")
	switch {
	case err != nil && ct != "" || len(body) == 0: // the first is refused already
	case ct == "" || jsonMedia(ct):
		if !utf || trimmed == "" || !json.Valid(body) {
			c.refuse("data", "must be one JSON value in UTF-8, as its Content-Type says (none means JSON)")
			return
		}
		c.out.Content = []byte(trimmed)
	case utf && utf8.Valid(body) && (strings.HasPrefix(media, "text/") || strings.HasSuffix(media, "+xml") || media == "application/xml"):
		c.out.Content, err = json.Marshal(string(body))
		if err != nil {
			c.refuse("data", "can't be written as a JSON string")
		}
	default:
		c.content(binaryContent(body), true)
	}
}

// jsonMedia tells media types whose data is a JSON value.
func jsonMedia(ct string) bool {
	media, _, err := mime.ParseMediaType(ct)
	return err == nil && (media == "application/json" || media == "text/json" || strings.HasSuffix(media, "+json"))
}

// headerText undoes what the HTTP binding does to a value: quotes around it, then
// one round of percent-encoding. A percent sign without two hex digits stands for
// itself: not all senders encode.
func headerText(v string) (string, bool) {
	if len(v) >= 2 && v[0] == '"' && v[len(v)-1] == '"' {
		v = unquoteHeader(v[1 : len(v)-1])
	}
	if !strings.Contains(v, "%") {
		return v, utf8.ValidString(v)
	}
	b := make([]byte, 0, len(v))
	for i := 0; i < len(v); i++ {
		if v[i] == '%' && i+2 < len(v) {
			if n, err := strconv.ParseUint(v[i+1:i+3], 16, 8); err == nil {
				b, i = append(b, byte(n)), i+2
				continue
			}
		}
		b = append(b, v[i])
	}
	return string(b), utf8.Valid(b)
}

func unquoteHeader(v string) string {
	b := make([]byte, 0, len(v))
	for i := 0; i < len(v); i++ {
		if v[i] == '\\' && i+1 < len(v) {
			i++
		}
		b = append(b, v[i])
	}
	return string(b)
}

// CloudEventInput is a CloudEvent, for the document.
type CloudEventInput struct {
	_               struct{}        `additionalProperties:"true"`
	SpecVersion     string          `json:"specversion" enum:"1.0"`
	ID              string          `json:"id" maxLength:"200" doc:"At most 200 of A-Z a-z 0-9 _ : -; the webhook-id"`
	Source          string          `json:"source" doc:"A URI reference"`
	Type            string          `json:"type" maxLength:"128" doc:"Dotted name, as of other events"`
	Subject         string          `json:"subject,omitempty" doc:"The first of the event's subjects"`
	Time            *time.Time      `json:"time,omitempty" doc:"The event's occurred_at"`
	DataContentType string          `json:"datacontenttype,omitempty" doc:"Data is a string where it isn't JSON"`
	DataSchema      string          `json:"dataschema,omitempty"`
	Data            json.RawMessage `json:"data,omitempty"`
	DataBase64      string          `json:"data_base64,omitempty"`
	Summary         string          `json:"summary,omitempty" doc:"At most 4096 bytes"`
	Subjects        any             `json:"subjects,omitempty" doc:"Array of strings, or one string with commas between them"`
	Terminal        bool            `json:"terminal,omitempty" doc:"The last event of its subject"`
	Seq             int32           `json:"seq,omitempty" minimum:"0"`
	TenantID        string          `json:"tenantid,omitempty" doc:"The event's tenant_id"`
	IdentityID      string          `json:"identityid,omitempty" doc:"The event's identity_id"`
	Owner           string          `json:"owner,omitempty" doc:"The event's owner"`
}
