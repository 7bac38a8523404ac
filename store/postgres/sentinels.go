package postgres

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/surehook/surehook"
	"github.com/surehook/surehook/store/internal/row"
)

// sentinelColumns are a sentinel, in the order of sentinelRow; all null where an
// endpoint has none.
const sentinelColumns = `n.endpoint_key, n.clauses, n.until_kind, n.until_at, n.until_count, n.status, n.ended, n.provider, n.watch, n.grouping, n.label,
	n.session, n.principal, n.events, n.last_event_at, n.last_error, n.created_at, n.ended_at`

// sentinelRow is a row that may not be there.
type sentinelRow struct {
	key, untilAt, untilCount, events, lastAt, created, endedAt   *int64
	clauses, until, status, ended, provider, watch, group, label *string
	session, principal, lastError                                *string
}

func (n *sentinelRow) targets() []any {
	return []any{&n.key, &n.clauses, &n.until, &n.untilAt, &n.untilCount, &n.status, &n.ended, &n.provider, &n.watch, &n.group, &n.label,
		&n.session, &n.principal, &n.events, &n.lastAt, &n.lastError, &n.created, &n.endedAt}
}

// sentinel gives it; nil: there is none.
func (n *sentinelRow) sentinel(id string) (*surehook.Sentinel, error) {
	if n.key == nil {
		return nil, nil
	}
	match, err := row.ParseClauses(*n.clauses)
	return &surehook.Sentinel{EndpointKey: *n.key, ID: id, Match: match, Until: surehook.Until{Kind: surehook.UntilKind(*n.until), At: at(*n.untilAt), Count: *n.untilCount},
		Status: surehook.SentinelStatus(*n.status), Ended: surehook.UntilKind(*n.ended), Provider: *n.provider, Watch: *n.watch, Group: *n.group, Label: *n.label,
		Session: *n.session, Principal: *n.principal, Events: *n.events, LastEventAt: at(*n.lastAt), LastError: *n.lastError, CreatedAt: at(*n.created), EndedAt: at(*n.endedAt)}, err
}

// lockSentinel keeps appends from an endpoint's sentinel, if it has one. The
// endpoint's row is locked before; whoever stores events locks sentinels alone.
func (s *Store) lockSentinel(ctx context.Context, tx pgx.Tx, endpoint int64) error {
	_, err := tx.Exec(ctx, s.q(`SELECT 1 FROM surehook.sentinels WHERE endpoint_key = $1 FOR UPDATE`), endpoint)
	return err
}

// putSentinel stores the sentinel of an endpoint: a new one, or what may be changed
// of it.
func (s *Store) putSentinel(ctx context.Context, tx pgx.Tx, e *surehook.Endpoint) error {
	n := e.Sentinel
	if n == nil {
		return nil
	}
	n.EndpointKey, n.ID = e.Key, e.ID
	if n.Plan != 0 {
		tag, err := tx.Exec(ctx, s.q(`DELETE FROM surehook.watch_cancels WHERE key = $1 AND retry_at > surehook.clock()`), n.Plan)
		if err != nil || tag.RowsAffected() == 0 {
			return cmp.Or(err, row.ErrPlan)
		}
	}
	_, err := tx.Exec(ctx, s.q(`INSERT INTO surehook.sentinels (endpoint_key, clauses, until_kind, until_at, until_count, status, ended, settled, provider, watch,
		grouping, label, session, principal, events, last_event_at, last_error, created_at)
		VALUES ($1, $2, $3, $4, $5, $6, $7, true, $8, $9, $10, $11, $12, $13, 0, 0, $14, $15)
		ON CONFLICT (endpoint_key) DO UPDATE SET status = $6, ended = $7, watch = $9, grouping = $10, label = $11, last_error = $14`),
		e.Key, row.Clauses(n.Match), string(n.Until.Kind), millis(n.Until.At), n.Until.Count, string(n.Status), string(n.Ended), n.Provider, n.Watch, n.Group, n.Label,
		n.Session, n.Principal, n.LastError, millis(e.CreatedAt))
	return err
}

