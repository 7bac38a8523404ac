package postgres

import (
	"context"
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
	job   *appendJob
	item  *surehook.Append
	out   *surehook.Appended
	hash  []byte
	low   int64   // the id that its key is made of
	ids   []int64 // of its pending rows
	alias string  // its webhook-id, where another tenant's event has its id

	state         int
	key, sequence int64
	ms, epoch     int64
}

// appendBatch is the events of some jobs as columns.
type appendBatch struct {
	refs    []ref
	config  int64       // the configuration's version, as the transaction saw it
	owners  [][2]string // tenant and owner of the events that get a sequence, sorted
	careful bool        // it takes more than one statement
	from    []int32     // of a part of another batch: the places there
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
			b.careful = b.careful || item.Event.Owner != "" || item.Outbox != 0
		}
	}
	slices.SortFunc(b.owners, func(x, y [2]string) int { return slices.Compare(x[:], y[:]) })
	b.owners = slices.Compact(b.owners)
	return b, nil
}

// args are the parameters of appendSQL. Events that went into the outbox are
// left out.
func (b *appendBatch) args(epoch int64) []any {
	n := len(b.refs)
	var outbox, outboxVersion []int64
	num := make([]int32, 0, n)
	low, version, from, occurred := make([]int64, 0, n), make([]int64, 0, n), make([]int64, 0, n), make([]int64, 0, n)
	text := make([][]string, 11)
	for i := range text {
		text[i] = make([]string, 0, n)
	}
	hash, data := make([][]byte, 0, n), make([][]byte, 0, n)
	var pn []int32
	var endpoint, id, order []int64
	var owned []bool
	for i := range b.refs {
		r := &b.refs[i]
		if r.state == queued {
			continue
		}
		e := r.item.Event
		if r.item.Outbox != 0 {
			outbox, outboxVersion = append(outbox, r.item.Outbox), append(outboxVersion, r.job.version)
		}
		num, low, version, from = append(num, int32(i)), append(low, r.low), append(version, r.job.version), append(from, r.item.Outbox)
		for c, v := range [...]string{e.Tenant, e.ID, e.Type, e.Identity, e.Owner, row.List(e.Subjects), e.Trace, e.About, e.Partner, r.alias, e.APIVersion} {
			text[c] = append(text[c], v)
		}
		occurred, hash, data = append(occurred, millis(e.OccurredAt)), append(hash, r.hash), append(data, orEmpty(e.Data))
		for t, target := range r.item.Targets {
			var key int64
			if target.Ordered {
				key = row.OrderKey(e.Tenant, e.Owner)
			}
			pn, endpoint, id, owned, order = append(pn, int32(i)), append(endpoint, target.EndpointKey), append(id, r.ids[t]),
				append(owned, target.Owned), append(order, key)
		}
	}
	return []any{epoch, outbox, outboxVersion, num, low, version, from, text[0], text[1], hash, text[2], text[3], text[4], text[5], occurred,
		text[6], text[7], text[8], text[9], text[10], data, pn, endpoint, id, owned, order}
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

// appendTx stores a batch that holds events of owners, or of the outbox. Owners'
// rows are locked first, in one order for all, so that sequences have no gaps and
// ascend in the order of commits. Events that come by the API while others of
// their owner wait in the outbox go there too, behind them.
func (s *Store) appendTx(ctx context.Context, epoch int64, b *appendBatch) error {
	return s.transaction(ctx, func(tx pgx.Tx) error {
		joining, err := s.lockOwners(ctx, tx, b)
		if err != nil {
			return err
		}
		if err := s.appendRows(ctx, tx, epoch, b); err != nil {
			return err
		}
		if err := s.aliasForeign(ctx, tx, b); err != nil {
			return err
		}
		for _, r := range joining {
			if r.job.version != b.config {
				r.state = left
				continue
			}
			if err := s.joinOutbox(ctx, tx, r); err != nil {
				return err
			}
		}
		return s.refuse(ctx, tx, b)
	})
}

// lockOwners locks the rows of a batch's owners, and gives the events that must
// join the outbox.
func (s *Store) lockOwners(ctx context.Context, tx pgx.Tx, b *appendBatch) ([]*ref, error) {
	if len(b.owners) == 0 {
		return nil, nil
	}
	tenants, owners := make([]string, len(b.owners)), make([]string, len(b.owners))
	for i, o := range b.owners {
		tenants[i], owners[i] = o[0], o[1]
	}
	batch := &pgx.Batch{}
	waiting := make(map[[2]string]bool)
	batch.Queue(s.q(`INSERT INTO surehook.owners (tenant, owner, last) SELECT tenant, owner, 0 FROM unnest($1::text[], $2::text[]) x(tenant, owner)
			ORDER BY tenant, owner ON CONFLICT DO NOTHING`), tenants, owners)
	batch.Queue(s.q(`SELECT 1 FROM surehook.owners w JOIN unnest($1::text[], $2::text[]) x(tenant, owner) ON w.tenant = x.tenant AND w.owner = x.owner
			ORDER BY w.tenant, w.owner FOR UPDATE OF w`), tenants, owners)
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
		return nil, err
	}
	return b.joining(waiting), nil
}

// reset forgets what an earlier try came to.
func (b *appendBatch) reset() {
	for i := range b.refs {
		b.refs[i].state = left
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
