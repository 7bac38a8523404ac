package postgres

import (
	"context"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
)

const (
	keyBits  = 22
	keyMask  = 1<<keyBits - 1
	idBlock  = 4096              // as the sequence's increment
	keyEpoch = 1_577_836_800_000 // 2020-01-01 in Unix ms
	maxKey   = int64(1<<63 - 1)  // above every key
	blockAge = 30 * time.Second  // an older block's numbers are skipped: see keyOf
)

// keyOf makes the key of a row that is stored at ms. Within one millisecond the
// low bits of an id are unique, as long as fewer than four million are given out
// in the life of a block.
func keyOf(ms, id int64) int64 { return (ms-keyEpoch)<<keyBits | id&keyMask }

// keyAt is the lowest key of a time.
func keyAt(ms int64) int64 { return max(ms-keyEpoch, 0) << keyBits }

// allocator gives out ids that no two nodes share and none is given out twice:
// a sequence of the database gives blocks of them.
type allocator struct {
	s          *Store
	mu         sync.Mutex
	next, high int64
	until      time.Time
}

// querier is the pool or a transaction.
type querier interface {
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}

// take gives n ids, ascending; not always consecutive. Who holds a connection
// already lends it: waiting for a second one, all could wait for each other.
func (a *allocator) take(ctx context.Context, q querier, n int) ([]int64, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	out := make([]int64, 0, n)
	if time.Now().After(a.until) {
		a.next = a.high
	}
	for len(out) < n {
		if a.next == a.high {
			if err := q.QueryRow(ctx, a.s.q(`SELECT nextval('surehook.ids')`)).Scan(&a.next); err != nil {
				return nil, err
			}
			a.high, a.until = a.next+idBlock, time.Now().Add(blockAge)
		}
		k := min(int64(n-len(out)), a.high-a.next)
		for range k {
			out = append(out, a.next)
			a.next++
		}
	}
	return out, nil
}

// key makes one key for a time.
func (s *Store) key(ctx context.Context, q querier, ms int64) (int64, error) {
	ids, err := s.ids.take(ctx, q, 1)
	if err != nil {
		return 0, err
	}
	return keyOf(ms, ids[0]), nil
}