// dropEndpoints removes endpoints, which are locked, with what is theirs. What goes with
// a sentinel is bounded, to about twice row.KnownEvents.
func (s *Store) dropEndpoints(ctx context.Context, tx pgx.Tx, keys []int64, now int64) error {
	if _, err := tx.Exec(ctx, s.q(`SELECT 1 FROM surehook.sentinels WHERE endpoint_key = ANY($1) ORDER BY endpoint_key FOR UPDATE`), keys); err != nil {
		return err
	}
	if _, err := tx.Exec(ctx, s.q(`UPDATE surehook.endpoints SET deleted = true, enabled = false, version = version + 1, updated_at = $2 WHERE key = ANY($1)`), keys, now); err != nil {
		return err
	}
	if err := s.cancelWatches(ctx, tx, keys, now); err != nil {
		return err
	}
	for _, table := range []string{`endpoint_secrets`, `sentinels`, `sentinel_events`} {
		if _, err := tx.Exec(ctx, s.q(`DELETE FROM surehook.`+table+` WHERE endpoint_key = ANY($1)`), keys); err != nil {
			return err
		}
	}
	return nil
}

// cancelWatches has sentinels' watches cancelled. The sentinels are locked.
func (s *Store) cancelWatches(ctx context.Context, tx pgx.Tx, endpoints []int64, now int64) error {
	ids, err := s.ids.take(ctx, tx, len(endpoints))
	if err != nil {
		return err
	}
	for i := range ids {
		ids[i] = keyOf(now, ids[i])
	}
	_, err = tx.Exec(ctx, s.q(`WITH w AS (
			SELECT x.key, n.endpoint_key, n.provider, n.watch FROM unnest($1::bigint[], $2::bigint[]) x(endpoint_key, key)
			JOIN surehook.sentinels n ON n.endpoint_key = x.endpoint_key WHERE n.watch <> ''
		), c AS (
			INSERT INTO surehook.watch_cancels (key, provider, watch, tries, retry_at) SELECT key, provider, watch, 0, 0 FROM w
		) UPDATE surehook.sentinels n SET watch = '' FROM w WHERE n.endpoint_key = w.endpoint_key`), endpoints, ids)
	return err
}

// sighting is a target of a batch's event that is a sentinel's.
type sighting struct {
	r      *ref
	target int // its place
}

func (x sighting) of() *surehook.Target { return &x.r.item.Targets[x.target] }

// sightings are those of the events that were stored, in the batch's order.
func (b *appendBatch) sightings() []sighting {
	var out []sighting
	for i := range b.refs {
		if r := &b.refs[i]; r.state == stored {
			out = append(out, r.sightings()...)
		}
	}
	return out
}

func (r *ref) sightings() []sighting {
	var out []sighting
	for t := range r.item.Targets {
		if r.item.Targets[t].Sighting.Sentinel {
			out = append(out, sighting{r, t})
		}
	}
	return out
}

// left tells a target whose sentinel didn't take the event.
func (r *ref) left(target int) bool { return r.dropped != nil && r.dropped[target] }

// seen is what decides about a batch's sightings.
type seen struct {
	rows  map[int64]*surehook.Sentinel // live ones, as their locked rows are
	known map[int32]bool               // places of sightings whose event the sentinel had before
}

// see decides which of the sightings are their sentinels', and queues what follows.
// The sentinels' rows are locked until the commit, in one order for all: so counts are
// exact, and an id is seen once, whichever node it comes to.
func (s *Store) see(ctx context.Context, tx pgx.Tx, list []sighting, now int64, then *pgx.Batch) error {
	if len(list) == 0 {
		return nil
	}
	had, err := s.lockSeen(ctx, tx, list)
	if err != nil {
		return err
	}
	var endpoint, event []int64
	var id, tenant []string
	changed := make(map[int64]*surehook.Sentinel)
	var full []int64 // that have so many events that the older ones may be forgotten
	for i, x := range list {
		t, e := x.of(), x.r.item.Event
		n, mine := had.rows[t.EndpointKey], false
		if n != nil && (t.Sighting.Silent || !had.known[int32(i)]) {
			was := n.Status
			mine = n.See(t.Sighting, at(now))
			if mine || n.Status != was {
				changed[t.EndpointKey] = n
			}
			if n.Status != was {
				x.r.ended = append(x.r.ended, t.EndpointKey)
			}
		}
		if !mine {
			if x.r.dropped == nil {
				x.r.dropped = make([]bool, len(x.r.item.Targets))
			}
			x.r.dropped[x.target] = true
			continue
		}
		endpoint, event, id, tenant = append(endpoint, t.EndpointKey), append(event, x.r.key), append(id, e.ID), append(tenant, e.Tenant)
		if n.Events%row.KnownEvents == 0 {
			full = append(full, t.EndpointKey)
		}
	}
	s.queueSeen(then, now, changed, full, endpoint, event, id, tenant)
	return nil
}

