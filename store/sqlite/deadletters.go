package sqlite

import (
	"context"

	"github.com/ncruces/go-sqlite3"

	"github.com/surehook/surehook"
	"github.com/surehook/surehook/store/internal/row"
)

const letterColumns = `d.key, d.event_key, d.endpoint_key, d.code, d.http_status, d.attempts, d.created_at,
	ifnull(e.id, ''), ifnull(e.type, ''), ifnull(w.id, '')
	FROM dead_letters d LEFT JOIN events e ON e.key = d.event_key LEFT JOIN endpoints w ON w.key = d.endpoint_key`

func scanLetter(st *sqlite3.Stmt) surehook.DeadLetter {
	return surehook.DeadLetter{
		Key: st.ColumnInt64(0), EventKey: st.ColumnInt64(1), EndpointKey: st.ColumnInt64(2), Code: surehook.Code(st.ColumnText(3)),
		HTTPStatus: st.ColumnInt(4), Attempts: st.ColumnInt(5), CreatedAt: at(st.ColumnInt64(6)),
		EventID: st.ColumnText(7), EventType: st.ColumnText(8), EndpointID: st.ColumnText(9),
	}
}

// ListDeadLetters implements surehook.DeadLetters.
func (s *Store) ListDeadLetters(ctx context.Context, f surehook.DeadLetterFilter, p surehook.Page) ([]surehook.DeadLetter, error) {
	var q query
	q.before(`d.key`, p.Cursor)
	if f.Endpoint != 0 {
		q.add(`d.endpoint_key = ?`, f.Endpoint)
	}
	if f.Tenant != "" {
		q.add(`e.tenant = ?`, f.Tenant)
	}
	q.sees(f.For, `d.endpoint_key`)
	q.within(`d.created_at`, f.Since, f.Until)
	var out []surehook.DeadLetter
	err := s.read(ctx, func(c *conn) error {
		return c.each(`SELECT `+letterColumns+q.where()+` ORDER BY d.key DESC LIMIT ?`, q.with(row.PageSize(p)), func(st *sqlite3.Stmt) error {
			out = append(out, scanLetter(st))
			return nil
		})
	})
	return out, err
}

// DeadLetter implements surehook.DeadLetters.
func (s *Store) DeadLetter(ctx context.Context, key int64) (*surehook.DeadLetter, error) {
	var out surehook.DeadLetter
	err := s.read(ctx, func(c *conn) error {
		found, err := c.one(`SELECT `+letterColumns+` WHERE d.key = ?`, []any{key}, func(st *sqlite3.Stmt) error {
			out = scanLetter(st)
			return nil
		})
		if err == nil && !found {
			err = notFound("dead letter")
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	return &out, nil
}

// CountDeadLetters implements surehook.DeadLetters.
func (s *Store) CountDeadLetters(ctx context.Context) (map[int64]int64, error) {
	out := make(map[int64]int64)
	err := s.read(ctx, func(c *conn) error {
		return c.each(`SELECT endpoint_key, count(*) FROM dead_letters GROUP BY endpoint_key`, nil, func(st *sqlite3.Stmt) error {
			out[st.ColumnInt64(0)] = st.ColumnInt64(1)
			return nil
		})
	})
	return out, err
}

// DiscardDeadLetters implements surehook.DeadLetters.
func (s *Store) DiscardDeadLetters(_ context.Context, keys []int64, a *surehook.AuditEntry) (int, error) {
	var gone int
	err := s.change(func(c *conn) error {
		gone = 0
		for _, k := range keys {
			n, err := c.exec(`DELETE FROM dead_letters WHERE key = ?`, k)
			if err != nil {
				return err
			}
			gone += int(n)
		}
		if gone == 0 {
			return nil
		}
		return s.putAudit(c, a)
	})
	return gone, err
}
