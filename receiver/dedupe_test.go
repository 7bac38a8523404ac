package receiver_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	_ "github.com/jackc/pgx/v5/stdlib"
	_ "github.com/ncruces/go-sqlite3/driver"

	"github.com/surehook/surehook/internal/pgserver"
	"github.com/surehook/surehook/receiver"
)

func TestMain(m *testing.M) { os.Exit(pgserver.Main(m)) }

func done(context.Context) error { return nil }

func do(t *testing.T, d receiver.Dedupe, id string, effect func(context.Context) error) bool {
	t.Helper()
	duplicate, err := d.Do(t.Context(), id, effect)
	if err != nil {
		t.Fatal(err)
	}
	return duplicate
}

func TestMemoryForgetsTheOldestAndTheOld(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := receiver.NewMemory(2, time.Hour)
		for _, id := range []string{"a", "b", "c"} { // a makes room for c
			if do(t, m, id, done) {
				t.Errorf("%s is no duplicate", id)
			}
		}
		if !do(t, m, "b", done) || !do(t, m, "c", done) || do(t, m, "a", done) {
			t.Error("the oldest goes, the others stay")
		}
		<-time.After(time.Hour)
		if do(t, m, "c", done) {
			t.Error("an hour is over")
		}
	})
}

// While one call works on an id, another waits for its end: its success makes
// the other a duplicate, its failure lets it try.
func TestMemoryWaitsForTheFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := receiver.NewMemory(9, time.Hour)
		calls := 0
		var wg sync.WaitGroup
		for range 5 {
			wg.Go(func() {
				_, _ = m.Do(t.Context(), "a", func(context.Context) error {
					<-time.After(time.Second)
					if calls++; calls < 3 {
						return errors.New("not yet")
					}
					return nil
				})
			})
		}
		wg.Wait()
		if calls != 3 {
			t.Errorf("%d calls", calls)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		go func() {
			_, _ = m.Do(t.Context(), "b", func(context.Context) error { <-time.After(time.Minute); return nil })
		}()
		synctest.Wait()
		if _, err := m.Do(ctx, "b", done); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%v", err)
		}
		<-time.After(time.Minute)
	})
}

func TestMemoryAfterAPanic(t *testing.T) {
	m := receiver.NewMemory(9, time.Hour)
	func() {
		defer func() { _ = recover() }()
		_, _ = m.Do(t.Context(), "a", func(context.Context) error { panic("x") })
	}()
	if do(t, m, "a", done) {
		t.Error("what panicked wasn't done")
	}
}

// Both databases that SQL speaks to.
func databases(t *testing.T) map[string]*sql.DB {
	t.Helper()
	dbs := map[string]*sql.DB{}
	for name, c := range map[string][2]string{
		"sqlite":   {"sqlite3", "file:" + filepath.ToSlash(filepath.Join(t.TempDir(), "app.db")) + "?_pragma=busy_timeout(10000)&_pragma=journal_mode(wal)&_txlock=immediate"},
		"postgres": {"pgx", pgserver.Database(t)},
	} {
		db, err := sql.Open(c[0], c[1])
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = db.Close() })
		dbs[name] = db
	}
	return dbs
}

// The effect and the id are there together, or neither is, whatever comes
// between and however many come at once.
func TestSQLCommitsEffectAndIDTogether(t *testing.T) {
	for name, db := range databases(t) {
		t.Run(name, func(t *testing.T) {
			s := receiver.NewSQL(db, "seen")
			for range 2 {
				if err := s.CreateTable(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
			if _, err := db.ExecContext(t.Context(), `CREATE TABLE paid (id TEXT)`); err != nil {
				t.Fatal(err)
			}
			pay := func(ctx context.Context, id string) error {
				tx, ok := receiver.Tx(ctx)
				if !ok {
					return errors.New("no transaction")
				}
				_, err := tx.ExecContext(ctx, `INSERT INTO paid VALUES ($1)`, id)
				return err
			}
			failing := errors.New("after the effect")
			if _, err := s.Do(t.Context(), "a", func(ctx context.Context) error { return errors.Join(pay(ctx, "a"), failing) }); !errors.Is(err, failing) {
				t.Errorf("%v", err)
			}
			func() {
				defer func() { _ = recover() }()
				_, _ = s.Do(t.Context(), "a", func(ctx context.Context) error { panic(pay(ctx, "a")) })
			}()
			if n := rows(t, db, "paid") + rows(t, db, "seen"); n != 0 {
				t.Errorf("%d rows of what failed", n)
			}
			var wg sync.WaitGroup
			for i := range 20 {
				wg.Go(func() {
					id := fmt.Sprint("e", i%4)
					if _, err := s.Do(t.Context(), id, func(ctx context.Context) error { return pay(ctx, id) }); err != nil {
						t.Error(err)
					}
				})
			}
			wg.Wait()
			if paid, seen := rows(t, db, "paid"), rows(t, db, "seen"); paid != 4 || seen != 4 {
				t.Errorf("%d effects, %d ids", paid, seen)
			}
			if n, err := s.Prune(t.Context(), time.Hour); err != nil || n != 0 {
				t.Errorf("%d, %v", n, err)
			}
			if n, err := s.Prune(t.Context(), -time.Minute); err != nil || n != 4 {
				t.Errorf("%d, %v", n, err)
			}
		})
	}
}

// Without its table, or its database, nothing is called, and the sender is
// asked to come again.
func TestSQLThatFailsIsTriedAgain(t *testing.T) {
	db := databases(t)["sqlite"]
	h := create(t, receiver.Standard(secret), receiver.NewSQL(db, "seen")).Handle(func(context.Context, receiver.Message) error {
		t.Error("called")
		return nil
	})
	w := ask(h, standard(secret, "e1", at, text), text)
	if w.Code != 503 {
		t.Errorf("%d %s", w.Code, w.Body)
	}
	for _, name := range []string{"", "a b", "a;DROP", "a.b.c", `"a"`} {
		if _, err := receiver.New(receiver.Standard(secret), receiver.NewSQL(db, name)); err == nil {
			t.Errorf("the table %q was taken", name)
		}
	}
}

func rows(t *testing.T, db *sql.DB, table string) int {
	t.Helper()
	var n int
	if err := db.QueryRowContext(t.Context(), `SELECT count(*) FROM `+table).Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}
