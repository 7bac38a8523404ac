package sqlite

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ncruces/go-sqlite3"

	"github.com/surehook/surehook"
)

// txStore is a store with a table of the application's.
func txStore(t *testing.T, opt Options) *Store {
	t.Helper()
	opt.FreeFloor = -1
	s := openFile(t, tempFile(t), opt)
	tx(t, s, func(tx *Tx) error {
		_, err := tx.Exec(`CREATE TABLE IF NOT EXISTS app_orders (id TEXT PRIMARY KEY, n INTEGER, at TEXT); CREATE INDEX app_orders_n ON app_orders (n)`)
		return err
	})
	return s
}

func tx(t *testing.T, s *Store, f func(tx *Tx) error) {
	t.Helper()
	if err := s.Tx(t.Context(), f); err != nil {
		t.Fatal(err)
	}
}

func orders(t *testing.T, s *Store) (n int) {
	t.Helper()
	tx(t, s, func(tx *Tx) error {
		for row, err := range tx.Query(`SELECT count(*) FROM app_orders`) {
			if err != nil {
				return err
			}
			if err := row.Scan(&n); err != nil {
				return err
			}
		}
		return nil
	})
	return n
}

func waiting(t *testing.T, s *Store) []surehook.OutboxEvent {
	t.Helper()
	out, err := s.Outbox(t.Context(), 1000)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

var event = surehook.Event{Type: "order.paid", Data: []byte(` {"a" : "é"} `)}

// O-03: what was rolled back tells of nothing.
func TestTxCommitsBothOrNeither(t *testing.T) {
	s := txStore(t, Options{})
	told := 0
	s.Watch(func(c surehook.Change) {
		if c.Outbox {
			told++
		}
	})
	tx(t, s, func(tx *Tx) error {
		n, err := tx.Exec(`INSERT INTO app_orders (id, n) VALUES (?, ?), (?, ?)`, "a", 1, "b", uint8(2))
		if err != nil || n != 2 {
			return fmt.Errorf("%d rows, %w", n, err)
		}
		ids, err := tx.Enqueue(event, surehook.Event{ID: "own", Type: "a.b", Data: []byte(`1`), Owner: "o", Subjects: []string{"s"}})
		if len(ids) != 2 || ids[1] != "own" {
			t.Errorf("ids %q", ids)
		}
		return err
	})
	if n, w := orders(t, s), waiting(t, s); n != 2 || len(w) != 2 || string(w[0].Event.Data) != ` {"a" : "é"} ` || w[0].Event.OccurredAt.IsZero() || told != 1 {
		t.Fatalf("%d orders, %d events, told %d times", n, len(w), told)
	}
	boom := errors.New("boom")
	if err := s.Tx(t.Context(), func(tx *Tx) error {
		_, err := tx.Exec(`DELETE FROM app_orders`)
		_, err2 := tx.Enqueue(event)
		return errors.Join(err, err2, boom)
	}); !errors.Is(err, boom) {
		t.Error(err)
	}
	func() {
		defer func() {
			if v := recover(); v != "boom" {
				t.Errorf("recovered %v", v)
			}
		}()
		_ = s.Tx(t.Context(), func(tx *Tx) error {
			if _, err := tx.Enqueue(event); err != nil {
				t.Error(err)
			}
			panic("boom")
		})
	}()
	if n, w := orders(t, s), waiting(t, s); n != 2 || len(w) != 2 || told != 1 {
		t.Fatalf("after what was undone: %d orders, %d events, told %d times", n, len(w), told)
	}
}

// Whatever the application's function does, the writer goes on.
func TestTxHasATimeLimit(t *testing.T) {
	s := txStore(t, Options{TxLimit: 50 * time.Millisecond})
	var kept *Tx
	for name, f := range map[string]func(tx *Tx, over <-chan struct{}) error{
		"waiting": func(_ *Tx, over <-chan struct{}) error { <-over; return nil },
		"between rows": func(tx *Tx, over <-chan struct{}) error {
			for _, err := range tx.Query(`SELECT value FROM generate_series(1, 10)`) {
				if err != nil {
					return err
				}
				<-over
			}
			return nil
		},
		"calculating": func(tx *Tx, _ <-chan struct{}) error {
			_, _ = tx.Exec(`WITH RECURSIVE r(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM r) SELECT count(*) FROM r`)
			return nil // an error that is passed over doesn't make it good
		},
	} {
		over, begun := make(chan struct{}), make(chan struct{})
		done := make(chan error, 1)
		go func() {
			done <- s.Tx(context.Background(), func(tx *Tx) error {
				kept = tx
				close(begun)
				if _, err := tx.Exec(`INSERT INTO app_orders (id) VALUES ('late')`); err != nil {
					return err
				}
				if _, err := tx.Enqueue(event); err != nil {
					return err
				}
				return f(tx, over)
			})
		}()
		<-begun
		if _, err := add(t, s, "between-"+strings.ReplaceAll(name, " ", "-"), 10, false); err != nil { // waits for the writer, and gets it
			t.Errorf("%s: %v", name, err)
		}
		if name != "calculating" {
			for len(done) > 0 {
				t.Fatalf("%s: it ended before its function", name)
			}
		}
		close(over)
		if err := <-done; surehook.CodeOf(err) != surehook.Unavailable || !strings.Contains(err.Error(), "longer than 50ms") {
			t.Errorf("%s: %v", name, err)
		}
		if _, err := kept.Exec(`SELECT 1`); err == nil {
			t.Errorf("%s: a transaction that is over was used", name)
		}
		if n, w := orders(t, s), waiting(t, s); n != 0 || len(w) != 0 {
			t.Fatalf("%s: %d orders, %d events", name, n, len(w))
		}
	}
}

func TestTxEndsWithItsContext(t *testing.T) {
	s := txStore(t, Options{})
	ctx, cancel := context.WithCancel(t.Context())
	err := s.Tx(ctx, func(tx *Tx) error {
		if _, err := tx.Enqueue(event); err != nil {
			return err
		}
		cancel()
		_, err := tx.Exec(`WITH RECURSIVE r(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM r) SELECT count(*) FROM r`)
		if err == nil {
			t.Error("a statement ran to its end")
		}
		return nil
	})
	if surehook.CodeOf(err) != surehook.Unavailable || !errors.Is(err, context.Canceled) || len(waiting(t, s)) != 0 {
		t.Error(err)
	}
	if err := s.Tx(ctx, func(*Tx) error { t.Error("it began with a context that had ended"); return nil }); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	for i := range 20 { // the end of the function and that of its context may come at once
		ctx, cancel := context.WithCancel(t.Context())
		err := s.Tx(ctx, func(tx *Tx) error {
			_, err := tx.Enqueue(event)
			cancel()
			return err
		})
		if !errors.Is(err, context.Canceled) || len(waiting(t, s)) != 0 {
			t.Fatalf("round %d: %v", i, err)
		}
	}
}

// The application's statements reach its own tables alone.
func TestTxKeepsTheApplicationApart(t *testing.T) {
	s := txStore(t, Options{})
	for _, sql := range []string{
		`DELETE FROM events`, `INSERT INTO outbox DEFAULT VALUES`, `UPDATE endpoints SET url = ''`, `DROP TABLE owners`, `CREATE TABLE orders (x)`,
		`ALTER TABLE events ADD COLUMN x`, `CREATE INDEX app_i ON events (type)`, `CREATE TRIGGER app_t AFTER INSERT ON events BEGIN SELECT 1; END`,
		`COMMIT`, `ROLLBACK`, `BEGIN`, `SAVEPOINT alone`, `PRAGMA journal_mode = DELETE`, `PRAGMA writable_schema = 1`, `ATTACH 'x.db' AS x`,
		`CREATE TEMP TABLE app_x (x)`, `DELETE FROM sqlite_master`, `DROP INDEX events_id`, `VACUUM`, `ANALYZE`, `CREATE VIEW v AS SELECT 1`,
		`CREATE TABLE app_x (x REFERENCES events (key))`, `ALTER TABLE app_orders ADD COLUMN x REFERENCES Endpoints (key)`,
		`CREATE TABLE app_ok (x); DELETE FROM pending`, `WITH x AS (SELECT 1) INSERT INTO settings SELECT 'a', x'00'`,
	} {
		err := s.Tx(t.Context(), func(tx *Tx) error {
			_, err := tx.Exec(sql)
			return err
		})
		if err == nil {
			t.Errorf("%s: was run", sql)
		}
	}
	// A trigger of an allowed table doesn't get further either.
	if err := s.Tx(t.Context(), func(tx *Tx) error {
		_, err := tx.Exec(`CREATE TRIGGER app_t AFTER INSERT ON app_orders BEGIN DELETE FROM events; END; INSERT INTO app_orders (id) VALUES ('a')`)
		return err
	}); err == nil {
		t.Error("a trigger reached the events")
	}
	tx(t, s, func(tx *Tx) error {
		_, err := tx.Exec(`-- a comment
			CREATE TABLE app_lines (id INTEGER PRIMARY KEY AUTOINCREMENT, n, FOREIGN KEY (n) REFERENCES app_orders (id));
			ALTER TABLE app_lines ADD COLUMN x; CREATE VIEW app_v AS SELECT * FROM app_lines; INSERT INTO app_lines (n) VALUES (NULL); DROP VIEW app_v;
			CREATE TRIGGER app_t AFTER INSERT ON app_lines BEGIN UPDATE app_orders SET n = 1; END; INSERT INTO app_lines (n) VALUES (NULL); DROP TABLE app_lines;`)
		return err
	})
	if _, err := add(t, s, "after", 10, false); err != nil {
		t.Error("the store's own statements: ", err)
	}
	whole(t, s)
}

func TestTxSurvivesItsStatements(t *testing.T) {
	s := txStore(t, Options{})
	tx(t, s, func(tx *Tx) error {
		if _, err := tx.Exec(`INSERT INTO app_orders (id) VALUES ('a')`); err != nil {
			return err
		}
		if _, err := tx.Exec(`INSERT INTO app_orders (id) VALUES ('a')`); !errors.Is(err, sqlite3.CONSTRAINT) {
			t.Error(err)
		}
		if _, err := tx.Exec(`INSERT INTO app_orders (id) VALUES (?)`); surehook.CodeOf(err) != surehook.InvalidRequest {
			t.Error(err)
		}
		if _, err := tx.Exec(`INSERT INTO app_orders (id) VALUES (?)`, struct{}{}); surehook.CodeOf(err) != surehook.InvalidRequest {
			t.Error(err)
		}
		_, err := tx.Enqueue(event)
		return err
	})
	if n, w := orders(t, s), waiting(t, s); n != 1 || len(w) != 1 {
		t.Fatalf("%d orders, %d events", n, len(w))
	}
	// One that rolls back ends the transaction: what follows must not stand alone.
	err := s.Tx(t.Context(), func(tx *Tx) error {
		if _, err := tx.Exec(`INSERT OR ROLLBACK INTO app_orders (id) VALUES ('a')`); err == nil {
			t.Error("the statement that rolls back succeeded")
		}
		if _, err := tx.Exec(`INSERT INTO app_orders (id) VALUES ('b')`); err == nil {
			t.Error("a statement ran outside the transaction")
		}
		return nil
	})
	if err == nil || orders(t, s) != 1 {
		t.Error(err)
	}
}

func TestTxValues(t *testing.T) {
	s := txStore(t, Options{})
	at := time.Date(2026, 3, 1, 12, 0, 0, 123, time.FixedZone("", 3600))
	tx(t, s, func(tx *Tx) error {
		rows := 0
		for row, err := range tx.Query(`SELECT ?, ?, ?, ?, ?, ?, ?, NULL, NULL, NULL`, "ü", []byte{0, 1}, int32(-7), 1.5, true, at, nil) {
			if err != nil {
				return err
			}
			rows++
			var text string
			var blob []byte
			var n int16
			var f float32
			var b bool
			var when, never time.Time
			var none any = 1
			zero := "x"
			var null any = 1
			if err := row.Scan(&text, &blob, &n, &f, &b, &when, &none, &zero, &never, &null); err != nil {
				return err
			}
			if text != "ü" || string(blob) != "\x00\x01" || n != -7 || f != 1.5 || !b || !when.Equal(at) || none != nil || zero != "" || !never.IsZero() || null != nil {
				t.Error(text, blob, n, f, b, when, none, zero, never, null)
			}
			var vs [10]any
			if err := row.Scan(&vs[0], &vs[1], &vs[2], &vs[3], &vs[4], &vs[5], &vs[6], &vs[7], &vs[8], &vs[9]); err != nil {
				return err
			}
			if vs[0] != "ü" || vs[2] != int64(-7) || vs[3] != 1.5 {
				t.Error(vs)
			}
			var small int8
			var who struct{}
			for _, dest := range [][]any{{&text}, {text, &vs[1], &vs[2], &vs[3], &vs[4], &vs[5], &vs[6], &vs[7], &vs[8], &vs[9]},
				{&who, &vs[1], &vs[2], &vs[3], &vs[4], &vs[5], &vs[6], &vs[7], &vs[8], &vs[9]},
				{&when, &vs[1], &small, &vs[3], &vs[4], &vs[5], &vs[6], &vs[7], &vs[8], &vs[9]}} {
				if row.Scan(dest...) == nil {
					t.Errorf("scanned into %T", dest[0])
				}
			}
		}
		if rows != 1 {
			t.Errorf("%d rows", rows)
		}
		for _, err := range tx.Query(`SELECT nonsense`) {
			if err == nil {
				t.Error("nonsense was selected")
			}
			rows++
		}
		for _, err := range tx.Query(`SELECT value FROM generate_series(1, 10)`) { // left early
			if err != nil {
				t.Error(err)
			}
			break
		}
		for _, err := range tx.Query(``) {
			t.Error("a row of nothing", err)
		}
		if rows != 2 {
			t.Errorf("an error came %d times", rows-1)
		}
		return nil
	})
}

// The id tells a repeat, before the fan-out and after it; a refusal adds nothing.
func TestTxRepeats(t *testing.T) {
	s := txStore(t, Options{})
	same := surehook.Event{ID: "own", Type: "a.b", Data: []byte(`1`), Tenant: "acme", Owner: "o", Subjects: []string{"s"}}
	other := same
	other.Data = []byte(`2`)
	check := func(stage string, want int) {
		t.Helper()
		tx(t, s, func(tx *Tx) error {
			if _, err := tx.Enqueue(same); err != nil {
				t.Errorf("%s: the same again: %v", stage, err)
			}
			if _, err := tx.Enqueue(event, other); surehook.CodeOf(err) != surehook.Conflict {
				t.Errorf("%s: other content: %v", stage, err)
			}
			if _, err := tx.Enqueue(event, surehook.Event{Type: "a b", Data: []byte(`1`)}); surehook.CodeOf(err) != surehook.InvalidRequest ||
				!strings.Contains(err.Error(), "events[1].type") {
				t.Errorf("%s: an invalid one: %v", stage, err)
			}
			return nil
		})
		if n := len(waiting(t, s)); n != want {
			t.Errorf("%s: %d events wait, want %d", stage, n, want)
		}
	}
	check("first", 1)
	check("waiting", 1)
	w := waiting(t, s)[0]
	if out, err := s.Append(t.Context(), s.config.Load(), []surehook.Append{{Event: w.Event, Outbox: w.ID}}); err != nil || out[0].Err != nil {
		t.Fatal(out, err)
	}
	check("fanned out", 0)
}

// Many at once, beside appends of the same owner: nobody is lost, and a
// transaction's file survives a new start.
func TestTxBesideAppends(t *testing.T) {
	path := filepath.Join(t.TempDir(), "surehook.db")
	s := reopenable(t, path, Options{FreeFloor: -1})
	st := s()
	tx(t, st, func(tx *Tx) error {
		_, err := tx.Exec(`CREATE TABLE app_orders (id TEXT PRIMARY KEY)`)
		return err
	})
	var wg sync.WaitGroup
	for g := range 8 {
		wg.Go(func() {
			for i := range 20 {
				id := fmt.Sprintf("e-%d-%d", g, i)
				if g%2 == 0 {
					ev := &surehook.Event{ID: id, Type: "a.b", Owner: "o", Data: []byte(`1`), OccurredAt: time.Now()}
					if out, err := st.Append(context.Background(), 0, []surehook.Append{{Event: ev}}); err != nil || out[0].Err != nil {
						t.Error(out, err)
					}
					continue
				}
				if err := st.Tx(context.Background(), func(tx *Tx) error {
					_, err := tx.Exec(`INSERT INTO app_orders (id) VALUES (?)`, id)
					_, err2 := tx.Enqueue(surehook.Event{ID: id, Type: "a.b", Owner: "o", Data: []byte(`1`)})
					return errors.Join(err, err2)
				}); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	st = s()
	if n := orders(t, st); n != 80 {
		t.Errorf("%d orders", n)
	}
	last := int64(0)
	for {
		rows := waiting(t, st)
		if len(rows) == 0 {
			break
		}
		for _, r := range rows {
			out, err := st.Append(t.Context(), 0, []surehook.Append{{Event: r.Event, Outbox: r.ID}})
			if err != nil || out[0].Err != nil {
				t.Fatal(out, err)
			}
			last = r.Event.Sequence
		}
	}
	if last != 160 {
		t.Errorf("the last sequence is %d, want 160", last)
	}
}
