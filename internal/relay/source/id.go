package source

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"time"

	"github.com/oklog/ulid/v2"
)

// lineID names the event of a line by what it says and where it stands, so that
// the same line read twice is the same event, and the same words somewhere else are
// another: seed is the source's own, drawn at random once, generation counts its
// files, and offset is where the line begins. The time in it is the line's own where
// it says one, else that when the file was first seen.
func lineID(seed []byte, generation, offset int64, line []byte, born time.Time) string {
	var place [16]byte
	binary.BigEndian.PutUint64(place[:8], uint64(generation))
	binary.BigEndian.PutUint64(place[8:], uint64(offset))
	h := sha256.New()
	h.Write(seed)
	h.Write(place[:])
	h.Write(line)
	sum := h.Sum(nil)
	at, ok := lineTime(line)
	if !ok {
		at = born
	}
	var id ulid.ULID
	_ = id.SetTime(ulid.Timestamp(at)) // years that lineTime lets through
	copy(id[6:], sum)
	return id.String()
}

// lineTime finds the time at the start of a line: RFC 3339, among its first few
// words.
func lineTime(line []byte) (time.Time, bool) {
	head := line[:min(len(line), 160)]
	if i := bytes.IndexByte(head, '{'); i >= 0 {
		head = head[:i]
	}
	for i := range head { // 2026-05-25T17:30:02
		if head[i] != 'T' || i < 10 || head[i-3] != '-' || head[i-6] != '-' || i+9 >= len(head) {
			continue
		}
		word := head[i-10:]
		if end := bytes.IndexFunc(word, func(r rune) bool { return r <= ' ' || r > 'z' }); end >= 0 {
			word = word[:end]
		}
		if at, err := time.Parse(time.RFC3339, string(word)); err == nil && at.Year() >= 2000 && at.Year() < 2200 {
			return at, true
		}
	}
	return time.Time{}, false
}
