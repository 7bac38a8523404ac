package sqlite

import (
	"context"

	"github.com/ncruces/go-sqlite3"

	"github.com/surehook/surehook"
)

// PutEventType implements surehook.Catalogue.
func (s *Store) PutEventType(_ context.Context, t *surehook.EventType, a *surehook.AuditEntry) error {
	row := *t
	err := s.change(func(c *conn) error {
		row = *t
		row.UpdatedAt = at(millis(s.now()))
		if row.CreatedAt.IsZero() {
			row.CreatedAt = row.UpdatedAt
		}
		if _, err := c.exec(`INSERT INTO event_types (name, description, example, schema, validate, created_at, updated_at, requires) VALUES (?1,?2,?3,?4,?5,?6,?7,?8)
			ON CONFLICT (name) DO UPDATE SET description = ?2, example = ?3, schema = ?4, validate = ?5, updated_at = ?7, requires = ?8`,
			row.Name, row.Description, row.Example, row.Schema, row.Validate, row.CreatedAt, row.UpdatedAt, row.Requires); err != nil {
			return err
		}
		created, err := c.int64(`SELECT created_at FROM event_types WHERE name = ?`, row.Name)
		if err != nil {
			return err
		}
		row.CreatedAt = at(created)
		return s.putAudit(c, a)
	})
	if err == nil {
		*t = row
	}
	return err
}

// EventTypes implements surehook.Catalogue, by name.
func (s *Store) EventTypes(ctx context.Context) ([]*surehook.EventType, error) {
	var out []*surehook.EventType
	err := s.read(ctx, func(c *conn) error {
		return c.each(`SELECT name, description, example, schema, validate, created_at, updated_at, requires FROM event_types ORDER BY name`, nil, func(st *sqlite3.Stmt) error {
			out = append(out, &surehook.EventType{Name: st.ColumnText(0), Description: st.ColumnText(1), Example: st.ColumnBlob(2, nil),
				Schema: st.ColumnBlob(3, nil), Validate: st.ColumnBool(4), CreatedAt: at(st.ColumnInt64(5)), UpdatedAt: at(st.ColumnInt64(6)),
				Requires: st.ColumnText(7)})
			return nil
		})
	})
	return out, err
}

// DeleteEventType implements surehook.Catalogue.
func (s *Store) DeleteEventType(_ context.Context, name string, a *surehook.AuditEntry) error {
	return s.change(func(c *conn) error {
		n, err := c.exec(`DELETE FROM event_types WHERE name = ?`, name)
		if err != nil {
			return err
		}
		if n == 0 {
			return notFound("event type")
		}
		return s.putAudit(c, a)
	})
}
