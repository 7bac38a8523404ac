package postgres

import (
	"context"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/surehook/surehook"
	"github.com/surehook/surehook/store/internal/row"
)

// A row that was lost with its node this often is a suspect: it is out alone,
// of all suspects of the node, so that a crash says which one it was. And this
// often, it is given up.
const (
	lostAlone = 3 // as in the statements below, and in the index pending_suspect
	lostDead  = 8
)

// suspectRetry is the time until an endpoint whose suspects wait for another
// one to come back should look again.
const suspectRetry = time.Second

const (
	claimGate = `SELECT surehook.clock(), coalesce((SELECT version FROM surehook.endpoints WHERE key = $1 AND enabled AND NOT deleted), 0),
		coalesce((SELECT ordered FROM surehook.endpoints WHERE key = $1), false),
		EXISTS (SELECT 1 FROM surehook.pending WHERE lost >= 3 AND owner = $2)`
	claimRows = `SELECT event_key, id, attempt, first_attempt, due, lost, size, coalesce(order_key, 0), sequence FROM surehook.pending
		WHERE endpoint_key = $1 AND owner IS NULL AND due <= (SELECT surehook.clock()) AND (NOT $3 OR lost < 3 OR lost >= 8)
		ORDER BY due, event_key LIMIT $2 FOR UPDATE SKIP LOCKED`
	claimTake = `UPDATE surehook.pending p SET owner = $1 FROM unnest($3::bigint[]) x(event_key)
		WHERE p.event_key = x.event_key AND p.endpoint_key = $2`
	claimEvents = `SELECT ` + eventColumns + `, e.data FROM surehook.events e WHERE e.key = ANY($1)`
	claimNext   = `SELECT coalesce((SELECT due FROM surehook.pending WHERE endpoint_key = $1 AND owner IS NULL AND (NOT $2 OR lost < 3) ORDER BY due LIMIT 1), 0),
		CASE WHEN $2 THEN coalesce((SELECT min(due) FROM surehook.pending WHERE lost >= 3 AND owner IS NULL AND endpoint_key = $1), 0) ELSE 0 END`
)

// candidate is a row that may be claimed.
type candidate struct {
	surehook.Delivery
	size            int
	order, sequence int64
}

// Claim implements surehook.Queue.
func (s *Store) Claim(ctx context.Context, endpoint int64, limit, maxBytes int) (surehook.Claim, error) {
	epoch := s.Lease().Epoch
	var out surehook.Claim
	err := s.change(ctx, func(ctx context.Context, tx pgx.Tx) (err error) {
		out, err = s.claim(ctx, tx, epoch, endpoint, limit, maxBytes)
		return err
	})
	if err != nil {
		if gone(err) {
			s.doubt(epoch) // an error must mean that nothing is held
		}
		return surehook.Claim{}, err
	}
	return out, nil
}

func (s *Store) claim(ctx context.Context, tx pgx.Tx, epoch, endpoint int64, limit, maxBytes int) (surehook.Claim, error) {
	var out surehook.Claim
	// The lock on the node's own row makes sure that it lives until the commit;
	// without a lease nothing is taken.
	leased, err := tx.Exec(ctx, s.q(`SELECT 1 FROM surehook.nodes WHERE epoch = $1 FOR KEY SHARE`), epoch)
	if err != nil || leased.RowsAffected() == 0 {
		return out, err
	}
	g, err := s.gate(ctx, tx, epoch, endpoint)
	if err != nil || g.version == 0 {
		return out, err
	}
	out.Version = g.version
	rows, err := s.candidates(ctx, tx, epoch, endpoint, limit, g.held)
	if err != nil {
		return out, err
	}
	if slices.ContainsFunc(rows, func(c candidate) bool { return c.order != 0 }) {
		switch now, err := s.ordered(ctx, tx, endpoint); {
		case err != nil:
			return out, err
		case now && !g.ordered: // since a moment: other claims are to be kept out first
			out.More = true
			return out, nil
		case now:
			if rows, err = s.heads(ctx, tx, endpoint, rows); err != nil {
				return out, err
			}
		}
	}
	take, crashed, suspect := choose(rows, maxBytes)
	if out.Rows, err = s.take(ctx, tx, epoch, endpoint, take); err != nil {
		return out, err
	}
	if err := s.end(ctx, tx, endpoint, crashed, surehook.Crashed, g.now, true, 1); err != nil {
		return out, err
	}
	err = s.claimNext(ctx, tx, endpoint, g.now, g.held || suspect, &out)
	return out, err
}

