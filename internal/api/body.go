package api

import (
	"bytes"
	"io"
	"net/http"

	"github.com/danielgtaylor/huma/v2"

	"github.com/surehook/surehook"
)

// checkBody refuses a body that isn't JSON, where the document has one, and
// anything but nothing or {} where it has none: what would be ignored is more
// likely a mistake of the caller's.
func checkBody(w http.ResponseWriter, r *http.Request, op *huma.Operation) error {
	switch {
	case r.Method == http.MethodGet || r.Method == http.MethodHead || r.Body == nil || r.ContentLength == 0:
		return nil
	case op.RequestBody != nil:
		return checkMedia(r)
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	if err != nil {
		return readError(err, maxBody)
	}
	if len(bytes.TrimSpace(body)) == 0 {
		return nil
	}
	if err := checkMedia(r); err != nil {
		return err
	}
	s, d := scanner{b: body}, decoder{}
	if s.next() != '{' {
		return surehook.Invalid("body", "this route takes none: leave it out, or send {}")
	}
	err = s.members(func(name string, _ []byte) error {
		d.refuse(name, "is not a known field: this route takes no body")
		return nil
	})
	if err == nil {
		err = s.end()
	}
	if err != nil {
		return bodyError(err)
	}
	return d.err()
}
