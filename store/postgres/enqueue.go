package postgres

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/surehook/surehook"
	"github.com/surehook/surehook/internal/accept"
)

// Schema names the schema that a server keeps its tables in, for programs that
// add events to it in transactions of their own. They need no Store, and a role
// that may do nothing but call the function enqueue. "" is "surehook".
type Schema string

// EnqueueTx adds events to the schema "surehook" as part of tx, and gives their
// ids. They are accepted when tx is committed, and delivered from then on; if it
// is rolled back there never were any. Neither this call nor the transaction,
// however long it stays open, makes others wait.
//
// All events are added or none. An id that is there already, with the same
// content, is the same event. After an error tx can only be rolled back, unless
// the error is that an event is invalid.
func EnqueueTx(ctx context.Context, tx pgx.Tx, events ...surehook.Event) ([]string, error) {
	return Schema("").EnqueueTx(ctx, tx, events...)
}

// EnqueueSQL is EnqueueTx for database/sql, with any driver for PostgreSQL.
func EnqueueSQL(ctx context.Context, tx *sql.Tx, events ...surehook.Event) ([]string, error) {
	return Schema("").EnqueueSQL(ctx, tx, events...)
}

// EnqueueTx is the function of that name for this schema.
func (s Schema) EnqueueTx(ctx context.Context, tx pgx.Tx, events ...surehook.Event) ([]string, error) {
	return s.enqueue(events, func(query, arg string) ([]string, error) {
		rows, err := tx.Query(ctx, query, arg)
		if err != nil {
			return nil, err
		}
		return pgx.CollectRows(rows, pgx.RowTo[string])
	})
}

// EnqueueSQL is the function of that name for this schema.
func (s Schema) EnqueueSQL(ctx context.Context, tx *sql.Tx, events ...surehook.Event) ([]string, error) {
	return s.enqueue(events, func(query, arg string) (ids []string, err error) {
		rows, err := tx.QueryContext(ctx, query, arg)
		if err != nil {
			return nil, err
		}
		defer func() { err = errors.Join(err, rows.Close()) }()
		for rows.Next() {
			var id string
			if err := rows.Scan(&id); err != nil {
				return nil, err
			}
			ids = append(ids, id)
		}
		return ids, rows.Err()
	})
}

// enqueueSQL adds all events of a call. data travels as text inside the text, so
// that it keeps its bytes.
const enqueueSQL = `SELECT surehook.enqueue(x.type, x.data::json, x.tenant, x.id, x.owner, x.identity,
	ARRAY(SELECT json_array_elements_text(x.subjects)), x.occurred_at::timestamptz, x.trace)
	FROM json_to_recordset($1::text::json) AS x(type text, data text, tenant text, id text, owner text, identity text, subjects json,
		occurred_at text, trace text)`

// outboxEvent is an event as enqueueSQL reads it.
type outboxEvent struct {
	Type       string   `json:"type"`
	Data       string   `json:"data"`
	Tenant     string   `json:"tenant"`
	ID         string   `json:"id"`
	Owner      string   `json:"owner"`
	Identity   string   `json:"identity"`
	Subjects   []string `json:"subjects"`
	OccurredAt string   `json:"occurred_at"`
	Trace      string   `json:"trace"`
}

// enqueue checks the events, as those that come by the API are, and has query
// add them.
func (s Schema) enqueue(events []surehook.Event, query func(query, arg string) ([]string, error)) ([]string, error) {
	if s == "" {
		s = defaultSchema
	}
	if !schemaName.MatchString(string(s)) {
		return nil, surehook.Invalid("schema", "must be lower-case letters, digits and _, at most 63")
	}
	accepted, err := accept.Events(events, time.Now())
	if err != nil || len(events) == 0 {
		return nil, err
	}
	list := make([]outboxEvent, len(accepted))
	for i, e := range accepted {
		list[i] = outboxEvent{Type: e.Type, Data: string(e.Data), Tenant: e.Tenant, ID: e.ID, Owner: e.Owner, Identity: e.Identity,
			Subjects: append([]string{}, e.Subjects...), OccurredAt: e.OccurredAt.Format("2006-01-02T15:04:05.000Z07:00"), Trace: e.Trace}
	}
	var arg strings.Builder
	enc := json.NewEncoder(&arg)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(list); err != nil {
		return nil, fmt.Errorf("postgres: %w", err)
	}
	ids, err := query(inSchema(enqueueSQL, pgx.Identifier{string(s)}.Sanitize()), arg.String())
	if err != nil {
		return nil, s.refused(err)
	}
	return ids, nil
}

// refused gives an error of the function, or of what keeps it from running, our
// code. Drivers agree on how to tell the state.
func (s Schema) refused(err error) error {
	state, ok := errors.AsType[interface {
		error
		SQLState() string
	}](err)
	if !ok {
		return wrap(err)
	}
	switch state.SQLState() {
	case "23505":
		return surehook.Errorf(surehook.Conflict, "an event with this id and other content exists").WithCause(err)
	case "22023":
		return surehook.Errorf(surehook.InvalidRequest, "the database refuses the event").WithCause(err)
	case "42501":
		return surehook.Errorf(surehook.Forbidden, "this role may not add events; it needs USAGE on the schema %s and EXECUTE on its function enqueue", s).WithCause(err)
	case "3F000", "42883":
		return surehook.Errorf(surehook.NotFound, "there is no function %s.enqueue in this database; start surehook on it once, or name its schema", s).WithCause(err)
	}
	return wrap(err)
}
