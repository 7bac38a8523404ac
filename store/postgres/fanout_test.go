package postgres

import (
	"context"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/surehook/surehook"
	"github.com/surehook/surehook/internal/pgserver"
)

// hears waits until the store's connection for notices listens.
func (o *outboxTest) hears() {
	o.t.Helper()
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for limit, listens := time.After(20*time.Second), false; ; {
		if err := o.admin.QueryRow(o.t.Context(), `SELECT EXISTS (SELECT FROM pg_stat_activity
			WHERE datname = current_database() AND query LIKE 'LISTEN "surehook.echo%')`).Scan(&listens); err != nil || listens {
			if err != nil {
				o.t.Fatal(err)
			}
			return
		}
		select {
		case <-tick.C:
		case <-limit:
			o.t.Fatal("the store doesn't listen")
		}
	}
}

// A commit wakes a fan-out that sleeps, and costs no notice while it is awake.
func TestEnqueueNotifiesTheSleeping(t *testing.T) {
	o := newOutboxTest(t, Options{Schema: "hooks"})
	heard := make(chan surehook.Change, 100)
	o.s.Watch(func(c surehook.Change) { heard <- c })
	conn := connect(t, o.dsn)
	if _, err := conn.Exec(t.Context(), `LISTEN hooks`); err != nil {
		t.Fatal(err)
	}
	notices := func() (n int) {
		t.Helper()
		if _, err := conn.Exec(t.Context(), `SELECT hooks.enqueue('a.b', '1'), hooks.enqueue('a.b', '2'); SELECT pg_notify('hooks', 'end')`); err != nil {
			t.Fatal(err)
		}
		for {
			got, err := conn.WaitForNotification(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if got.Payload == "end" {
				return n
			}
			if got.Payload != "outbox" {
				t.Errorf("payload %q", got.Payload)
			}
			n++
		}
	}
	o.hears()
	if n := len(o.waiting()); n != 0 { // finds nothing: it will sleep
		t.Fatal(n)
	}
	if n := notices(); n != 1 {
		t.Errorf("%d notices to a sleeping fan-out, want one a commit", n)
	}
	for c := range heard {
		if c.Outbox && !c.Config { // not the look at everything that follows a new connection
			break
		}
	}
	if n := len(o.waiting()); n != 2 { // finds some: it is awake
		t.Fatal(n)
	}
	if n := notices(); n != 0 {
		t.Errorf("%d notices to one that is awake", n)
	}
}

func TestULIDs(t *testing.T) {
	o := newOutboxTest(t, Options{})
	rows, err := o.admin.Query(t.Context(), `SELECT surehook.ulid(1469918176385) FROM generate_series(1, 1000)`)
	if err != nil {
		t.Fatal(err)
	}
	ids, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		t.Fatal(err)
	}
	seen := make(map[string]bool)
	for _, id := range ids {
		if len(id) != 26 || !strings.HasPrefix(id, "01ARYZ6S41") || seen[id] { // the specification's example of a time
			t.Fatalf("id %q", id)
		}
		seen[id] = true
	}
	for i := 10; i < 26; i++ { // each place has each of the 32 characters, nearly for sure
		chars := make(map[byte]bool)
		for _, id := range ids {
			chars[id[i]] = true
		}
		if len(chars) != 32 {
			t.Errorf("place %d has %d characters", i, len(chars))
		}
	}
}

// Two nodes that fan out at once take each event once, and give the sequences out
// in order.
func TestFanOutOfTwoNodes(t *testing.T) {
	o := newOutboxTest(t, Options{})
	second, err := Open(t.Context(), o.dsn, Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = second.Close() })
	const owners, events = 7, 700
	if _, err := o.admin.Exec(t.Context(), `SELECT surehook.enqueue('a.b', to_json(n), owner => 'o' || n % $1, id => 'e' || n) FROM generate_series(0, $2) n`,
		owners, events-1); err != nil {
		t.Fatal(err)
	}
	var nodes sync.WaitGroup
	for _, s := range []*Store{o.s, second} {
		nodes.Go(func() {
			for {
				rows, err := s.Outbox(context.Background(), 50)
				if err != nil {
					t.Error(err)
				}
				if err != nil || len(rows) == 0 {
					return
				}
				items := make([]surehook.Append, len(rows))
				for i, r := range rows {
					items[i] = surehook.Append{Event: r.Event, Outbox: r.ID}
				}
				out, err := s.Append(context.Background(), 0, items)
				if err != nil {
					t.Error(err)
					return
				}
				for _, a := range out {
					if a.Err != nil {
						t.Error(a.Err)
					}
				}
			}
		})
	}
	nodes.Wait()
	var wrong, n int
	if err := o.admin.QueryRow(t.Context(), `SELECT count(*) FILTER (WHERE sequence <> substr(id, 2)::int / $1 + 1), count(*) FROM surehook.events`, owners).Scan(&wrong, &n); err != nil {
		t.Fatal(err)
	}
	if wrong > 0 || n != events {
		t.Errorf("%d events, %d of them out of order", n, wrong)
	}
}

// What is nested as deep as the Go code takes it is JSON to the database too.
func TestEnqueueNestsDeep(t *testing.T) {
	o := newOutboxTest(t, Options{})
	data := strings.Repeat("[", 5000) + strings.Repeat("]", 5000)
	if err := pgx.BeginFunc(t.Context(), o.admin, func(tx pgx.Tx) error {
		_, err := EnqueueTx(t.Context(), tx, surehook.Event{Type: "a.b", Data: []byte(data)})
		return err
	}); err != nil {
		t.Fatal(err)
	}
	if got := o.waiting(); len(got) != 1 || string(got[0].Data) != data {
		t.Error("it isn't what it was")
	}
}

// A schema that the application shares keeps what others may do there.
func TestPublicSchemaStaysPublic(t *testing.T) {
	dsn := pgserver.Database(t)
	exec(t, dsn, `CREATE TABLE public.mine (x int); GRANT SELECT ON public.mine TO PUBLIC`)
	reopenable(t, dsn, Options{Schema: "public"})()
	var may, usage, call bool
	if err := connect(t, dsn).QueryRow(t.Context(), `SELECT has_table_privilege('pg_monitor', 'public.mine', 'SELECT'), has_schema_privilege('pg_monitor', 'public', 'USAGE'),
		has_function_privilege('pg_monitor', 'public.clock()', 'EXECUTE')`).Scan(&may, &usage, &call); err != nil {
		t.Fatal(err)
	}
	if !may || !usage || call {
		t.Errorf("others may read %t, use the schema %t, and call our functions %t", may, usage, call)
	}
}
