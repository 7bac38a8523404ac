package postgres

import (
	"bytes"
	"context"
	"strings"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/surehook/surehook"
)

// plainKeysSQL takes the ids of a batch, in one order for all nodes, and fails when
// one of them was there already. Rows are held ($1) only while this node's lease
// stands, which the lock keeps true until the commit.
const plainKeysSQL = `WITH t AS MATERIALIZED (` + batchSQL + `), k AS (
	INSERT INTO surehook.event_keys (id, tenant, key, hash)
	SELECT unnest($2::text[]), unnest($3::text[]), (((SELECT ms FROM t) - 1577836800000) << 22) | unnest($4::bigint[]), unnest($5::bytea[])
)
SELECT ms, config, me, aliases FROM t`

// keysSQL does so too, but leaves out ids that were there, and items whose
// configuration version is not today's; and tells which it took, by the low bits
// of their keys. To look for each id first, and for its alias, makes it twice as dear.
const keysSQL = `WITH t AS MATERIALIZED (` + batchSQL + `), k AS (
	INSERT INTO surehook.event_keys (id, tenant, key, hash)
	SELECT i.id, i.tenant, (((SELECT ms FROM t) - 1577836800000) << 22) | i.low, i.hash
	FROM (SELECT unnest($2::text[]) AS id, unnest($3::text[]) AS tenant, unnest($4::bigint[]) AS low, unnest($5::bytea[]) AS hash,
		unnest($6::bigint[]) AS version) i
	WHERE i.version = (SELECT config FROM t) AND NOT EXISTS (SELECT FROM surehook.event_keys y WHERE y.id = i.id || ' ' || i.tenant OFFSET 0)
	ON CONFLICT DO NOTHING RETURNING key & 4194303 AS low
)
SELECT ms, config, me, ARRAY(SELECT low FROM k) FROM t`

// batchSQL is what a batch must know, and its limits.
const batchSQL = `SELECT surehook.clock() AS ms, (SELECT value FROM surehook.counters WHERE name = 'config') AS config,
		(SELECT value FROM surehook.counters WHERE name = 'aliases') AS aliases,
		(SELECT epoch FROM surehook.nodes WHERE epoch = $1 FOR KEY SHARE) AS me,
		set_config('statement_timeout', '30s', true), set_config('idle_in_transaction_session_timeout', '10s', true),
		set_config('jit', 'off', true)`

// insertEvents and insertPending store what keysSQL let pass. Lists of one length
// in a SELECT's columns cost the server less than in its FROM: it keeps no copy.
// Lists that say nothing come as NULL (see sparse).
const (
	insertEvents = `INSERT INTO surehook.events (key, tenant, id, type, identity, owner, sequence, subjects, occurred_at, created_at, trace, about, partner, alias,
		api_version, data)
	SELECT key, coalesce(tenant, ''), id, type, coalesce(identity, ''), coalesce(owner, ''), coalesce(sequence, 0), coalesce(subjects, '[]'), occurred_at,
		$10::bigint, coalesce(trace, ''), coalesce(about, ''), coalesce(partner, ''), coalesce(alias, ''), coalesce(api_version, ''), data
	FROM (SELECT unnest($1::bigint[]) AS key, unnest($2::text[]) AS tenant, unnest($3::text[]) AS id, unnest($4::text[]) AS type, unnest($5::text[]) AS identity,
		unnest($6::text[]) AS owner, unnest($7::bigint[]) AS sequence, unnest($8::text[]) AS subjects, unnest($9::bigint[]) AS occurred_at,
		unnest($11::text[]) AS trace, unnest($12::text[]) AS about, unnest($13::text[]) AS partner, unnest($14::text[]) AS alias,
		unnest($15::text[]) AS api_version, unnest($16::bytea[]) AS data) x`

	insertPending = `INSERT INTO surehook.pending (event_key, endpoint_key, id, owner, due, order_key, sequence, attempt, first_attempt, size)
	SELECT event, endpoint, id, nullif(owner, 0), $5::bigint, nullif(order_key, 0), coalesce(sequence, 0), 0, 1, size
	FROM (SELECT unnest($1::bigint[]) AS event, unnest($2::bigint[]) AS endpoint, unnest($3::bigint[]) AS id, unnest($4::bigint[]) AS owner,
		unnest($6::bigint[]) AS order_key, unnest($7::bigint[]) AS sequence, unnest($8::int[]) AS size) x`
)

// sparse gives nil for a column of which no row says anything: most rows lack the
// same things, and an element costs both sides, whatever is in it.
func sparse[T comparable](column []T, nothing T) []T {
	for _, v := range column {
		if v != nothing {
			return column
		}
	}
	return nil
}

// appendJob is one call of Append.
type appendJob struct {
	version int64
	items   []surehook.Append
	out     []surehook.Appended
	changed bool // the configuration isn't that of version
	done    chan error
}

