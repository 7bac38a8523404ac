package signing

import (
	"crypto/sha256"
	"encoding"
	"hash"
	"strconv"
	"sync"
)

// keyed is an HMAC-SHA256 key with the hash state after each of its two pads.
//
// crypto/hmac can only be reused by keeping one object per key; an owner of a
// hundred thousand endpoints would keep a hundred thousand pools. Two saved
// states are 216 bytes, and every key shares one pool of hashes. The tests hold
// this against crypto/hmac.
type keyed struct {
	raw          []byte
	inner, outer []byte
}

func newKeyed(b []byte) *keyed {
	k := &keyed{raw: append([]byte(nil), b...)}
	key := k.raw
	if len(key) > sha256.BlockSize {
		sum := sha256.Sum256(key)
		key = sum[:]
	}
	k.inner, k.outer = padded(key, 0x36), padded(key, 0x5c)
	return k
}

// padded is the state of SHA-256 after one block: the key, filled up with
// zeros, each byte xor pad.
func padded(key []byte, pad byte) []byte {
	var block [sha256.BlockSize]byte
	copy(block[:], key)
	for i := range block {
		block[i] ^= pad
	}
	h := sha256.New()
	h.Write(block[:])
	state, err := h.(encoding.BinaryMarshaler).MarshalBinary()
	if err != nil {
		panic("signing: SHA-256 can't save its state: " + err.Error())
	}
	return state
}

// scratch is what one signature needs for working space.
type scratch struct {
	hash hash.Hash
	head []byte // "{id}.{timestamp}."
	sum  []byte
	out  []byte
	msg  []byte // ed25519 reads its message twice, so it must be in one piece
}

// Larger messages are not kept in the pool.
const maxKeptMessage = 256 << 10

var pool = sync.Pool{New: func() any {
	return &scratch{
		hash: sha256.New(),
		head: make([]byte, 0, 256),
		sum:  make([]byte, 0, sha256.Size),
		out:  make([]byte, 0, 256),
	}
}}

func borrow() *scratch { return pool.Get().(*scratch) }

func (s *scratch) giveBack() {
	if cap(s.msg) > maxKeptMessage {
		s.msg = nil
	}
	pool.Put(s)
}

// mac computes HMAC-SHA256 over head and body. The answer is valid until the
// next call.
func (s *scratch) mac(k *keyed, head, body []byte) []byte {
	s.resume(k.inner)
	s.hash.Write(head)
	s.hash.Write(body)
	s.sum = s.hash.Sum(s.sum[:0])
	s.resume(k.outer)
	s.hash.Write(s.sum)
	s.sum = s.hash.Sum(s.sum[:0])
	return s.sum
}

func (s *scratch) resume(state []byte) {
	if err := s.hash.(encoding.BinaryUnmarshaler).UnmarshalBinary(state); err != nil {
		panic("signing: SHA-256 can't resume its own state: " + err.Error())
	}
}

// setHead writes "{id}.{ts}.".
func (s *scratch) setHead(id string, ts int64) {
	s.head = append(s.head[:0], id...)
	s.head = append(s.head, '.')
	s.head = strconv.AppendInt(s.head, ts, 10)
	s.head = append(s.head, '.')
}

// message joins head and body.
func (s *scratch) message(body []byte) []byte {
	s.msg = append(s.msg[:0], s.head...)
	s.msg = append(s.msg, body...)
	return s.msg
}
