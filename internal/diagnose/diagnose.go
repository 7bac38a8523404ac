// Package diagnose finds out why a request's signature is wrong: which single
// thing, or which two, would make it right. It tries the mistakes that people
// make: with secrets, bodies, timestamps, ids and headers.
//
// It guarantees that a cause is named only when the signature matches once it
// is mended, or when it is plain to see; a guess is called one. A secret is
// never part of what it says.
package diagnose

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/surehook/surehook/signing"
)

// Input is a request as it was captured, and what it is to be judged by.
type Input struct {
	Scheme    string   // one of Schemes
	Secrets   []string // as somebody pasted them
	Header    http.Header
	Body      []byte
	Now       time.Time
	Tolerance time.Duration // 0: any age
	Search    time.Duration // how far around the stated time others are tried
}

// Cause is something that is wrong.
type Cause struct {
	Code   string `json:"code"`
	Text   string `json:"text"`
	Advice string `json:"advice,omitempty"`
}

// Verdict is what was found.
type Verdict struct {
	Valid   bool  // it would be accepted
	Matches bool  // the signature is right, whatever the time
	Reason  error // of package signing, or *signing.KeyError; nil when valid
	Causes  []Cause
}

// anyAge is a tolerance that leaves the time out.
const anyAge = time.Duration(math.MaxInt64)

// Judge verifies a request, and explains a refusal. The error says that the
// question is wrong: no such scheme, no secret.
func Judge(in Input) (Verdict, error) {
	s, ok := schemes[in.Scheme]
	if !ok {
		return Verdict{}, fmt.Errorf("unknown scheme; it must be %s", strings.Join(Schemes(), ", "))
	}
	if len(in.Secrets) == 0 {
		return Verdict{}, signing.ErrNoKey
	}
	if len(in.Secrets) > signing.MaxKeys {
		return Verdict{}, signing.ErrTooManyKeys
	}
	var v Verdict
	right := s.verify(in, anyAge)
	v.Matches, v.Reason = right == nil, right
	if v.Matches && in.Tolerance > 0 && s.ts != "" {
		v.Reason = s.verify(in, in.Tolerance)
	}
	v.Valid = v.Reason == nil
	switch {
	case v.Valid:
	case v.Matches:
		v.Causes = []Cause{skew(in, s)}
	default:
		v.Causes = explain(in, s, right)
	}
	return v, nil
}

// skew says by how much the time is off.
func skew(in Input, s scheme) Cause {
	sent := time.Unix(seconds(s.stamp(in.Header)), 0)
	off := in.Now.Sub(sent).Truncate(time.Second)
	if off > 0 {
		return Cause{"clock_skew", fmt.Sprintf("the timestamp is %s old, and %s are allowed; the signature itself is right", off, in.Tolerance),
			"a request that has just come means that a clock is wrong: synchronise both; one that was captured earlier is too old by now"}
	}
	return Cause{"clock_skew", fmt.Sprintf("the timestamp is %s ahead of this clock, and %s are allowed; the signature itself is right", -off, in.Tolerance),
		"a clock is wrong, this one or the sender's: synchronise both"}
}

func seconds(ts string) int64 {
	n, err := strconv.ParseInt(ts, 10, 64)
	if err != nil {
		return 0
	}
	return n
}

// attempt is one way to read the request, and what had to be mended for it.
type attempt struct {
	what  *Cause // nil: as it is
	id    string
	ts    string
	body  []byte
	test  tester
	order int // of its axis
}

// tester gives the reading of the signatures that fits under one key; nil: none.
type tester func(sigs *signatures, id, ts string, body []byte) *signatures

// explain finds the causes of a signature that doesn't match.
func explain(in Input, s scheme, reason error) []Cause {
	plain := plainly(in, s, reason)
	if len(in.Body) > maxTried {
		return append(plain, Cause{"not_tried", fmt.Sprintf("the body is over %d bytes: mistakes with it weren't tried", maxTried), ""})
	}
	if found := search(in, s); len(found) > 0 {
		return merge(plain, found)
	}
	if len(plain) > 0 {
		return plain
	}
	return []Cause{unknown(in)}
}

