package postgres

import (
	"cmp"
	"context"
	"maps"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/surehook/surehook"
	"github.com/surehook/surehook/store/internal/row"
)

// What became of an event in its transaction.
const (
	left     = iota // not stored: another version, or another fan-out
	queued          // put into the outbox, behind others of its owner
	repeated        // that, but for its id, which was there or in the outbox
	taken           // as repeated, with other content
	twin            // its id was there
	stored
)

// ref is one event of a batch: where it comes from, and what was answered.
type ref struct {
	job  *appendJob
	item *surehook.Append
	out  *surehook.Appended
	hash []byte
	low  int64   // the id that its key is made of
	ids  []int64 // of its pending rows

	dropped       []bool  // targets that are sentinels' and didn't take the event; nil: none
	ended         []int64 // endpoints whose sentinels it has ended
	alias         string  // its webhook-id, where another tenant's event has its id
	state         int
	gone          bool // its outbox row is
	key, sequence int64
	epoch         int64
}

// appendBatch is the events of some jobs as columns.
type appendBatch struct {
	refs   []ref
	byID   []int       // the refs' places, sorted by id and tenant
	ms     int64       // the time of its transaction
	config int64       // the configuration's version, as the transaction saw it
	owners [][2]string // tenant and owner of the events that get a sequence, sorted
}

func (s *Store) newAppendBatch(ctx context.Context, jobs []*appendJob) (*appendBatch, error) {
	b := &appendBatch{}
	rows := 0
	for _, j := range jobs {
		rows += j.weight()
	}
	var ids []int64
	if err := s.again(ctx, func() (err error) {
		ids, err = s.ids.take(ctx, s.pool, rows)
		return err
	}); err != nil {
		return nil, err
	}
	for _, j := range jobs {
		for i := range j.items {
			item := &j.items[i]
			h := item.Event.ContentHash()
			n := 1 + len(item.Targets)
			b.refs = append(b.refs, ref{job: j, item: item, out: &j.out[i], hash: h[:], low: ids[0], ids: ids[1:n]})
			ids = ids[n:]
			if e := item.Event; e.Owner != "" {
				b.owners = append(b.owners, [2]string{e.Tenant, e.Owner})
			}
			b.byID = append(b.byID, len(b.byID))
		}
	}
	slices.SortFunc(b.owners, func(x, y [2]string) int { return slices.Compare(x[:], y[:]) })
	b.owners = slices.Compact(b.owners)
	slices.SortStableFunc(b.byID, func(x, y int) int {
		m, n := b.refs[x].item.Event, b.refs[y].item.Event
		return cmp.Or(cmp.Compare(m.ID, n.ID), cmp.Compare(m.Tenant, n.Tenant))
	})
	return b, nil
}

// keyArgs are the parameters of keysSQL for the refs at some places. Events that
// went into the outbox are left out.
func (b *appendBatch) keyArgs(epoch int64, places []int) []any {
	n := len(places)
	ids, tenants, hashes := make([]string, 0, n), make([]string, 0, n), make([][]byte, 0, n)
	low, version := make([]int64, 0, n), make([]int64, 0, n)
	for _, i := range places {
		r := &b.refs[i]
		if r.state == queued || r.gone {
			continue
		}
		id := r.item.Event.ID
		if r.alias != "" {
			id = sharedID(id, r.item.Event.Tenant)
		}
		ids, tenants, hashes = append(ids, id), append(tenants, r.item.Event.Tenant), append(hashes, r.hash)
		low, version = append(low, r.low&keyMask), append(version, r.job.version)
	}
	return []any{epoch, ids, tenants, low, hashes, version}
}

// take notes what keysSQL answered for the refs at some places.
func (b *appendBatch) take(places []int, ms, config int64, me *int64, fresh func(low int64) bool) {
	if b.ms == 0 {
		b.ms, b.config = ms, config
	}
	for _, i := range places {
		r := &b.refs[i]
		if r.state == queued || r.gone || r.job.version != config {
			continue
		}
		r.state, r.key, r.epoch = twin, keyOf(ms, r.low), 0
		if fresh(r.low & keyMask) {
			r.state = stored
		}
		if me != nil {
			r.epoch = *me
		}
	}
}