func (j *appendJob) weight() int {
	n := 0
	for i := range j.items {
		n += 1 + len(j.items[i].Targets)
	}
	return n
}

// Append implements surehook.Appender.
func (s *Store) Append(_ context.Context, version int64, items []surehook.Append) ([]surehook.Appended, error) {
	j := &appendJob{version: version, items: items, out: make([]surehook.Appended, len(items)), done: make(chan error, 1)}
	if err := s.append.do(j); err != nil {
		return nil, err
	}
	if j.changed {
		return nil, surehook.ErrConfigChanged
	}
	return j.out, nil
}

// appendBatch stores the jobs in one transaction. When one of them fails, the
// others must not suffer: each then gets its own; and then each of its events.
func (s *Store) appendBatch(jobs []*appendJob) {
	err := s.tryAppend(jobs)
	switch {
	case err == nil || surehook.CodeOf(err) == surehook.Unavailable || surehook.CodeOf(err) == surehook.Stopping:
		for _, j := range jobs {
			j.done <- err
		}
	case len(jobs) > 1:
		for _, j := range jobs {
			s.appendBatch([]*appendJob{j})
		}
	case len(jobs[0].items) > 1:
		jobs[0].done <- s.appendEach(jobs[0])
	default:
		s.log.Error("an event couldn't be stored", "event_id", jobs[0].items[0].Event.ID, "error", err)
		jobs[0].out[0] = surehook.Appended{Err: err}
		jobs[0].done <- nil
	}
}

// appendEach stores a job's events one by one. Once one is stored, an error of
// the store is the later ones' answer alone.
func (s *Store) appendEach(j *appendJob) error {
	for i := range j.items {
		one := &appendJob{version: j.version, items: j.items[i : i+1], out: j.out[i : i+1], done: make(chan error, 1)}
		s.appendBatch([]*appendJob{one})
		err := <-one.done
		switch {
		case err == nil && one.changed && i == 0:
			j.changed = true
			return nil
		case err == nil && one.changed:
			err = surehook.ErrConfigChanged
		case err != nil && i == 0:
			return err
		}
		if err != nil {
			j.out[i] = surehook.Appended{Err: err}
		}
	}
	return nil
}

// tryAppend stores the jobs in one transaction, and tells each event's answer.
func (s *Store) tryAppend(jobs []*appendJob) error {
	ctx, cancel := context.WithTimeout(context.Background(), writeLimit)
	defer cancel()
	b, err := s.newAppendBatch(ctx, jobs)
	if err != nil {
		return wrap(err)
	}
	epoch := s.Lease().Epoch
	err = s.again(ctx, func() error {
		take := s.takeKeys
		if s.append.plain() {
			take = s.takePlainKeys
		}
		err := s.terse(ctx, func(tx *terseTx) error { return s.appendIn(ctx, tx, epoch, b, take) })
		if s.append.notPlain(err) {
			err = s.terse(ctx, func(tx *terseTx) error { return s.appendIn(ctx, tx, epoch, b, s.takeKeys) })
		}
		return err
	})
	if err != nil {
		if gone(err) {
			s.doubt(epoch)
		}
		return wrap(err)
	}
	if err := s.answer(ctx, b); err != nil {
		s.doubt(epoch) // what was stored is held, and its lanes will never hear of it
		return wrap(err)
	}
	return nil
}

// answer fills in the jobs' answers, after the commit. Events whose id was there
// already are looked up.
func (s *Store) answer(ctx context.Context, b *appendBatch) error {
	var twins []*ref
	for i := range b.refs {
		r := &b.refs[i]
		out, item := r.out, r.item
		switch r.state {
		case left:
			if r.job.version != b.config {
				r.job.changed = true
			} else {
				*out = surehook.Appended{Duplicate: true} // another fan-out took its outbox row
			}
		case queued:
			*out = surehook.Appended{Queued: true}
		case repeated:
			*out = surehook.Appended{Duplicate: true, EventKey: r.key}
		case taken:
			*out = surehook.Appended{EventKey: r.key, Err: errTaken}
		case twin:
			twins = append(twins, r)
		case stored:
			item.Event.Key, item.Event.CreatedAt, item.Event.Sequence, item.Event.Alias = r.key, at(b.ms), r.sequence, r.alias
			s.answerStored(r, b.ms)
		}
	}
	if len(twins) == 0 {
		return nil
	}
	return s.answerTwins(ctx, twins)
}

// answerStored gives the rows of an event that was stored.
func (s *Store) answerStored(r *ref, ms int64) {
	*r.out = surehook.Appended{EventKey: r.key, Ended: r.ended}
	if len(r.item.Targets) > 0 {
		r.out.Deliveries = make([]surehook.Delivery, len(r.item.Targets))
	}
	for t, target := range r.item.Targets {
		if r.left(t) {
			continue
		}
		if target.Remote {
			s.calls.add(target.EndpointKey)
		}
		d := surehook.Delivery{ID: r.ids[t], EventKey: r.key, EndpointKey: target.EndpointKey, FirstAttempt: 1, Due: at(ms)}
		if target.Owned {
			d.Epoch = r.epoch
		}
		r.out.Deliveries[t] = d
	}
}