// The longest bodies that are tried with one change, and with two, in bytes:
// a second's work at most.
const (
	maxTried      = 4 << 20
	maxTriedTwice = 64 << 10
)

// unknown is the last word, when nothing that was tried helps.
func unknown(in Input) Cause {
	if len(in.Body) == 0 {
		return Cause{"body_empty", "the body is empty, and no signature is of an empty body", "something read the body before it was captured: take the raw bytes first"}
	}
	return Cause{"wrong_secret", "nothing that was tried makes it match: most likely the secret is another endpoint's, or one from before a rotation",
		"compare the secret with the endpoint's (surehook webhooks rotate-secret gives a new one); if it is right, the body was changed in a way that isn't known here"}
}

// search tries one change, then two.
func search(in Input, s scheme) []Cause {
	base := attempt{id: s.ident(in.Header), ts: s.stamp(in.Header), body: in.Body}
	axes := [][]attempt{keyAxis(in, s), bodyAxis(in), timeAxis(base.ts), idAxis(in, s, base.id)}
	sigs := s.signatures(in.Header)
	if c := tryAll(base, sigs, axes, false); c != nil {
		return c
	}
	if c := tryTimes(in, base, sigs, axes[0]); c != nil {
		return c
	}
	if len(in.Body) > maxTriedTwice {
		return nil
	}
	return tryAll(base, sigs, axes, true)
}

// tryAll goes through one axis at a time, or through two. The first element of
// each axis is the request as it is; of the keys, there may be several such.
func tryAll(base attempt, sigs *signatures, axes [][]attempt, two bool) []Cause {
	for i := range axes {
		for j := i; j < len(axes); j++ {
			if (j > i) != two {
				continue
			}
			for _, a := range axes[i] {
				for _, b := range axes[j] {
					if j == i {
						b = attempt{}
					}
					if c := try(base, sigs, axes[0], a, b); c != nil {
						return c
					}
					if j == i {
						break
					}
				}
			}
		}
	}
	return nil
}

// try applies two changes and tests the result under the keys.
func try(base attempt, sigs *signatures, keys []attempt, changes ...attempt) []Cause {
	at := base
	var causes []Cause
	for _, c := range changes {
		if c.what == nil && c.test == nil {
			continue
		}
		if c.what != nil {
			causes = append(causes, *c.what)
		}
		at = at.changed(c)
	}
	if at.test != nil {
		return hit(at.test, at, sigs, causes)
	}
	for _, k := range keys {
		if k.what == nil {
			if c := hit(k.test, at, sigs, causes); c != nil {
				return c
			}
		}
	}
	return nil
}

func (a attempt) changed(c attempt) attempt {
	switch c.order {
	case orderKey:
		a.test = c.test
	case orderBody:
		a.body = c.body
	case orderTime:
		a.ts = c.ts
	case orderID:
		a.id = c.id
	}
	return a
}

// The axes.
const (
	orderKey = iota
	orderBody
	orderTime
	orderID
)

func hit(test tester, at attempt, sigs *signatures, causes []Cause) []Cause {
	read := test(sigs, at.id, at.ts, at.body)
	if read != nil && read.how != nil {
		causes = append(causes, *read.how)
	}
	if read == nil || len(causes) == 0 { // one that matches as it is: what was wrong is said elsewhere
		return nil
	}
	return causes
}