// lockSeen reads what decides. The second statement sees what those have
// committed that the first one waited for.
func (s *Store) lockSeen(ctx context.Context, tx pgx.Tx, list []sighting) (seen, error) {
	out := seen{rows: make(map[int64]*surehook.Sentinel), known: make(map[int32]bool)}
	place, endpoint := make([]int32, len(list)), make([]int64, len(list))
	id, tenant := make([]string, len(list)), make([]string, len(list))
	for i, x := range list {
		place[i], endpoint[i] = int32(i), x.of().EndpointKey
		id[i], tenant[i] = x.r.item.Event.ID, x.r.item.Event.Tenant
	}
	b := &pgx.Batch{}
	b.Queue(s.q(`SELECT n.endpoint_key, n.until_kind, n.until_at, n.until_count, n.status, n.events, n.last_event_at FROM surehook.sentinels n
		JOIN surehook.endpoints e ON e.key = n.endpoint_key AND e.enabled AND NOT e.deleted WHERE n.endpoint_key = ANY($1) ORDER BY n.endpoint_key FOR UPDATE OF n`),
		slices.Compact(slices.Sorted(slices.Values(endpoint)))).Query(func(rows pgx.Rows) error {
		var n surehook.Sentinel
		_, err := pgx.ForEachRow(rows, []any{&n.EndpointKey, &n.Until.Kind, intoTime{&n.Until.At}, &n.Until.Count, &n.Status, &n.Events, intoTime{&n.LastEventAt}}, func() error {
			row := n
			out.rows[n.EndpointKey] = &row
			return nil
		})
		return err
	})
	b.Queue(s.q(`SELECT x.n FROM unnest($1::int[], $2::bigint[], $3::text[], $4::text[]) x(n, endpoint_key, event_id, tenant)
		WHERE EXISTS (SELECT FROM surehook.sentinel_events y WHERE y.endpoint_key = x.endpoint_key AND y.event_id = x.event_id AND y.tenant = x.tenant OFFSET 0)`),
		place, endpoint, id, tenant).Query(func(rows pgx.Rows) error {
		var n int32
		_, err := pgx.ForEachRow(rows, []any{&n}, func() error {
			out.known[n] = true
			return nil
		})
		return err
	})
	return out, tx.SendBatch(ctx, b).Close()
}

// queueSeen writes what was decided.
func (s *Store) queueSeen(then *pgx.Batch, now int64, changed map[int64]*surehook.Sentinel, full, endpoint, event []int64, id, tenant []string) {
	if len(changed) > 0 {
		keys := slices.Sorted(maps.Keys(changed))
		events, last, status, ended := make([]int64, len(keys)), make([]int64, len(keys)), make([]string, len(keys)), make([]string, len(keys))
		for i, key := range keys {
			n := changed[key]
			events[i], last[i], status[i], ended[i] = n.Events, millis(n.LastEventAt), string(n.Status), string(n.Ended)
		}
		then.Queue(s.q(`UPDATE surehook.sentinels n SET events = x.events, last_event_at = x.last, status = x.status, ended = x.ended,
			settled = n.settled AND x.ended = '', ended_at = CASE WHEN x.ended = '' THEN n.ended_at ELSE $6 END
			FROM unnest($1::bigint[], $2::bigint[], $3::bigint[], $4::text[], $5::text[]) x(key, events, last, status, ended)
			WHERE n.endpoint_key = x.key`), keys, events, last, status, ended, now)
	}
	if len(endpoint) > 0 {
		then.Queue(s.q(`INSERT INTO surehook.sentinel_events (endpoint_key, event_key, event_id, tenant)
			SELECT * FROM unnest($1::bigint[], $2::bigint[], $3::text[], $4::text[])`), endpoint, event, id, tenant)
	}
	if len(full) > 0 {
		then.Queue(s.q(`DELETE FROM surehook.sentinel_events x USING unnest($1::bigint[]) f(key) CROSS JOIN LATERAL (
				SELECT y.event_key FROM surehook.sentinel_events y WHERE y.endpoint_key = f.key ORDER BY y.event_key DESC LIMIT 1 OFFSET $2) o
			WHERE x.endpoint_key = f.key AND x.event_key <= o.event_key
				AND NOT EXISTS (SELECT FROM surehook.pending p WHERE p.event_key = x.event_key AND p.endpoint_key = x.endpoint_key OFFSET 0)`), full, row.KnownEvents)
	}
}

