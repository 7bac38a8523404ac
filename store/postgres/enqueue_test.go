package postgres

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	_ "github.com/jackc/pgx/v5/stdlib"

	"github.com/surehook/surehook"
)

// outboxTest is a store with a connection of an application beside it.
type outboxTest struct {
	t     *testing.T
	s     *Store
	dsn   string
	admin *pgx.Conn
}

func newOutboxTest(t *testing.T, opt Options) *outboxTest {
	t.Helper()
	dsn := migrated(t)
	return &outboxTest{t: t, dsn: dsn, s: reopenable(t, dsn, opt)(), admin: connect(t, dsn)}
}

func connect(t testing.TB, dsn string) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), dsn)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close(context.Background()) })
	return conn
}

// role makes a role that may connect and, of all that surehook has, call enqueue.
func (o *outboxTest) role(schema string) *pgx.Conn {
	o.t.Helper()
	name := "app_" + itoa(time.Now().UnixNano()) // roles are the server's, not the database's
	for _, sql := range []string{
		`CREATE ROLE ` + name,
		`GRANT USAGE ON SCHEMA ` + schema + ` TO ` + name,
		`GRANT EXECUTE ON FUNCTION ` + schema + `.enqueue TO ` + name,
	} {
		if _, err := o.admin.Exec(o.t.Context(), sql); err != nil {
			o.t.Fatal(sql, err)
		}
	}
	o.t.Cleanup(func() {
		if _, err := o.admin.Exec(context.Background(), `DROP OWNED BY `+name+`; DROP ROLE `+name); err != nil {
			o.t.Error(err)
		}
	})
	conn := connect(o.t, o.dsn)
	if _, err := conn.Exec(o.t.Context(), `SET SESSION AUTHORIZATION `+name); err != nil {
		o.t.Fatal(err)
	}
	return conn
}

func (o *outboxTest) waiting() []*surehook.Event {
	o.t.Helper()
	rows, err := o.s.Outbox(o.t.Context(), 1000)
	if err != nil {
		o.t.Fatal(err)
	}
	out := make([]*surehook.Event, len(rows))
	for i, r := range rows {
		out[i] = r.Event
	}
	return out
}

func enqueue(t *testing.T, conn *pgx.Conn, sql string, args ...any) string {
	t.Helper()
	var id string
	if err := conn.QueryRow(t.Context(), sql, args...).Scan(&id); err != nil {
		t.Fatal(err)
	}
	return id
}

// A role that may do nothing else adds events, in whatever schema they are.
func TestEnqueueNeedsNoOtherRight(t *testing.T) {
	for _, schema := range []string{"surehook", "hooks"} {
		t.Run(schema, func(t *testing.T) {
			o := newOutboxTest(t, Options{Schema: schema})
			quoted := pgx.Identifier{schema}.Sanitize()
			app := o.role(quoted)
			// A path of the caller's must not lead the function astray.
			if _, err := app.Exec(t.Context(), `CREATE TEMP TABLE counters AS SELECT 1 AS x; CREATE TEMP TABLE outbox AS SELECT 1 AS x;
				SET search_path = pg_temp, public`); err != nil {
				t.Fatal(err)
			}
			before := time.Now().Add(-time.Second)
			id := enqueue(t, app, `SELECT `+quoted+`.enqueue('order.paid', $1::json, 'acme', subjects => ARRAY['a/b', 'quote " ü'],
				owner => 'order-7', identity => 'ali', trace => 'nonsense')`, " {\n\t\"a\" : 1.0e2, \"a\":\"\\u0000\\ud800<\" }\r\n")
			if !regexp.MustCompile(`^evt_0[0-9A-HJKMNP-TV-Z]{25}$`).MatchString(id) {
				t.Errorf("id %q", id)
			}
			got := o.waiting()
			if len(got) != 1 {
				t.Fatalf("%d events wait", len(got))
			}
			e := *got[0]
			if e.OccurredAt.Before(before) || e.OccurredAt.After(time.Now().Add(time.Second)) {
				t.Errorf("it occurred at %v", e.OccurredAt)
			}
			e.OccurredAt = time.Time{}
			want := surehook.Event{ID: id, Type: "order.paid", Tenant: "acme", Identity: "ali", Owner: "order-7", Subjects: []string{"a/b", `quote " ü`},
				Data: []byte(" {\n\t\"a\" : 1.0e2, \"a\":\"\\u0000\\ud800<\" }\r\n")}
			if fmt.Sprintf("%+v", e) != fmt.Sprintf("%+v", want) {
				t.Errorf("got  %+v\nwant %+v", e, want)
			}
			rows, err := app.Query(t.Context(), `SELECT quote_ident(n.nspname) || '.' || quote_ident(c.relname), c.relkind = 'S' FROM pg_class c
				JOIN pg_namespace n ON n.oid = c.relnamespace WHERE n.nspname = $1 AND c.relkind IN ('r', 'p', 'S')`, schema)
			if err != nil {
				t.Fatal(err)
			}
			tables := 0
			type relation struct {
				Name     string
				Sequence bool
			}
			all, err := pgx.CollectRows(rows, pgx.RowToStructByPos[relation])
			if err != nil {
				t.Fatal(err)
			}
			for _, r := range all {
				tables++
				sql := `SELECT * FROM ` + r.Name
				if r.Sequence {
					sql = `SELECT nextval('` + r.Name + `')`
				}
				if _, err := app.Exec(t.Context(), sql); sqlState(err) != "42501" {
					t.Errorf("%s: %v", sql, err)
				}
			}
			if tables < 20 {
				t.Errorf("only %d tables were looked at", tables)
			}
			for _, call := range []string{"clock()", "ulid(1)", "content_hash('{}')"} {
				if _, err := app.Exec(t.Context(), `SELECT `+quoted+`.`+call); sqlState(err) != "42501" {
					t.Errorf("%s: %v", call, err)
				}
			}
		})
	}
}