// tryTimes looks for the time that was signed around the one that is stated.
func tryTimes(in Input, base attempt, sigs *signatures, keys []attempt) []Cause {
	stated, err := strconv.ParseInt(base.ts, 10, 64)
	if err != nil || in.Search <= 0 {
		return nil
	}
	most := int64(in.Search / time.Second)
	if budget := int64(256<<20) / int64(len(base.body)+256); most > budget { // bytes to be hashed
		most = budget
	}
	for d := int64(1); d <= most; d++ {
		for _, ts := range []int64{stated - d, stated + d} {
			at := base
			at.ts = strconv.FormatInt(ts, 10)
			for _, k := range keys {
				if k.what == nil && k.test(sigs, at.id, at.ts, at.body) != nil {
					return []Cause{{"wrong_timestamp", fmt.Sprintf("the signature is of timestamp %d, and the header says %d", ts, stated),
						"each attempt has its own timestamp and signature: take both from the same request"}}
				}
			}
		}
	}
	return nil
}

// plainly names what is wrong without trying: headers that are missing or
// misnamed, secrets that can't be read.
func plainly(in Input, s scheme, reason error) []Cause {
	var causes []Cause
	for _, name := range s.names() {
		values := in.Header.Values(name)
		switch {
		case len(values) == 0 || values[0] == "":
			c := Cause{"missing_header", "the header " + name + " is missing", "a proxy may have dropped it, or the request is another sender's"}
			if other := lookalike(in.Header, name); other != "" {
				c.Text += "; there is one named " + other
				c.Advice = "the receiver, or what stands before it, renamed the header: read it under the name that was sent"
			}
			causes = append(causes, c)
		case len(values) > 1:
			causes = append(causes, Cause{"repeated_header", "the header " + name + " is there " + strconv.Itoa(len(values)) + " times; the first one counts here", "which one a receiver takes is chance: refuse such requests"})
		}
	}
	switch {
	case errors.Is(reason, signing.ErrMalformedID):
		causes = append(causes, Cause{"id_with_dot", "the id holds a dot, which separates the signed parts", "such an id can't be signed unambiguously; no sender makes one"})
	case errors.Is(reason, signing.ErrMalformedTimestamp):
		causes = append(causes, badTimestamp(s.stamp(in.Header)))
	case errors.Is(reason, signing.ErrNoKnownVersion):
		causes = append(causes, Cause{"no_known_version", "the header has no signature of the version that this secret verifies", "a whsec_ secret verifies v1, a whpk_ key v1a; purple-wolf and GitHub begin with sha256="})
	}
	var bad *signing.KeyError
	if errors.As(reason, &bad) {
		causes = append(causes, Cause{"secret_invalid", "the secret can't be used as it is: " + bad.Reason.Error() + ": " + bad.Detail, "copy it again, whole"})
	}
	return causes
}

func badTimestamp(ts string) Cause {
	c := Cause{"bad_timestamp", "the timestamp isn't a number of Unix seconds", "it must be sent and signed as decimal digits"}
	if _, err := time.Parse(time.RFC3339, ts); err == nil {
		c.Text += ": it is a date"
	}
	return c
}

// lookalike finds a header that may be the missing one under another name.
func lookalike(h http.Header, name string) string {
	bare := func(s string) string {
		s = strings.NewReplacer("-", "", "_", "").Replace(strings.ToLower(s))
		return strings.TrimPrefix(strings.TrimPrefix(s, "http"), "x")
	}
	want := bare(name)
	for other := range h {
		got := bare(other)
		if got == want || strings.Replace(got, "svix", "webhook", 1) == want {
			return other
		}
	}
	return ""
}

// merge puts what was seen before what was found, each code once. A secret
// that can't be read is explained by how it can be mended.
func merge(plain, found []Cause) []Cause {
	var out []Cause
	seen := map[string]bool{}
	for _, c := range append(plain, found...) {
		if c.Code == "secret_invalid" || c.Code == "no_known_version" || seen[c.Code] {
			continue
		}
		seen[c.Code] = true
		out = append(out, c)
	}
	return out
}