// eventArgs are the parameters of insertEvents; nil: there are none.
func (b *appendBatch) eventArgs() []any {
	n := len(b.refs)
	key, sequence, occurred := make([]int64, 0, n), make([]int64, 0, n), make([]int64, 0, n)
	data := make([][]byte, 0, n)
	text := make([][]string, 11)
	for i := range text {
		text[i] = make([]string, 0, n)
	}
	for i := range b.refs {
		r := &b.refs[i]
		if r.state != stored {
			continue
		}
		e := r.item.Event
		for c, v := range [...]string{e.Tenant, e.ID, e.Type, e.Identity, e.Owner, row.List(e.Subjects), e.Trace, e.About, e.Partner, r.alias, e.APIVersion} {
			text[c] = append(text[c], v)
		}
		key, sequence, occurred, data = append(key, r.key), append(sequence, r.sequence), append(occurred, millis(e.OccurredAt)), append(data, orEmpty(e.Data))
	}
	if len(key) == 0 {
		return nil
	}
	for c, nothing := range [...]string{5: "[]", 10: ""} {
		text[c] = sparse(text[c], nothing)
	}
	return []any{key, text[0], text[1], text[2], text[3], text[4], sparse(sequence, 0), text[5], occurred, b.ms, text[6], text[7], text[8], text[9], text[10], data}
}

// pendingArgs are the parameters of insertPending; nil: there are none.
func (b *appendBatch) pendingArgs() []any {
	var event, endpoint, id, owner, order, sequence []int64
	var size []int32
	for i := range b.refs {
		r := &b.refs[i]
		if r.state != stored {
			continue
		}
		e := r.item.Event
		for t, target := range r.item.Targets {
			if r.left(t) {
				continue
			}
			var key, me int64
			if target.Ordered {
				key = row.OrderKey(e.Tenant, e.Owner)
			}
			if target.Owned {
				me = r.epoch
			}
			event, endpoint, id, owner = append(event, r.key), append(endpoint, target.EndpointKey), append(id, r.ids[t]), append(owner, me)
			order, sequence, size = append(order, key), append(sequence, r.sequence), append(size, int32(len(e.Data)))
		}
	}
	if event == nil {
		return nil
	}
	return []any{event, endpoint, id, sparse(owner, 0), b.ms, sparse(order, 0), sparse(sequence, 0), size}
}

func orEmpty(b []byte) []byte {
	if b == nil {
		return []byte{}
	}
	return b
}

// rowsQuerier is a connection or a transaction.
type rowsQuerier interface {
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
}

// appendIn stores a batch. Its ids are taken first, in a round trip of their own:
// so what follows is plain inserts, which cost the server a third of one statement
// that sorts it all out. Owners' rows are locked before, in one order for all, so that sequences
// have no gaps and ascend in the order of commits. Events that come by the API while others of
// their owner wait in the outbox go there too, behind them.
func (s *Store) appendIn(ctx context.Context, tx *terseTx, epoch int64, b *appendBatch, take takeKeys) error {
	b.reset()
	last, joining, err := s.lockOwners(ctx, tx, b)
	if err != nil {
		return err
	}
	if err := take(ctx, tx, epoch, b, b.byID); err != nil {
		return err
	}
	if foreign, err := s.foreign(ctx, tx, b); err != nil {
		return err
	} else if len(foreign) > 0 {
		if err := s.takeKeys(ctx, tx, epoch, b, foreign); err != nil {
			return err
		}
	}
	for _, r := range joining {
		if r.job.version != b.config {
			r.state = left
		} else if err := s.joinOutbox(ctx, tx, r); err != nil {
			return err
		}
	}
	rest := &pgx.Batch{}
	if err := s.see(ctx, tx, b.sightings(), b.ms, rest); err != nil {
		return err
	}
	if args := b.count(last); args != nil {
		rest.Queue(s.q(`UPDATE surehook.owners w SET last = x.last FROM unnest($1::text[], $2::text[], $3::bigint[]) x(tenant, owner, last)
			WHERE w.tenant = x.tenant AND w.owner = x.owner`), args...)
	}
	if args := b.eventArgs(); args != nil {
		rest.Queue(s.q(insertEvents), args...)
	}
	if args := b.pendingArgs(); args != nil {
		rest.Queue(s.q(insertPending), args...)
	}
	if taken := b.fannedOut(); len(taken) > 0 {
		if err := s.takeOut(ctx, tx, rest, taken); err != nil {
			return err
		}
		if err := s.refuse(ctx, tx, b); err != nil {
			return err
		}
		rest = &pgx.Batch{}
	}
	return tx.last(ctx, rest)
}

