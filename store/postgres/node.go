package postgres

import (
	"context"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/surehook/surehook"
	"github.com/surehook/surehook/store/internal/row"
)

const (
	renewRetry   = time.Second
	orphansEvery = time.Hour
	// outcomesFirst is what outcomes that wait for a database that was gone get to be
	// written, before their rows come free and are sent again.
	outcomesFirst = 1500 * time.Millisecond
)

// renewEvery is the time between two renewals of the lease: several may fail.
func (s *Store) renewEvery() time.Duration { return s.opt.Lease / 9 }

// leased is the lease as it stands after a word to the database at that time.
func (s *Store) leased(epoch int64, sent time.Time, nodes []int64) {
	s.lease.Store(&surehook.Lease{Epoch: epoch, Until: sent.Add(s.opt.Lease), Length: s.opt.Lease, Nodes: nodes})
}

// Lease implements surehook.Queue.
func (s *Store) Lease() surehook.Lease { return *s.lease.Load() }

// newEpoch gives up the epoch old, if any, and takes a lease on a new one. Rows
// that old held are free then, also those of a transaction whose end nobody
// knows: it locked old's row in nodes, so deleting that row waits for its end.
func (s *Store) newEpoch(ctx context.Context, old int64) error {
	sent := time.Now()
	var epoch int64
	err := s.change(ctx, func(ctx context.Context, tx pgx.Tx) error {
		if old != 0 {
			if err := s.free(ctx, tx, []int64{old}, 0); err != nil {
				return err
			}
		}
		return tx.QueryRow(ctx, s.q(`INSERT INTO surehook.nodes (epoch, name, delivers, started_at, expires_at, place)
			SELECT nextval('surehook.epochs'), $1, $2, ms, ms + $3, $4 FROM surehook.clock() ms RETURNING epoch`),
			s.opt.Name, !s.opt.APIOnly, s.opt.Lease.Milliseconds(), s.place).Scan(&epoch)
	})
	if err != nil {
		return err
	}
	s.leased(epoch, sent, []int64{epoch})
	return s.renew(ctx)
}

// free ends epochs and frees their rows. The rows are looked for by a statement
// of its own, after the epochs' rows in nodes are locked: it sees what their last
// transactions brought.
func (s *Store) free(ctx context.Context, tx pgx.Tx, epochs []int64, lost int) error {
	if _, err := tx.Exec(ctx, s.q(`DELETE FROM surehook.nodes WHERE epoch = ANY($1)`), epochs); err != nil {
		return err
	}
	ordered, err := collect(ctx, tx, pgx.RowTo[int64], s.q(`SELECT DISTINCT endpoint_key FROM surehook.pending WHERE owner = ANY($1) AND order_key IS NOT NULL`), epochs)
	if err != nil {
		return err
	}
	if _, err := tx.Exec(ctx, s.q(excludeAll), ordered, s.opt.Schema+claimsOf); err != nil {
		return err
	}
	rows, err := tx.Query(ctx, s.q(`UPDATE surehook.pending p SET owner = NULL, lost = lost + $2
		FROM (SELECT event_key, endpoint_key FROM surehook.pending WHERE owner = ANY($1) ORDER BY event_key, endpoint_key FOR UPDATE) x
		WHERE p.event_key = x.event_key AND p.endpoint_key = x.endpoint_key RETURNING p.endpoint_key, coalesce(p.order_key, 0)`), epochs, lost)
	if err != nil {
		return err
	}
	var orders row.Sequences
	var endpoint, order int64
	tag, err := pgx.ForEachRow(rows, []any{&endpoint, &order}, func() error { orders.Add(endpoint, order); return nil })
	if err != nil || tag.RowsAffected() == 0 {
		return err
	}
	s.log.Info("rows of an epoch that ended are free again", "rows", tag.RowsAffected())
	now, err := s.now(ctx, tx)
	if err != nil {
		return err
	}
	return s.unpark(ctx, tx, orders, now, 1)
}

func (s *Store) endEpoch(ctx context.Context) error {
	return wrap(s.again(ctx, func() error {
		return s.transaction(ctx, func(tx pgx.Tx) error { return s.free(ctx, tx, []int64{s.Lease().Epoch}, 1) })
	}))
}

// doubt follows a transaction whose end nobody knows: the epoch is given up, and
// with it whatever the transaction may have brought.
func (s *Store) doubt(epoch int64) {
	if s.doubted.Swap(epoch) == epoch {
		return // it is being seen to
	}
	s.bg.Go(func() {
		for s.ctx.Err() == nil {
			s.renewing.Lock()
			var err error
			if s.Lease().Epoch == epoch {
				err = s.newEpoch(s.ctx, epoch)
			}
			s.renewing.Unlock()
			if err == nil {
				s.watch.tell(surehook.Change{Rows: true})
				s.calls.add(anyone) // an endpoint may be another node's
				return
			}
			s.log.Warn("the node couldn't take a new epoch; trying again", "error", err)
			for s.pause(renewRetry/4) && s.pool.Ping(s.ctx) != nil { //nolint:revive // until it is back
			}
			s.pause(outcomesFirst)
		}
	})
}