// claimNext says when the endpoint should ask again. While a suspect is held,
// the others that are due count as due in a moment: only they wait for it.
func (s *Store) claimNext(ctx context.Context, tx pgx.Tx, endpoint, now int64, held bool, out *surehook.Claim) error {
	var next, other int64
	if err := tx.QueryRow(ctx, s.q(claimNext), endpoint, held).Scan(&next, &other); err != nil {
		return err
	}
	if next != 0 && next < row.Parked {
		out.Next, out.More = at(next), next <= now
	}
	if other == 0 || other >= row.Parked || out.More {
		return nil
	}
	if other <= now {
		other = now + suspectRetry.Milliseconds()
	}
	if out.Next.IsZero() || other < next {
		out.Next = at(other)
	}
	return nil
}

// gate is what a claim goes by.
type gate struct {
	now     int64
	version int64 // of the endpoint; 0 where it takes no rows
	ordered bool  // the endpoint
	held    bool  // a suspect is out
}

// gate looks whether the endpoint takes rows. For an ordered one it keeps other
// claims and changes of the order out until the commit: which rows are first is
// then this claim's to say.
func (s *Store) gate(ctx context.Context, tx pgx.Tx, epoch, endpoint int64) (g gate, err error) {
	look := func() error {
		return tx.QueryRow(ctx, s.q(claimGate), endpoint, epoch).Scan(&g.now, &g.version, &g.ordered, &g.held)
	}
	if err = look(); err != nil || g.version == 0 || !g.ordered {
		return g, err
	}
	if err = s.excludeClaims(ctx, tx, endpoint); err != nil {
		return g, err
	}
	err = look()
	return g, err
}

// candidates locks due rows.
func (s *Store) candidates(ctx context.Context, tx pgx.Tx, epoch, endpoint int64, limit int, held bool) ([]candidate, error) {
	rows, err := tx.Query(ctx, s.q(claimRows), endpoint, limit, held)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, func(row pgx.CollectableRow) (candidate, error) {
		c := candidate{Delivery: surehook.Delivery{EndpointKey: endpoint, Epoch: epoch}}
		var due int64
		err := row.Scan(&c.EventKey, &c.ID, &c.Attempt, &c.FirstAttempt, &due, &c.Lost, &c.size, &c.order, &c.sequence)
		c.Due = at(due)
		return c, err
	})
}

// choose picks what one claim gives: rows up to maxBytes, and a suspect alone.
// Rows that were lost too often are given up.
func choose(rows []candidate, maxBytes int) (take []candidate, crashed []surehook.Delivery, suspect bool) {
	size := 0
	for _, c := range rows {
		switch {
		case suspect || (size >= maxBytes && len(take) > 0):
			return take, crashed, suspect
		case c.Lost >= lostDead:
			crashed = append(crashed, c.Delivery)
			continue
		case c.Lost >= lostAlone && len(take) > 0:
			return take, crashed, suspect
		}
		take = append(take, c)
		size += c.size
		suspect = c.Lost >= lostAlone
	}
	return take, crashed, suspect
}

// take makes the rows this node's, and reads their events.
func (s *Store) take(ctx context.Context, tx pgx.Tx, epoch, endpoint int64, rows []candidate) ([]surehook.Claimed, error) {
	if len(rows) == 0 {
		return nil, nil
	}
	keys := make([]int64, len(rows))
	out := make([]surehook.Claimed, len(rows))
	place := make(map[int64]int, len(rows))
	for i, c := range rows {
		keys[i], out[i].Delivery, place[c.EventKey] = c.EventKey, c.Delivery, i
	}
	batch := &pgx.Batch{}
	batch.Queue(s.q(claimTake), epoch, endpoint, keys)
	batch.Queue(s.q(claimEvents), keys).Query(func(rows pgx.Rows) error {
		events, err := pgx.CollectRows(rows, scanEventData)
		for _, e := range events {
			out[place[e.Key]].Event = e
		}
		return err
	})
	if err := tx.SendBatch(ctx, batch).Close(); err != nil {
		return nil, err
	}
	for i := range out {
		if out[i].Event == nil { // its partition is gone: the attempt says so
			out[i].Event = &surehook.Event{Key: keys[i], Erased: true}
		}
	}
	return out, nil
}

