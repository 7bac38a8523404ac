package row

import (
	"cmp"
	"hash/fnv"
	"slices"
)

// Parked is the due time of a row at an ordered endpoint that can't go yet: one
// before it in its owner's sequence is pending, or one of the sequence is out.
// Whatever removes or frees a row of a sequence makes the first one due.
const Parked = int64(1) << 60

// OrderKey names the sequence of an event's owner; 0: it has none. Two owners
// with one key wait for each other, which is harmless.
func OrderKey(tenant, owner string) int64 {
	if owner == "" {
		return 0
	}
	h := fnv.New64a()
	_, _ = h.Write([]byte(tenant + "\x00" + owner)) // never fails
	return int64(h.Sum64()) | 1
}

// Sequence names an owner's sequence at an endpoint.
type Sequence struct{ Endpoint, Order int64 }

// Sequences gathers sequences that rows were removed from or came free in.
type Sequences []Sequence

// Add notes one; an order of 0 is none.
func (q *Sequences) Add(endpoint, order int64) {
	if order != 0 {
		*q = append(*q, Sequence{endpoint, order})
	}
}

// Once sorts the sequences and gives each once.
func (q Sequences) Once() Sequences {
	slices.SortFunc(q, func(a, b Sequence) int {
		return cmp.Or(cmp.Compare(a.Endpoint, b.Endpoint), cmp.Compare(a.Order, b.Order))
	})
	return slices.Compact(q)
}