func TestEnqueueIsForNobodyByDefault(t *testing.T) {
	o := newOutboxTest(t, Options{})
	app := o.role("surehook")
	var name string
	if err := app.QueryRow(t.Context(), `SELECT current_user`).Scan(&name); err != nil {
		t.Fatal(err)
	}
	if _, err := o.admin.Exec(t.Context(), `REVOKE EXECUTE ON FUNCTION surehook.enqueue FROM `+name); err != nil {
		t.Fatal(err)
	}
	if _, err := app.Exec(t.Context(), `SELECT surehook.enqueue('a.b', '1')`); sqlState(err) != "42501" {
		t.Error(err)
	}
	tx, err := app.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	_, err = EnqueueTx(t.Context(), tx, surehook.Event{Type: "a.b", Data: []byte(`1`)})
	if surehook.CodeOf(err) != surehook.Forbidden || !strings.Contains(err.Error(), "EXECUTE") {
		t.Error(err)
	}
}

func TestEnqueueRefusesWhatTheAPIRefuses(t *testing.T) {
	o := newOutboxTest(t, Options{})
	app := o.role("surehook")
	long := strings.Repeat("x", 201)
	for _, c := range []struct{ field, call string }{
		{"type", `NULL, '1'`}, {"type", `'', '1'`}, {"type", `'secret type', '1'`}, {"type", `'a..b', '1'`}, {"type", `'a.b' || chr(10), '1'`},
		{"type", `repeat('x', 129), '1'`}, {"type", `'webhook.test', '1'`}, {"type", `'webhook.disabled', '1'`}, {"type", `'ä', '1'`},
		{"data", `'a.b', NULL`}, {"data", `'a.b', ('"' || repeat('x', 1048575) || '"')::json`}, {"data", `'a.b', ('"' || repeat('é', 524288) || '"')::json`},
		{"id", `'a.b', '1', id => 'secret.id'`}, {"id", `'a.b', '1', id => '` + long + `'`}, {"id", `'a.b', '1', id => 'ä'`},
		{"tenant", `'a.b', '1', 'secret tenant'`}, {"tenant", `'a.b', '1', '` + long + `'`},
		{"owner", `'a.b', '1', owner => 'secrét'`}, {"identity", `'a.b', '1', identity => E'secret\n'`},
		{"subjects", `'a.b', '1', subjects => ARRAY['a', '']`}, {"subjects", `'a.b', '1', subjects => ARRAY['a', NULL]`},
		{"subjects", `'a.b', '1', subjects => array_fill('a'::text, ARRAY[17])`}, {"subjects", `'a.b', '1', subjects => ARRAY[ARRAY['a'], ARRAY['b']]`},
		{"subjects", `'a.b', '1', subjects => ARRAY[repeat('é', 129)]`},
		{"occurred_at", `'a.b', '1', occurred_at => 'infinity'`}, {"occurred_at", `'a.b', '1', occurred_at => '0001-12-31 BC'`},
	} {
		_, err := app.Exec(t.Context(), `SELECT surehook.enqueue(`+c.call+`)`)
		e, ok := errors.AsType[*pgconn.PgError](err)
		if !ok || e.Code != "22023" || e.ColumnName != c.field || !strings.Contains(e.Message, c.field+": ") || strings.Contains(e.Message, "secret") {
			t.Errorf("%.60s: %v", c.call, err)
		}
	}
	if _, err := app.Exec(t.Context(), `SELECT surehook.enqueue('a.b', '{')`); sqlState(err) != "22P02" {
		t.Error(err)
	}
	// The largest that is taken, and what may be NULL.
	enqueue(t, app, `SELECT surehook.enqueue('a.b', ('"' || repeat('x', 1048574) || '"')::json, NULL, NULL, NULL, NULL, NULL, NULL, NULL)`)
	enqueue(t, app, `SELECT surehook.enqueue(repeat('x', 128), '1', id => repeat('x', 200), tenant => repeat('~', 200), subjects => array_fill(repeat('x', 256), ARRAY[16]))`)
	if n := len(o.waiting()); n != 2 {
		t.Errorf("%d events wait, want 2", n)
	}
}