// takeOut sends a batch, and with it takes the events' rows out of the outbox.
// One whose row is gone is another fan-out's, or nobody's any more: then all is
// begun again without it.
func (s *Store) takeOut(ctx context.Context, tx *terseTx, batch *pgx.Batch, taken map[int64]*ref) error {
	ids := slices.Sorted(maps.Keys(taken))
	batch.Queue(s.q(`DELETE FROM surehook.outbox WHERE id = ANY($1) RETURNING id`), ids).Query(func(rows pgx.Rows) error {
		var id int64
		_, err := pgx.ForEachRow(rows, []any{&id}, func() error {
			delete(taken, id)
			return nil
		})
		return err
	})
	if err := tx.SendBatch(ctx, batch).Close(); err != nil {
		return err
	}
	for _, r := range taken {
		r.gone = true
	}
	if len(taken) > 0 {
		return errInTheWay
	}
	return nil
}

// lockOwners locks the rows of a batch's owners, and gives their last sequences
// and the events that must join the outbox.
func (s *Store) lockOwners(ctx context.Context, tx *terseTx, b *appendBatch) (map[[2]string]int64, []*ref, error) {
	if len(b.owners) == 0 {
		return nil, nil, nil
	}
	tenants, owners := make([]string, len(b.owners)), make([]string, len(b.owners))
	for i, o := range b.owners {
		tenants[i], owners[i] = o[0], o[1]
	}
	batch := &pgx.Batch{}
	waiting, lasts := make(map[[2]string]bool), make(map[[2]string]int64)
	batch.Queue(limits)
	batch.Queue(s.q(`INSERT INTO surehook.owners (tenant, owner, last) SELECT tenant, owner, 0 FROM unnest($1::text[], $2::text[]) x(tenant, owner)
			ORDER BY tenant, owner ON CONFLICT DO NOTHING`), tenants, owners)
	batch.Queue(s.q(`SELECT w.tenant, w.owner, w.last FROM surehook.owners w JOIN unnest($1::text[], $2::text[]) x(tenant, owner)
			ON w.tenant = x.tenant AND w.owner = x.owner ORDER BY w.tenant, w.owner FOR UPDATE OF w`), tenants, owners).Query(func(rows pgx.Rows) error {
		var o [2]string
		var last int64
		_, err := pgx.ForEachRow(rows, []any{&o[0], &o[1], &last}, func() error {
			lasts[o] = last
			return nil
		})
		return err
	})
	batch.Queue(s.q(`SELECT DISTINCT b.tenant, b.owner FROM surehook.outbox b JOIN unnest($1::text[], $2::text[]) x(tenant, owner)
			ON b.tenant = x.tenant AND b.owner = x.owner WHERE b.owner <> ''`), tenants, owners).Query(func(rows pgx.Rows) error {
		var o [2]string
		_, err := pgx.ForEachRow(rows, []any{&o[0], &o[1]}, func() error {
			waiting[o] = true
			return nil
		})
		return err
	})
	if err := tx.SendBatch(ctx, batch).Close(); err != nil {
		return nil, nil, err
	}
	return lasts, b.joining(waiting), nil
}

// count gives the stored events of owners their sequences, in the batch's order,
// and then the owners' new last ones.
func (b *appendBatch) count(last map[[2]string]int64) []any {
	moved := make(map[[2]string]int64)
	for i := range b.refs {
		r := &b.refs[i]
		if e := r.item.Event; r.state == stored && e.Owner != "" {
			o := [2]string{e.Tenant, e.Owner}
			last[o]++
			r.sequence, moved[o] = last[o], last[o]
		}
	}
	if len(moved) == 0 {
		return nil
	}
	tenants, owners, lasts := make([]string, 0, len(moved)), make([]string, 0, len(moved)), make([]int64, 0, len(moved))
	for o, n := range moved {
		tenants, owners, lasts = append(tenants, o[0]), append(owners, o[1]), append(lasts, n)
	}
	return []any{tenants, owners, lasts}
}

// fannedOut are the events whose outbox rows this batch takes away.
func (b *appendBatch) fannedOut() map[int64]*ref {
	out := make(map[int64]*ref)
	for i := range b.refs {
		if r := &b.refs[i]; r.item.Outbox != 0 && r.state != left {
			out[r.item.Outbox] = r
		}
	}
	return out
}

// reset forgets what an earlier try came to.
func (b *appendBatch) reset() {
	b.ms = 0
	for i := range b.refs {
		r := &b.refs[i]
		r.state, r.sequence, r.alias, r.dropped, r.ended = left, 0, "", nil, nil
	}
}

// joining marks the events that go into the outbox, and gives them.
func (b *appendBatch) joining(waiting map[[2]string]bool) (out []*ref) {
	for i := range b.refs {
		r := &b.refs[i]
		if e := r.item.Event; r.item.Outbox == 0 && e.Owner != "" && waiting[[2]string{e.Tenant, e.Owner}] {
			r.state = queued
			out = append(out, r)
		}
	}
	return out
}