// Sight implements surehook.Sentinels.
func (s *Store) Sight(ctx context.Context, ev *surehook.Event, targets []surehook.Target) (surehook.Appended, error) {
	var out surehook.Appended
	item := surehook.Append{Event: ev, Targets: targets}
	err := s.change(ctx, func(ctx context.Context, tx pgx.Tx) error {
		out = surehook.Appended{EventKey: ev.Key}
		found, err := s.replayEvents(ctx, tx, []int64{ev.Key})
		if e, there := found[ev.Key]; err != nil || !there || e.erased {
			return err // it is gone, or erased: nothing is to be delivered of it
		}
		now, err := s.now(ctx, tx)
		if err != nil {
			return err
		}
		ids, err := s.ids.take(ctx, tx, len(targets))
		if err != nil {
			return err
		}
		b := &appendBatch{ms: now, refs: []ref{{item: &item, out: &out, ids: ids, key: ev.Key, sequence: ev.Sequence, state: stored, epoch: s.Lease().Epoch}}}
		rest := &pgx.Batch{}
		if err := s.see(ctx, tx, b.refs[0].sightings(), now, rest); err != nil {
			return err
		}
		if args := b.pendingArgs(); args != nil {
			rest.Queue(s.q(insertPending), args...)
		}
		s.answerStored(&b.refs[0], now)
		return tx.SendBatch(ctx, rest).Close()
	})
	return out, err
}

// EndSentinels implements surehook.Sentinels. Endpoints are locked before
// sentinels, as whoever changes an endpoint does.
func (s *Store) EndSentinels(ctx context.Context, limit int) (int, bool, error) {
	ended, more := 0, false
	err := s.change(ctx, func(ctx context.Context, tx pgx.Tx) error {
		ended, more = 0, false
		keys, err := collect(ctx, tx, pgx.RowTo[int64], s.q(`(SELECT endpoint_key FROM surehook.sentinels WHERE until_kind = 'at' AND status <> 'expired'
			AND until_at <= surehook.clock() ORDER BY until_at LIMIT $1) UNION (SELECT endpoint_key FROM surehook.sentinels WHERE NOT settled ORDER BY endpoint_key LIMIT $1)`), limit)
		if err != nil || len(keys) == 0 {
			return err
		}
		now, err := s.now(ctx, tx)
		if err != nil {
			return err
		}
		if _, err := tx.Exec(ctx, s.q(`SELECT 1 FROM surehook.endpoints WHERE key = ANY($1) ORDER BY key FOR NO KEY UPDATE`), keys); err != nil {
			return err
		}
		if _, err := tx.Exec(ctx, s.q(`SELECT 1 FROM surehook.sentinels WHERE endpoint_key = ANY($1) ORDER BY endpoint_key FOR UPDATE`), keys); err != nil {
			return err
		}
		over, err := collect(ctx, tx, pgx.RowTo[int64], s.q(`UPDATE surehook.sentinels SET status = 'expired', ended = 'at', settled = false, ended_at = $2
			WHERE endpoint_key = ANY($1) AND until_kind = 'at' AND status <> 'expired' AND until_at <= $2 RETURNING endpoint_key`), keys, now)
		if err != nil {
			return err
		}
		if _, err := tx.Exec(ctx, s.q(`UPDATE surehook.endpoints SET enabled = false, disabled_reason = $2, version = version + 1, updated_at = $3
			WHERE key = ANY($1) AND NOT deleted`), over, surehook.ReasonExpired, now); err != nil {
			return err
		}
		if keys, err = collect(ctx, tx, pgx.RowTo[int64], s.q(`UPDATE surehook.sentinels SET settled = true WHERE endpoint_key = ANY($1) AND NOT settled RETURNING endpoint_key`), keys); err != nil || len(keys) == 0 {
			return err // another node was here
		}
		if err := s.cancelWatches(ctx, tx, keys, now); err != nil {
			return err
		}
		ended, more = len(keys), len(keys) >= limit
		return s.bumpAll(ctx, tx, keys)
	})
	return ended, more, err
}

