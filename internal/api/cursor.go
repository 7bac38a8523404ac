package api

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"

	"github.com/surehook/surehook"
)

// A cursor is a version, a key, and a check over both and the listing, so that
// a mangled one, or one of another listing, is refused and not misread.
const (
	cursorVersion = 1
	checkLen      = 4
	cursorLen     = 1 + 8 + checkLen
)

// Listing is what every listing takes.
type Listing struct {
	Cursor string `query:"cursor" doc:"The last page's next" maxLength:"64"`
	Limit  int    `query:"limit" doc:"Rows a page" minimum:"1" maximum:"1000" default:"100"`
}

// list is one page.
type list[T any] struct {
	Items []T    `json:"items"`
	Next  string `json:"next,omitempty" doc:"The cursor of the next page; absent on the last one"`
}

type listOut[T any] struct{ Body list[T] }

func cursor(kind string, key int64) string {
	b := binary.BigEndian.AppendUint64([]byte{cursorVersion}, uint64(key))
	b = append(b, cursorCheck(kind, b)...)
	return base64.RawURLEncoding.EncodeToString(b)
}

func cursorCheck(kind string, b []byte) []byte {
	sum := sha256.Sum256(append([]byte(kind+"\x00"), b...))
	return sum[:checkLen]
}

// page reads the inputs.
func (l Listing) page(kind string) (surehook.Page, error) {
	p := surehook.Page{Limit: l.Limit}
	if p.Limit == 0 {
		p.Limit = 100
	}
	if l.Cursor == "" {
		return p, nil
	}
	b, err := base64.RawURLEncoding.Strict().DecodeString(l.Cursor)
	if err != nil || len(b) != cursorLen || b[0] != cursorVersion || string(cursorCheck(kind, b[:9])) != string(b[9:]) {
		return p, surehook.Invalid("cursor", "isn't one that this listing gave")
	}
	p.Cursor = int64(binary.BigEndian.Uint64(b[1:9]))
	return p, nil
}

// sifted makes a page of rows of which the caller sees only some. It reads on until
// the page is full of those: a short or an empty one with a next would tell that
// there are others.
func sifted[R, V any](kind string, p surehook.Page, read func(surehook.Page) ([]R, error), key func(R) int64, view func(R) (V, bool)) (*listOut[V], error) {
	out := &listOut[V]{}
	out.Body.Items = make([]V, 0)
	full := p.Limit
	for p.Limit = max(full, 100); ; {
		rows, err := read(p)
		if err != nil {
			return nil, err
		}
		for _, r := range rows {
			p.Cursor = key(r)
			if v, ok := view(r); ok {
				out.Body.Items = append(out.Body.Items, v)
			}
			if len(out.Body.Items) == full {
				out.Body.Next = cursor(kind, p.Cursor)
				return out, nil
			}
		}
		if len(rows) < p.Limit {
			return out, nil
		}
	}
}

// paged makes a page of rows. keep may hide some; the next page starts after
// the last row read, shown or not.
func paged[R, V any](kind string, p surehook.Page, rows []R, key func(R) int64, view func(R) (V, bool)) *listOut[V] {
	out := &listOut[V]{}
	out.Body.Items = make([]V, 0, len(rows))
	for _, r := range rows {
		if v, ok := view(r); ok {
			out.Body.Items = append(out.Body.Items, v)
		}
	}
	if len(rows) >= p.Limit {
		out.Body.Next = cursor(kind, key(rows[len(rows)-1]))
	}
	return out
}