func (s *Store) answerTwins(ctx context.Context, twins []*ref) error {
	ids, tenants := make([]string, len(twins)), make([]string, len(twins))
	for i, r := range twins {
		ids[i], tenants[i] = r.item.Event.ID, r.item.Event.Tenant
	}
	type found struct {
		key  int64
		hash []byte
	}
	known := make(map[[2]string]found)
	var id, tenant string
	var f found
	if err := s.change(ctx, func(ctx context.Context, tx pgx.Tx) error {
		rows, err := tx.Query(ctx, s.q(`SELECT x.id, k.tenant, k.key, k.hash FROM unnest($1::text[], $2::text[]) x(id, tenant)
			JOIN surehook.event_keys k ON k.id IN (x.id, x.id || ' ' || x.tenant) AND k.tenant = x.tenant`), ids, tenants)
		if err != nil {
			return err
		}
		if _, err := pgx.ForEachRow(rows, []any{&id, &tenant, &f.key, &f.hash}, func() error {
			known[[2]string{strings.Clone(id), strings.Clone(tenant)}] = found{f.key, bytes.Clone(f.hash)}
			return nil
		}); err != nil {
			return err
		}
		// The one that was first may not have reached the standby (a commit's wait
		// for it can be cut short): this is committed, and confirmed, behind it.
		_, err = tx.Exec(ctx, `SELECT pg_logical_emit_message(true, 'surehook', '')`)
		return err
	}); err != nil {
		return err
	}
	for _, r := range twins {
		f, ok := known[[2]string{r.item.Event.ID, r.item.Event.Tenant}]
		switch {
		case !ok: // it went between the two statements: retention is that quick only with very old ids
			*r.out = surehook.Appended{Err: unavailable("an event with this id was just in the way", nil)}
		case bytes.Equal(f.hash, r.hash):
			*r.out = surehook.Appended{Duplicate: true, EventKey: f.key}
		default:
			*r.out = surehook.Appended{EventKey: f.key, Err: errTaken}
		}
	}
	return nil
}

var errTaken = conflict("an event with this id and other content exists")

// appender gathers calls of Append into transactions.
type appender struct {
	s    *Store
	jobs chan *appendJob // unbuffered: a job that was taken is always answered
	turn chan struct{}   // whose turn it is to gather
	quit chan struct{}
	gone chan struct{}

	aliases atomic.Bool  // some id is another tenant's too (alias.go)
	careful atomic.Int64 // until when a batch may well have an id that was there, Unix ns
}

const (
	appendWorkers = 2 // the second one goes on when the first is slow: one large transaction costs less than two small ones
	appendSlow    = 20 * time.Millisecond
	appendWeight  = 768 // rows in one transaction, about
	busyWeight    = 24  // from there on the next transaction waits for company: half as long as the last one took
	mostPause     = 10 * time.Millisecond
)

func startAppender(s *Store) *appender {
	a := &appender{s: s, jobs: make(chan *appendJob), turn: make(chan struct{}, 1), quit: make(chan struct{}), gone: make(chan struct{})}
	done := make(chan struct{}, appendWorkers)
	for range appendWorkers {
		go func() {
			a.work()
			done <- struct{}{}
		}()
	}
	go func() {
		for range appendWorkers {
			<-done
		}
		close(a.gone)
	}()
	return a
}

// stop finishes the jobs that wait.
func (a *appender) stop() {
	close(a.quit)
	<-a.gone
}

func (a *appender) do(j *appendJob) error {
	select {
	case a.jobs <- j:
		return <-j.done
	case <-a.gone:
		return errClosed
	}
}

func (a *appender) work() {
	mine := false
	var pause time.Duration
	for {
		if mine {
			<-a.turn
		}
		select {
		case a.turn <- struct{}{}:
			mine = true
		case <-time.After(appendSlow):
			mine = false
		}
		var first *appendJob
		select {
		case first = <-a.jobs:
		case <-a.quit:
			select {
			case first = <-a.jobs:
			default:
				return
			}
		}
		if pause > 0 {
			time.Sleep(pause) //nolint:forbidigo // the pause is the point
		}
		batch, weight := []*appendJob{first}, first.weight()
	gather:
		for weight < appendWeight {
			select {
			case j := <-a.jobs:
				batch, weight = append(batch, j), weight+j.weight()
			default:
				break gather
			}
		}
		start := time.Now()
		a.s.appendBatch(batch)
		if pause = 0; weight >= busyWeight {
			pause = min(time.Since(start), mostPause)
		}
		if a.s.opt.OnBatch != nil {
			a.s.opt.OnBatch(BatchStats{Jobs: len(batch), Duration: time.Since(start)})
		}
	}
}
