package diagnose

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"encoding/base64"
	"encoding/json"
	"io"
	"net/http/httputil"
	"net/url"
	"unicode/utf8"
)

// bodyAxis has the body as it is, and then what may have been signed before
// something changed it.
func bodyAxis(in Input) []attempt {
	axis := []attempt{{order: orderBody}}
	seen := map[string]bool{string(in.Body): true}
	add := func(code, text, advice string, other []byte) {
		if len(other) == 0 || seen[string(other)] {
			return
		}
		seen[string(other)] = true
		axis = append(axis, attempt{order: orderBody, body: other, what: &Cause{code, text, advice}})
	}
	lineEnds(in.Body, add)
	rewritten(in.Body, add)
	decodedBodies(in.Body, add)
	return axis
}

// rewritten are the ways in which the JSON that was signed may have been
// written.
func rewritten(body []byte, add func(code, text, advice string, other []byte)) {
	v, ok := parse(body)
	if !ok {
		return
	}
	for _, s := range styles {
		other := s.write(v)
		for _, end := range []string{"", "\n"} {
			text := "the body was re-serialised: what was signed is the same JSON as " + s.name + " writes it"
			if end != "" {
				text += ", and a line break"
			}
			add("body_reserialised", text, "verify the raw bytes, before anything parses them", append(other[:len(other):len(other)], end...))
		}
	}
}

// decodedBodies undo what frameworks and gateways do to bodies.
func decodedBodies(body []byte, add func(code, text, advice string, other []byte)) {
	const rawBytes = "verify the raw bytes, before anything decodes them"
	var inner string
	if json.Unmarshal(body, &inner) == nil {
		add("body_quoted", "the body is a JSON text that holds what was signed", rawBytes, []byte(inner))
	}
	if b, err := base64.StdEncoding.DecodeString(string(bytes.TrimSpace(body))); err == nil {
		add("body_base64", "the body is in base64, as gateways hand over what they take for binary", "decode it first (isBase64Encoded)", b)
	}
	if z, err := gzip.NewReader(bytes.NewReader(body)); err == nil {
		if b, err := io.ReadAll(io.LimitReader(z, maxTried)); err == nil {
			add("body_compressed", "the body is compressed, and was signed before that", "decompress it first", b)
		}
	}
	if b, err := io.ReadAll(httputil.NewChunkedReader(bufio.NewReader(bytes.NewReader(body)))); err == nil {
		add("body_chunks", "the body is still in chunks", "save the decoded body", b)
	}
	if b, ok := latin1(body); ok {
		add("body_decoded", "the body's UTF-8 was read as Latin-1 and written as UTF-8 again", rawBytes, b)
	}
	add("body_decoded", "the body's UTF-8 was written as Latin-1", rawBytes, widened(body))
	if un, err := url.QueryUnescape(string(body)); err == nil {
		add("body_form", "the body is percent-encoded, as in a form", rawBytes, []byte(un))
	}
}

// latin1 takes each character of UTF-8 for a byte.
func latin1(body []byte) ([]byte, bool) {
	out := make([]byte, 0, len(body))
	wide := false
	for _, r := range string(body) {
		if r > 0xff {
			return nil, false
		}
		wide = wide || r > 0x7f
		out = append(out, byte(r))
	}
	return out, wide
}

// widened takes each byte for a character.
func widened(body []byte) []byte {
	out := make([]byte, 0, len(body))
	for _, b := range body {
		out = utf8.AppendRune(out, rune(b))
	}
	return out
}

// text is a text member of a JSON object; empty: there is none.
func text(body []byte, name string) string {
	var object map[string]json.RawMessage
	var s string
	if json.Unmarshal(body, &object) != nil || json.Unmarshal(object[name], &s) != nil {
		return ""
	}
	return s
}