// ReapSentinels implements surehook.Sentinels.
func (s *Store) ReapSentinels(ctx context.Context, ended time.Duration, limit int, a *surehook.AuditEntry) (int, bool, error) {
	reaped, more := 0, false
	err := s.change(ctx, func(ctx context.Context, tx pgx.Tx) error {
		reaped, more = 0, false
		now, err := s.now(ctx, tx)
		if err != nil {
			return err
		}
		var keys []int64
		eps, err := collect(ctx, tx, pgx.RowToStructByPos[reapedEndpoint], s.q(`SELECT key, id, tenant FROM surehook.endpoints e WHERE NOT deleted AND key = ANY (ARRAY(
			SELECT n.endpoint_key FROM surehook.sentinels n WHERE n.ended_at > 0 AND n.ended_at <= $1 AND n.settled AND NOT EXISTS (
				SELECT FROM surehook.sentinel_events x JOIN surehook.pending p ON p.event_key = x.event_key AND p.endpoint_key = x.endpoint_key WHERE x.endpoint_key = n.endpoint_key OFFSET 0)
			ORDER BY n.ended_at LIMIT $2)) ORDER BY key FOR NO KEY UPDATE`), now-ended.Milliseconds(), limit)
		if err != nil || len(eps) == 0 {
			return err
		}
		for _, ep := range eps {
			keys = append(keys, ep.Key)
			entry := *a
			entry.Target, entry.Tenant = ep.ID, ep.Tenant
			if err := s.putAudit(ctx, tx, now, &entry); err != nil {
				return err
			}
		}
		if err := s.dropEndpoints(ctx, tx, keys, now); err != nil {
			return err
		}
		reaped, more = len(keys), len(keys) == limit
		return s.bumpAll(ctx, tx, keys)
	})
	return reaped, more, err
}

type reapedEndpoint struct {
	Key        int64
	ID, Tenant string
}

// bumpAll marks endpoints as changed, under one new version.
func (s *Store) bumpAll(ctx context.Context, tx pgx.Tx, endpoints []int64) error {
	version, err := s.nextConfig(ctx, tx)
	if err != nil {
		return err
	}
	_, err = tx.Exec(ctx, s.q(`UPDATE surehook.endpoints SET changed = $2 WHERE key = ANY($1)`), endpoints, version)
	return err
}

// TrimSentinel implements surehook.Sentinels. Mostly a count says that there is nothing
// to do.
func (s *Store) TrimSentinel(ctx context.Context, endpoint int64, most, limit int) (int, bool, error) {
	ended, more := 0, false
	err := s.change(ctx, func(ctx context.Context, tx pgx.Tx) error {
		ended, more = 0, false
		var wait int
		if err := tx.QueryRow(ctx, s.q(`SELECT count(*) FROM surehook.pending WHERE endpoint_key = $1 AND owner IS NULL`), endpoint).Scan(&wait); err != nil || wait <= most {
			return err
		}
		rows, err := collect(ctx, tx, scanDelivery, s.q(`SELECT event_key, endpoint_key, id, attempt, first_attempt FROM surehook.pending
			WHERE endpoint_key = $1 AND owner IS NULL ORDER BY event_key LIMIT $2 FOR UPDATE SKIP LOCKED`), endpoint, min(wait-most, limit))
		if err != nil {
			return err
		}
		now, err := s.now(ctx, tx)
		if err != nil {
			return err
		}
		ended, more = len(rows), wait-most > limit
		return s.end(ctx, tx, endpoint, rows, surehook.SentinelFull, now, true, len(rows))
	})
	return ended, more, err
}