// timeAxis has the slips with a timestamp's unit and text.
func timeAxis(ts string) []attempt {
	axis := []attempt{{order: orderTime}}
	add := func(code, text, other string) {
		if other != ts {
			axis = append(axis, attempt{order: orderTime, ts: other, what: &Cause{code, text, "give the header's value as it came"}})
		}
	}
	add("timestamp_space", "white space is around the timestamp", strings.TrimSpace(ts))
	if n, err := strconv.ParseInt(ts, 10, 64); err == nil {
		if n > 1e11 {
			add("timestamp_milliseconds", "the timestamp is in milliseconds, and seconds were signed", strconv.FormatInt(n/1000, 10))
		} else {
			add("timestamp_seconds", "the timestamp is in seconds, and milliseconds were signed", strconv.FormatInt(n*1000, 10))
		}
		add("timestamp_zeros", "the timestamp has leading zeros or a sign", strconv.FormatInt(n, 10))
	}
	if t, err := time.Parse(time.RFC3339, ts); err == nil {
		add("timestamp_date", "the timestamp was turned into a date", strconv.FormatInt(t.Unix(), 10))
	}
	return axis
}

// idAxis has the other ids that a request may hold.
func idAxis(in Input, s scheme, id string) []attempt {
	axis := []attempt{{order: orderID}}
	if s.id == "" {
		return axis
	}
	add := func(text, other string) {
		if other != "" && other != id {
			axis = append(axis, attempt{order: orderID, id: other, what: &Cause{"wrong_id", text, "the id that is signed is the value of " + s.id + ", as it came"}})
		}
	}
	add("white space is around the id", strings.TrimSpace(id))
	add("the id's case was changed", strings.ToLower(id))
	add("the id is quoted", strings.Trim(id, `"'`))
	for _, name := range []string{"id", "event_id", "eventId", "delivery_id"} {
		add("the signature is of another id, the one in the body as "+name, text(in.Body, name))
	}
	for name, values := range in.Header {
		if low := strings.ToLower(name); len(values) > 0 && strings.HasSuffix(low, "id") && !strings.EqualFold(name, s.id) {
			add("the signature is of another id, the one in the header "+name, values[0])
		}
	}
	if upper := strings.ToUpper(id); strings.Contains(id, "_") {
		i := strings.Index(id, "_")
		add("the id's case was changed", id[:i]+upper[i:])
	}
	return axis
}

var crlf, lf = []byte("\r\n"), []byte("\n")

// lineEnds and the like are the bodies that aren't JSON's business.
func lineEnds(body []byte, add func(code, text, advice string, other []byte)) {
	const editors = "save the body byte for byte: editors and shells add a line break at the end (printf %s, curl --data-binary @file)"
	trimmed := bytes.TrimRight(body, "\r\n")
	add("trailing_newline", "the body has a line break at its end that wasn't signed", editors, bytes.TrimSuffix(bytes.TrimSuffix(body, lf), []byte("\r")))
	add("trailing_newline", "the body has line breaks at its end that weren't signed", editors, trimmed)
	add("newline_missing", "the line break at the body's end is missing", "something trimmed the body: take the raw bytes", append(bytes.Clone(trimmed), '\n'))
	add("newline_missing", "the line break at the body's end is missing, a CR LF", "something trimmed the body: take the raw bytes", append(bytes.Clone(trimmed), crlf...))
	add("body_space", "white space around the body wasn't signed", "take the raw bytes", bytes.TrimSpace(body))
	add("line_ends", "the body's line ends were changed from LF to CR LF", "copy it as binary", bytes.ReplaceAll(body, crlf, lf))
	add("line_ends", "the body's line ends were changed from CR LF to LF", "copy it as binary", bytes.ReplaceAll(bytes.ReplaceAll(body, crlf, lf), lf, crlf))
	bom := []byte("\ufeff")
	add("byte_order_mark", "a byte order mark was put before the body", "save it without one", bytes.TrimPrefix(body, bom))
}