// End implements surehook.Queue.
func (s *Store) End(ctx context.Context, endpoint int64, code surehook.Code, dueOnly, letters bool, limit int) (int, error) {
	n := 0
	err := s.change(ctx, func(ctx context.Context, tx pgx.Tx) error {
		n = 0
		if _, err := tx.Exec(ctx, s.q(excludeAll), []int64{endpoint}, s.opt.Schema+claimsOf); err != nil {
			return err
		}
		// It may have been enabled again since the caller looked.
		var live bool
		var now int64
		if err := tx.QueryRow(ctx, s.q(`SELECT surehook.clock(), EXISTS (SELECT 1 FROM surehook.endpoints WHERE key = $1 AND enabled AND NOT deleted)`),
			endpoint).Scan(&now, &live); err != nil || live {
			return err
		}
		before := now
		if !dueOnly {
			before = maxKey
		}
		// Of an ordered endpoint, more rows come due as those before them end.
		for n < limit {
			rows, err := s.ending(ctx, tx, endpoint, before, limit-n)
			if err != nil || len(rows) == 0 {
				return err
			}
			n += len(rows)
			if err := s.end(ctx, tx, endpoint, rows, code, now, letters, limit-n); err != nil {
				return err
			}
		}
		return nil
	})
	return n, err
}

// ending locks rows that are to be ended.
func (s *Store) ending(ctx context.Context, tx pgx.Tx, endpoint, before int64, limit int) ([]surehook.Delivery, error) {
	rows, err := tx.Query(ctx, s.q(`SELECT event_key, id, attempt, first_attempt FROM surehook.pending
		WHERE endpoint_key = $1 AND owner IS NULL AND due <= $2 ORDER BY due, event_key LIMIT $3 FOR UPDATE SKIP LOCKED`), endpoint, before, limit)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, func(r pgx.CollectableRow) (surehook.Delivery, error) {
		d := surehook.Delivery{EndpointKey: endpoint}
		err := r.Scan(&d.EventKey, &d.ID, &d.Attempt, &d.FirstAttempt)
		return d, err
	})
}

// end removes locked rows; with letters each leaves a dead letter, and an
// attempt that tells why no request was made. Of the rows that waited for them,
// about as many as more come due: of each sequence one at least.
func (s *Store) end(ctx context.Context, tx pgx.Tx, endpoint int64, rows []surehook.Delivery, code surehook.Code, now int64, letters bool, more int) error {
	if len(rows) == 0 {
		return nil
	}
	events := make([]int64, len(rows))
	for i := range rows {
		events[i] = rows[i].EventKey
	}
	gone, err := tx.Query(ctx, s.q(`DELETE FROM surehook.pending WHERE endpoint_key = $1 AND event_key = ANY($2)
		RETURNING coalesce(order_key, 0), coalesce(inbox, (SELECT e.inbox FROM surehook.endpoints e WHERE e.key = $1), 0)`), endpoint, events)
	if err != nil {
		return err
	}
	var orders row.Sequences
	var order, inbox, its int64
	dropped := 0
	if _, err := pgx.ForEachRow(gone, []any{&order, &its}, func() error {
		orders.Add(endpoint, order)
		if its != 0 {
			inbox, dropped = its, dropped+1
		}
		return nil
	}); err != nil {
		return err
	}
	if err := s.dropped(ctx, tx, inbox, dropped); err != nil {
		return err
	}
	if letters {
		if err := s.endLetters(ctx, tx, endpoint, rows, code, now); err != nil {
			return err
		}
	}
	return s.unpark(ctx, tx, orders, now, more)
}