// pause waits, and tells whether the store is still open then.
func (s *Store) pause(d time.Duration) bool {
	select {
	case <-s.ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}

func (s *Store) renewLoop() {
	var looked time.Time // for orphans
	for wait := s.renewEvery(); ; {
		select {
		case <-s.ctx.Done():
			return
		case <-time.After(wait):
		}
		s.renewing.Lock()
		err := s.renew(s.ctx)
		s.renewing.Unlock()
		if err == nil {
			err = s.reap(s.ctx)
		}
		if err == nil && time.Since(looked) > orphansEvery {
			looked = time.Now()
			s.orphans(s.ctx)
		}
		wait = s.renewEvery()
		if err != nil && s.ctx.Err() == nil {
			s.log.Warn("the node's lease couldn't be renewed; trying again", "error", err)
			wait = renewRetry
		}
	}
}

// renew prolongs the lease from the time of asking, and learns who else is
// there. A lease that is gone (the node was asleep, or cut off) is not taken up
// again: its rows are others' by now.
func (s *Store) renew(ctx context.Context) error {
	old, sent := s.Lease(), time.Now()
	var alive bool
	var nodes []int64
	err := s.within(ctx, min(writeLimit, s.opt.Lease/3), func(ctx context.Context, tx pgx.Tx) error {
		tag, err := tx.Exec(ctx, s.q(`UPDATE surehook.nodes SET expires_at = surehook.clock() + $2 WHERE epoch = $1`), old.Epoch, s.opt.Lease.Milliseconds())
		if err != nil {
			return err
		}
		alive = tag.RowsAffected() == 1
		rows, err := tx.Query(ctx, s.q(`SELECT epoch FROM surehook.nodes WHERE delivers AND expires_at > (SELECT surehook.clock()) ORDER BY epoch`))
		if err != nil {
			return err
		}
		nodes, err = pgx.CollectRows(rows, pgx.RowTo[int64])
		return err
	})
	switch {
	case err != nil:
		return err
	case !alive:
		s.log.Warn("the node's lease had run out; its deliveries are others' now", "epoch", old.Epoch)
		return s.newEpoch(ctx, old.Epoch) // whoever ended it may have freed nothing
	}
	s.leased(old.Epoch, sent, nodes)
	if !slices.Equal(nodes, old.Nodes) {
		s.watch.tell(surehook.Change{Rows: true}) // endpoints may have got another home
	}
	return nil
}

// Alone refuses when another node runs on the schema, or may.
func (s *Store) Alone(ctx context.Context) error {
	var others int
	if err := s.pool.QueryRow(ctx, s.q(`SELECT count(*) FROM surehook.nodes WHERE epoch <> $1 AND expires_at > (SELECT surehook.clock())`),
		s.Lease().Epoch).Scan(&others); err != nil {
		return wrap(err)
	}
	if others > 0 {
		return conflict("surehook runs on this database, or was killed there less than its lease ago: stop every node, or see --online in surehook secrets rotate-master --help")
	}
	return nil
}

// leaseAhead is how much longer than any lease one may still run: past it, it was
// written while the database's clock was ahead, and would hold for as long.
const leaseAhead = 10 * time.Minute

// reap ends epochs whose lease has run out. One that a transaction still holds
// is left for the next time.
func (s *Store) reap(ctx context.Context) error {
	freed := false
	err := s.change(ctx, func(ctx context.Context, tx pgx.Tx) error {
		rows, err := tx.Query(ctx, s.q(`SELECT epoch FROM surehook.nodes WHERE expires_at <= (SELECT surehook.clock())
			OR expires_at > (SELECT surehook.clock()) + $1 ORDER BY epoch FOR UPDATE SKIP LOCKED`), max(2*s.opt.Lease, leaseAhead).Milliseconds())
		if err != nil {
			return err
		}
		dead, err := pgx.CollectRows(rows, pgx.RowTo[int64])
		if err != nil || len(dead) == 0 {
			return err
		}
		freed = true
		s.log.Warn("nodes are gone without a word; freeing their rows", "epochs", dead)
		return s.free(ctx, tx, dead, 1)
	})
	if err == nil && freed {
		s.watch.tell(surehook.Change{Rows: true})
		s.calls.add(anyone) // an endpoint may be another node's
	}
	return err
}

// orphans frees rows of epochs that nodes doesn't have. Nothing here leaves any:
// an epoch goes in the transaction that frees what it held. But whoever deletes a
// node's row by hand must not strand them for ever. No index helps to find them,
// so they are looked for rarely.
func (s *Store) orphans(ctx context.Context) {
	lost, err := list(ctx, s, pgx.RowTo[int64], `SELECT DISTINCT owner FROM surehook.pending p
		WHERE owner IS NOT NULL AND NOT EXISTS (SELECT 1 FROM surehook.nodes WHERE epoch = p.owner)`)
	if err == nil && len(lost) > 0 {
		s.log.Warn("deliveries are held by nodes that don't exist; freeing them", "epochs", lost)
		err = s.change(ctx, func(ctx context.Context, tx pgx.Tx) error { return s.free(ctx, tx, lost, 1) })
		if err == nil {
			s.watch.tell(surehook.Change{Rows: true})
			s.calls.add(anyone) // an endpoint may be another node's
		}
	}
	if err != nil && s.ctx.Err() == nil {
		s.log.Warn("looking for stranded deliveries failed; trying again later", "error", err)
	}
}