// PlanWatch implements surehook.Sentinels.
func (s *Store) PlanWatch(ctx context.Context, provider, watch string, wait time.Duration) (int64, error) {
	var plan int64
	err := s.change(ctx, func(ctx context.Context, tx pgx.Tx) error {
		now, err := s.now(ctx, tx)
		if err != nil {
			return err
		}
		if plan, err = s.key(ctx, tx, now); err != nil {
			return err
		}
		_, err = tx.Exec(ctx, s.q(`INSERT INTO surehook.watch_cancels (key, provider, watch, tries, retry_at) VALUES ($1, $2, $3, 0, $4)`), plan, provider, watch, now+wait.Milliseconds())
		return err
	})
	return plan, err
}

// Cancels implements surehook.Sentinels.
func (s *Store) Cancels(ctx context.Context, limit int) ([]surehook.WatchCancel, error) {
	return list(ctx, s, func(r pgx.CollectableRow) (surehook.WatchCancel, error) {
		var w surehook.WatchCancel
		return w, r.Scan(&w.Key, &w.Provider, &w.Watch, &w.Tries)
	}, `SELECT key, provider, watch, tries FROM surehook.watch_cancels WHERE retry_at <= surehook.clock() ORDER BY retry_at, key LIMIT $1`, limit)
}

// Cancelled implements surehook.Sentinels.
func (s *Store) Cancelled(ctx context.Context, key int64) error {
	return s.change(ctx, func(ctx context.Context, tx pgx.Tx) error {
		_, err := tx.Exec(ctx, s.q(`DELETE FROM surehook.watch_cancels WHERE key = $1`), key)
		return err
	})
}

// PutOffCancel implements surehook.Sentinels.
func (s *Store) PutOffCancel(ctx context.Context, w surehook.WatchCancel, wait time.Duration) error {
	return s.change(ctx, func(ctx context.Context, tx pgx.Tx) error {
		_, err := tx.Exec(ctx, s.q(`UPDATE surehook.watch_cancels SET tries = tries + 1, retry_at = surehook.clock() + $3 WHERE key = $1 AND tries = $2`),
			w.Key, w.Tries, wait.Milliseconds())
		return err
	})
}

// SentinelDeliveries implements surehook.Sentinels.
func (s *Store) SentinelDeliveries(ctx context.Context, endpoints []int64) (map[int64]surehook.SentinelDelivery, error) {
	out := make(map[int64]surehook.SentinelDelivery)
	err := s.read(ctx, func(tx pgx.Tx) error {
		rows, err := tx.Query(ctx, s.q(`SELECT k.key,
			(SELECT count(*) FROM surehook.sentinel_events x JOIN surehook.pending p ON p.event_key = x.event_key AND p.endpoint_key = x.endpoint_key WHERE x.endpoint_key = k.key),
			(SELECT count(*) FROM surehook.dead_letters d WHERE d.endpoint_key = k.key),
			coalesce((SELECT a.key FROM surehook.attempts a WHERE a.endpoint_key = k.key AND a.flags & 2 = 0 ORDER BY a.key DESC LIMIT 1), 0)
			FROM unnest($1::bigint[]) k(key) WHERE EXISTS (SELECT FROM surehook.sentinel_events x WHERE x.endpoint_key = k.key)`), endpoints)
		if err != nil {
			return err
		}
		last := make(map[int64]int64)
		var attempts []int64
		var key, attempt int64
		var d surehook.SentinelDelivery
		if _, err := pgx.ForEachRow(rows, []any{&key, &d.Pending, &d.Dead, &attempt}, func() error {
			d.Any = true
			out[key] = d
			if attempt != 0 {
				last[attempt], attempts = key, append(attempts, attempt)
			}
			return nil
		}); err != nil || len(attempts) == 0 {
			return err
		}
		all, err := collect(ctx, tx, scanAttempt, s.q(`SELECT `+attemptColumns+` FROM (SELECT x.* FROM unnest($1::bigint[], $2::bigint[]) k(endpoint_key, key)
			JOIN surehook.attempts x ON x.endpoint_key = k.endpoint_key AND x.key = k.key) a`+names(`a`)), endpointsOfAttempts(attempts, last), attempts)
		for i := range all {
			d := out[all[i].EndpointKey]
			d.Last = &all[i]
			out[all[i].EndpointKey] = d
		}
		return err
	})
	return out, err
}

func endpointsOfAttempts(attempts []int64, of map[int64]int64) []int64 {
	out := make([]int64, len(attempts))
	for i, a := range attempts {
		out[i] = of[a]
	}
	return out
}