// The id tells a repeat, before the fan-out and after it. What the function in
// SQL takes for the same content is what the Go code does.
func TestEnqueueRepeats(t *testing.T) {
	o := newOutboxTest(t, Options{})
	app := o.role("surehook")
	put := func(change string) error {
		_, err := app.Exec(t.Context(), `SELECT surehook.enqueue(`+change+`)`)
		return err
	}
	same := `'a.b', '{"a":"<é>"}', 'acme', 'own:1', 'o', 'i', ARRAY['s', '<"&'], trace => 'x'`
	check := func(stage string) {
		t.Helper()
		if err := put(same); err != nil {
			t.Errorf("%s: the same again: %v", stage, err)
		}
		for _, other := range []string{
			`'a.c', '{"a":"<é>"}', 'acme', 'own:1', 'o', 'i', ARRAY['s', '<"&']`,
			`'a.b', '{"a" :"<é>"}', 'acme', 'own:1', 'o', 'i', ARRAY['s', '<"&']`,
			`'a.b', '{"a":"<é>"}', 'acme', 'own:1', 'p', 'i', ARRAY['s', '<"&']`,
			`'a.b', '{"a":"<é>"}', 'acme', 'own:1', 'o', 'j', ARRAY['s', '<"&']`,
			`'a.b', '{"a":"<é>"}', 'acme', 'own:1', 'o', 'i', ARRAY['s']`,
		} {
			if err := put(other); sqlState(err) != "23505" || strings.Contains(err.Error(), "own:1") {
				t.Errorf("%s: %s: %v", stage, other, err)
			}
		}
	}
	check("waiting") // the first call of it adds the event
	if err := put(strings.Replace(same, "acme", "globex", 1)); err != nil {
		t.Error(err)
	}
	rows, err := o.s.Outbox(t.Context(), 10)
	if err != nil || len(rows) != 2 {
		t.Fatal(rows, err)
	}
	out, err := o.s.Append(t.Context(), 0, []surehook.Append{{Event: rows[0].Event, Outbox: rows[0].ID}})
	if err != nil || out[0].Err != nil || out[0].Duplicate {
		t.Fatal(out, err)
	}
	check("fanned out")
	out, err = o.s.Append(t.Context(), 0, []surehook.Append{{Event: &surehook.Event{Type: "a.b", Data: []byte(`{"a":"<é>"}`), Tenant: "acme", ID: "own:1",
		Identity: "i", Subjects: []string{"s", `<"&`}, Owner: "o", OccurredAt: time.Now()}}})
	if err != nil || !out[0].Duplicate || out[0].EventKey != rows[0].Event.Key {
		t.Error(out, err)
	}
}

