package move

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
)

// Row is the values of a table's columns, in their order and of their kinds.
type Row []any

// Size is about how many bytes the row has.
func (r Row) Size() int {
	n := 0
	for _, v := range r {
		switch v := v.(type) {
		case string:
			n += len(v)
		case []byte:
			n += len(v)
		}
		n += 8
	}
	return n
}

// Sum is how many rows there are and what is in them, in whatever order they
// are added: the sum of the first 64 bits of each row's SHA-256.
type Sum struct {
	Rows int64
	Hash uint64
	buf  []byte
}

// Add takes a row in. How wide a store keeps a number makes no difference.
func (s *Sum) Add(r Row) error {
	b := s.buf[:0]
	for i, v := range r {
		switch v := v.(type) {
		case nil:
			b = append(b, 0)
		case int64:
			b = number(b, v)
		case int32:
			b = number(b, int64(v))
		case int16:
			b = number(b, int64(v))
		case bool:
			if b = append(b, 2, 0); v {
				b[len(b)-1] = 1
			}
		case string:
			b = append(binary.AppendUvarint(append(b, 3), uint64(len(v))), v...)
		case []byte:
			if v == nil {
				b = append(b, 0)
				break
			}
			b = append(binary.AppendUvarint(append(b, 4), uint64(len(v))), v...)
		case [16]byte:
			b = append(append(b, 5), v[:]...)
		default:
			return fmt.Errorf("column %d holds a %T, which nobody counts on", i, v)
		}
	}
	h := sha256.Sum256(b)
	s.Rows++
	s.Hash += binary.BigEndian.Uint64(h[:])
	s.buf = b
	return nil
}

func number(b []byte, v int64) []byte {
	return binary.BigEndian.AppendUint64(append(b, 1), uint64(v))
}

// String is the checksum as people compare it.
func (s *Sum) String() string { return fmt.Sprintf("%016x", s.Hash) }
