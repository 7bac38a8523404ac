package postgres

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"
)

// takeKeys takes the ids of the events at some places of a batch.
type takeKeys func(ctx context.Context, tx *terseTx, epoch int64, b *appendBatch, places []int) error

// takeKeys leaves out the ids that were there.
func (s *Store) takeKeys(ctx context.Context, tx *terseTx, epoch int64, b *appendBatch, places []int) error {
	keys := &pgx.Batch{}
	keys.Queue(s.q(keysSQL), b.keyArgs(epoch, places)...).QueryRow(func(row pgx.Row) error {
		var ms, config int64
		var me *int64
		var low []int64
		if err := row.Scan(&ms, &config, &me, &low); err != nil {
			return err
		}
		fresh := make(map[int64]bool, len(low))
		for _, l := range low {
			fresh[l] = true
		}
		b.take(places, ms, config, me, func(low int64) bool { return fresh[low] })
		return nil
	})
	return tx.SendBatch(ctx, keys).Close()
}

// takePlainKeys takes them all or fails, at half the price.
func (s *Store) takePlainKeys(ctx context.Context, tx *terseTx, epoch int64, b *appendBatch, places []int) error {
	keys := &pgx.Batch{}
	keys.Queue(s.q(plainKeysSQL), b.keyArgs(epoch, places)[:5]...).QueryRow(func(row pgx.Row) error {
		var ms, config, aliases int64
		var me *int64
		if err := row.Scan(&ms, &config, &me, &aliases); err != nil {
			return err
		}
		if aliases > 0 {
			s.append.aliases.Store(true)
			return errNotPlain
		}
		for _, i := range places {
			if b.refs[i].job.version != config {
				return errNotPlain
			}
		}
		b.take(places, ms, config, me, func(int64) bool { return true })
		return nil
	})
	return tx.SendBatch(ctx, keys).Close()
}

// errNotPlain tells of a batch of which not every id can be taken.
var errNotPlain = errors.New("not every event of the batch is new")

// A batch with an id that was there is begun twice; so after one, the next ones
// are taken with care.
const careful = 10 * time.Second

// plain tells whether the ids of a batch are likely to be new, all of them.
func (a *appender) plain() bool {
	return !a.aliases.Load() && time.Now().UnixNano() >= a.careful.Load()
}

// notPlain tells whether err came of an id that was there, and remembers it.
func (a *appender) notPlain(err error) bool {
	if !errors.Is(err, errNotPlain) && sqlState(err) != "23505" { // unique_violation
		return false
	}
	a.careful.Store(time.Now().Add(careful).UnixNano())
	return true
}