func TestEnqueueTxInGo(t *testing.T) {
	o := newOutboxTest(t, Options{Schema: "hooks"})
	app := o.role("hooks")
	at := time.Date(1, 1, 1, 0, 0, 0, 7_000_000, time.UTC)
	events := []surehook.Event{
		{Type: "a.b", Data: []byte(" \"\\u0000\\ud800 \u2028 <é> \\\" \" \n")},
		{Type: "a.c", Tenant: "acme", ID: "own", Owner: "o", Identity: "i", Subjects: []string{`"`, "{,}"}, Data: []byte(`1e400`), OccurredAt: at,
			Trace: "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"},
	}
	db, err := sql.Open("pgx", o.dsn)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	for name, add := range map[string]func(events ...surehook.Event) ([]string, error){
		"pgx": func(events ...surehook.Event) (ids []string, err error) {
			err = pgx.BeginFunc(t.Context(), app, func(tx pgx.Tx) error {
				ids, err = Schema("hooks").EnqueueTx(t.Context(), tx, events...)
				return err
			})
			return ids, err
		},
		"sql": func(events ...surehook.Event) ([]string, error) {
			tx, err := db.BeginTx(t.Context(), nil)
			if err != nil {
				t.Fatal(err)
			}
			ids, err := Schema("hooks").EnqueueSQL(t.Context(), tx, events...)
			if err != nil {
				return nil, errors.Join(err, tx.Rollback())
			}
			return ids, tx.Commit()
		},
	} {
		exec(t, o.dsn, `TRUNCATE hooks.outbox`)
		ids, err := add(events...)
		if err != nil || len(ids) != 2 || ids[1] != "own" {
			t.Fatalf("%s: %q, %v", name, ids, err)
		}
		got := o.waiting()
		for i, e := range got {
			want := events[i]
			want.ID = ids[i]
			if want.OccurredAt.IsZero() {
				want.OccurredAt = e.OccurredAt
			}
			if fmt.Sprintf("%+v", *e) != fmt.Sprintf("%+v", want) {
				t.Errorf("%s: got  %+v\nwant %+v", name, *e, want)
			}
		}
		if _, err := add(events[1], surehook.Event{Type: "a b", Data: []byte(`1`)}); surehook.CodeOf(err) != surehook.InvalidRequest || !strings.Contains(err.Error(), "events[1].type") {
			t.Errorf("%s: %v", name, err)
		}
		other := events[1]
		other.Data = []byte(`2`)
		if _, err := add(surehook.Event{Type: "a.b", Data: []byte(`1`)}, other); surehook.CodeOf(err) != surehook.Conflict {
			t.Errorf("%s: %v", name, err)
		}
		if n := len(o.waiting()); n != 2 {
			t.Errorf("%s: %d events wait after a refusal, want 2", name, n)
		}
		if ids, err := add(); len(ids) != 0 || err != nil {
			t.Errorf("%s: nothing: %q, %v", name, ids, err)
		}
	}
}

// Callers that add the same ids, in any order, wait for nobody.
func TestEnqueueWaitsForNobody(t *testing.T) {
	o := newOutboxTest(t, Options{})
	a, b := o.role("surehook"), connect(t, o.dsn)
	if _, err := b.Exec(t.Context(), `SET statement_timeout = '10s'`); err != nil {
		t.Fatal(err)
	}
	open, err := a.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	event := surehook.Event{ID: "one", Owner: "o", Type: "a.b", Data: []byte(`1`)}
	if _, err := EnqueueTx(t.Context(), open, event); err != nil {
		t.Fatal(err)
	}
	other := event
	other.Data = []byte(`2`)
	if err := pgx.BeginFunc(t.Context(), b, func(tx pgx.Tx) error {
		_, err := EnqueueTx(t.Context(), tx, other)
		return err
	}); err != nil {
		t.Fatal("another caller waited, or was refused: ", err)
	}
	rows, err := o.s.Outbox(t.Context(), 10)
	if err != nil || len(rows) != 1 {
		t.Fatal(rows, err)
	}
	out, err := o.s.Append(t.Context(), 0, []surehook.Append{{Event: rows[0].Event, Outbox: rows[0].ID}})
	if err != nil || out[0].Err != nil || rows[0].Event.Sequence != 1 {
		t.Fatal("the fan-out waited: ", out, err)
	}
	if err := open.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	// Whoever comes last is the one that is refused; see storetest for the rest.
	if rows, err = o.s.Outbox(t.Context(), 10); err != nil || len(rows) != 1 {
		t.Fatal(rows, err)
	}
	out, err = o.s.Append(t.Context(), 0, []surehook.Append{{Event: rows[0].Event, Outbox: rows[0].ID}})
	if err != nil || surehook.CodeOf(out[0].Err) != surehook.Conflict {
		t.Fatal(out, err)
	}
	if n := len(o.waiting()); n != 0 {
		t.Error("the refused event blocks the outbox")
	}
}
