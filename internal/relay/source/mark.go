package source

import (
	"crypto/sha256"
	"errors"
	"io"
)

const (
	headBytes = 1024 // of a file's beginning, by which it is known again
	tailBytes = 256  // before a place in it
)

// mark is a place in a file, what stands before it, and how the file begins, so
// that it is known again by more than its number: files are cut and grow anew, and
// numbers are used again.
type mark struct {
	Offset  int64  `json:"offset"`
	HeadLen int64  `json:"head_len"`
	Head    []byte `json:"head,omitempty"` // a hash: what stands in a log is nobody else's business
	Tail    []byte `json:"tail,omitempty"`
}

// blank tells whether nothing is known of the file.
func (m mark) blank() bool { return m.HeadLen == 0 }

// in tells whether a file has what the marked one had. Of a blank one anything is
// as good.
func (m mark) in(f handle) bool {
	head, err := readAt(f, 0, m.HeadLen)
	if err != nil || string(sum(head)) != string(m.Head) {
		return false
	}
	n := min(m.Offset, tailBytes)
	tail, err := readAt(f, m.Offset-n, n)
	return err == nil && string(sum(tail)) == string(m.Tail)
}

// copied tells whether a file is a copy of the marked one, maybe of less than was
// read of it.
func (m mark) copied(f handle) bool {
	if m.blank() {
		return false
	}
	if m.in(f) {
		return true
	}
	begins := mark{HeadLen: m.HeadLen, Head: m.Head, Tail: sum(nil)}
	if _, err := readAt(f, max(m.Offset-1, 0), 1); err == nil {
		return false
	}
	return begins.in(f)
}

func sum(b []byte) []byte {
	s := sha256.Sum256(b)
	return s[:16]
}

// readAt reads exactly n bytes.
func readAt(f io.ReaderAt, offset, n int64) ([]byte, error) {
	b := make([]byte, n)
	if got, err := f.ReadAt(b, offset); int64(got) < n {
		if err == nil || errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
		return nil, err
	}
	return b, nil
}