func (s *Store) endLetters(ctx context.Context, tx pgx.Tx, endpoint int64, rows []surehook.Delivery, code surehook.Code, now int64) error {
	ids, err := s.ids.take(ctx, tx, 2*len(rows))
	if err != nil {
		return err
	}
	attempts, dead := make([]*surehook.Attempt, len(rows)), make([]letter, len(rows))
	for i, d := range rows {
		attempts[i] = &surehook.Attempt{Key: keyOf(now, ids[2*i]), ID: newAttemptID(now), EventKey: d.EventKey, EndpointKey: endpoint,
			Number: d.Attempt + 1, Status: surehook.AttemptDead, Code: code, CreatedAt: at(now)}
		dead[i] = letter{key: keyOf(now, ids[2*i+1]), event: d.EventKey, endpoint: endpoint, pending: d.ID, code: code, attempts: d.Attempt + 1}
	}
	if _, err := s.insertAttempts(ctx, tx, attempts); err != nil {
		return err
	}
	return s.insertLetters(ctx, tx, dead, now)
}

// Due implements surehook.Queue by a skip scan: one index probe an endpoint,
// whatever the number of rows.
func (s *Store) Due(ctx context.Context) ([]surehook.EndpointDue, error) {
	var out []surehook.EndpointDue
	err := s.read(ctx, func(tx pgx.Tx) error {
		rows, err := tx.Query(ctx, s.q(`WITH RECURSIVE d AS (
			(SELECT endpoint_key, due FROM surehook.pending WHERE owner IS NULL ORDER BY endpoint_key, due LIMIT 1)
			UNION ALL
			SELECT n.endpoint_key, n.due FROM d, LATERAL (SELECT endpoint_key, due FROM surehook.pending
				WHERE owner IS NULL AND endpoint_key > d.endpoint_key ORDER BY endpoint_key, due LIMIT 1) n
		) SELECT endpoint_key, due FROM d WHERE due < $1`), row.Parked)
		if err != nil {
			return err
		}
		out, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (surehook.EndpointDue, error) {
			var d surehook.EndpointDue
			var due int64
			err := row.Scan(&d.EndpointKey, &due)
			d.Due = at(due)
			return d, err
		})
		return err
	})
	return out, err
}

// heldSQL finds the endpoints whose partners are suspended.
const heldSQL = `SELECT e.key FROM surehook.partners p JOIN surehook.endpoints e ON e.tenant = '' AND e.partner = p.id AND NOT e.deleted WHERE p.suspended AND e.enabled
	UNION ALL SELECT e.key FROM surehook.partners p JOIN surehook.tenants t ON t.partner = p.id AND t.partner <> '' JOIN surehook.endpoints e ON e.tenant = t.id AND NOT e.deleted
	WHERE p.suspended AND e.enabled
	UNION ALL SELECT e.key FROM surehook.endpoints e WHERE e.limits LIKE '%"paused":true%' AND NOT e.deleted AND e.enabled`

// PendingCount implements surehook.Queue.
func (s *Store) PendingCount(ctx context.Context) (surehook.PendingCount, error) {
	var n surehook.PendingCount
	var oldest int64
	err := s.read(ctx, func(tx pgx.Tx) error {
		return tx.QueryRow(ctx, s.q(`SELECT count(*) FILTER (WHERE owned), count(*) FILTER (WHERE ready AND NOT held), count(*) FILTER (WHERE NOT owned AND NOT ready),
			count(*) FILTER (WHERE ready AND held), coalesce(min(due) FILTER (WHERE ready AND NOT held), 0)
			FROM (SELECT p.owner IS NOT NULL AS owned, p.owner IS NULL AND p.due <= t.ms AS ready, p.endpoint_key IN (`+heldSQL+`) AS held, p.due
				FROM surehook.pending p, (SELECT surehook.clock() AS ms OFFSET 0) t) x`)).Scan(&n.Owned, &n.Due, &n.Waiting, &n.Held, &oldest)
	})
	n.OldestDue = at(oldest)
	return n, err
}
