package sqlite

import (
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/ncruces/go-sqlite3"

	"github.com/surehook/surehook"
)

// What was answered is there after kill -9, each delivery in one place only,
// and the file is in order.
func TestKilledWhileWriting(t *testing.T) {
	path := tempFile(t)
	s := openFile(t, path, Options{FreeFloor: -1})
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	rnd := rand.New(rand.NewPCG(1, 2))
	total := 0
	for round := range 5 {
		c := startChild(t, path)
		answered := c.answered(t, 100+rnd.IntN(400))
		if round == 0 {
			if _, err := Open(t.Context(), path, Options{}); err == nil || !strings.Contains(err.Error(), "another surehook process") {
				t.Fatalf("a second process: %v", err)
			}
		}
		answered = append(answered, c.kill(t)...)
		total += len(answered)
		checkAnswered(t, path, answered, total)
	}
}

// checkAnswered opens the file and looks for each answered event, for at least
// so many in all, and for what must never be.
func checkAnswered(t *testing.T, path string, answered []string, atLeast int) {
	t.Helper()
	s, err := Open(t.Context(), path, Options{FreeFloor: -1})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}()
	whole(t, s)
	for _, id := range answered {
		ev, err := s.Event(t.Context(), nil, id)
		if err != nil {
			t.Fatalf("%s was answered: %v", id, err)
		}
		vs, err := s.EventDeliveries(t.Context(), ev.Key, surehook.Page{Limit: 10})
		if err != nil || len(vs) != 1 {
			t.Fatalf("%s: %d deliveries, %v", id, len(vs), err)
		}
	}
	var n int64
	if err := s.read(t.Context(), func(c *conn) (err error) {
		n, err = c.int64(`SELECT count(*) FROM events`)
		return err
	}); err != nil || n < int64(atLeast) {
		t.Fatalf("%d events, %d were answered, %v", n, atLeast, err)
	}
	for name, query := range map[string]string{
		"held rows":                      `SELECT count(*) FROM pending WHERE owner IS NOT NULL`,
		"rows without their event":       `SELECT count(*) FROM pending WHERE event_key NOT IN (SELECT key FROM events)`,
		"rows beside their dead letter":  `SELECT count(*) FROM pending JOIN dead_letters USING (event_key, endpoint_key)`,
		"deliveries that are nowhere":    `SELECT count(*) FROM events WHERE key NOT IN (SELECT event_key FROM pending UNION SELECT event_key FROM attempts)`,
		"keys that could be given again": `SELECT count(*) FROM attempts WHERE key >= (SELECT value FROM counters WHERE name = 'key')`,
	} {
		var n int64
		err := s.read(t.Context(), func(c *conn) (err error) {
			n, err = c.int64(query)
			return err
		})
		if err != nil || n != 0 {
			t.Fatalf("%s: %d, %v", name, n, err)
		}
	}
}

// An I/O error leaves it unknown what is in the file: it is opened anew.
func TestOpenedAnewAfterAnIOError(t *testing.T) {
	s := openFile(t, tempFile(t), Options{FreeFloor: -1})
	held, err := add(t, s, "e1", 10, true)
	if err != nil {
		t.Fatal(err)
	}
	before, version := s.Lease().Epoch, s.config.Load()
	taken := s.keys.take(keyBlock) // keys that wait for their write
	if err := s.write(1, func(*conn) error { return sqlite3.IOERR }); surehook.CodeOf(err) != surehook.Unavailable {
		t.Fatal(err)
	}
	next, err := add(t, s, "e2", 10, true)
	if err != nil {
		t.Fatal(err)
	}
	switch {
	case s.Lease().Epoch == before:
		t.Error("the epoch is the old one")
	case s.config.Load() != version:
		t.Error("the configuration version changed")
	case next.EventKey < taken+keyBlock:
		t.Errorf("key %d was given out before", next.EventKey)
	case next.Deliveries[0].Epoch != s.Lease().Epoch:
		t.Error("the row is of an old epoch")
	}
	c, err := s.Claim(t.Context(), held.Deliveries[0].EndpointKey, 10, 1<<20)
	if err != nil || len(c.Rows) != 1 || c.Rows[0].Delivery.ID != held.Deliveries[0].ID {
		t.Fatalf("the held row isn't free: %+v, %v", c, err)
	}
	if lost := c.Rows[0].Delivery.Lost; lost != 0 {
		t.Errorf("the disk's fault counts as the row's: lost %d", lost)
	}
}

// Keys stay used when their rows are gone: SQLite's own row ids don't.
func TestKeysAreNeverGivenOutAgain(t *testing.T) {
	path := tempFile(t)
	last := int64(0)
	for i := range 4 {
		s, err := Open(t.Context(), path, Options{FreeFloor: -1})
		if err != nil {
			t.Fatal(err)
		}
		ep := &surehook.Endpoint{ID: fmt.Sprintf("whk_%d", i), URL: "https://example.com/", Enabled: true}
		if err := s.CreateEndpoint(t.Context(), ep, 0, nil); err != nil {
			t.Fatal(err)
		}
		if ep.Key <= last {
			t.Fatalf("key %d after %d", ep.Key, last)
		}
		last = ep.Key
		if i%2 == 0 {
			last = s.keys.take(2 * keyBlock) // a block is used up and more is needed
		}
		if err := s.write(1, func(c *conn) error { return c.Exec(`DELETE FROM endpoints; DELETE FROM endpoint_secrets`) }); err != nil {
			t.Fatal(err)
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// A change that was rolled back leaves appends as they were: they are checked
// against what is in the file.
func TestRolledBackChangeLeavesAppendsAlone(t *testing.T) {
	s := openFile(t, tempFile(t), Options{FreeFloor: -1})
	version := s.config.Load()
	if err := s.write(1, func(c *conn) error {
		if err := s.bumpConfig(c, 1); err != nil {
			return err
		}
		return sqlite3.FULL
	}); surehook.CodeOf(err) != surehook.Unavailable {
		t.Fatal(err)
	}
	if _, now, err := s.Changes(t.Context(), 0); err != nil || now != version || s.config.Load() != version {
		t.Fatalf("file %d, memory %d, before %d, %v", now, s.config.Load(), version, err)
	}
	if _, err := add(t, s, "e1", 10, false); err != nil {
		t.Fatal(err)
	}
}

// A job that fails must not take down those that share its transaction, and an
// event that the file won't take is refused alone.
func TestOneBadEventIsRefusedAlone(t *testing.T) {
	s := openFile(t, tempFile(t), Options{FreeFloor: -1})
	if err := s.write(1, func(c *conn) error {
		return c.Exec(`CREATE TRIGGER poison BEFORE INSERT ON events WHEN NEW.type = 'bad' BEGIN SELECT RAISE(ABORT, 'no'); END`)
	}); err != nil {
		t.Fatal(err)
	}
	event := func(id, typ string) surehook.Append {
		return surehook.Append{Event: &surehook.Event{ID: id, Type: typ, Data: []byte(`1`), OccurredAt: time.Now()}}
	}
	out, err := s.Append(t.Context(), s.config.Load(), []surehook.Append{event("a", "x"), event("b", "bad"), event("c", "x")})
	if err != nil {
		t.Fatal(err)
	}
	if out[0].Err != nil || surehook.CodeOf(out[1].Err) != surehook.Internal || out[2].Err != nil {
		t.Fatalf("%+v", out)
	}
	done := make(chan error)
	for i := range 32 {
		go func() {
			typ := []string{"x", "bad"}[i%2]
			out, err := s.Append(t.Context(), s.config.Load(), []surehook.Append{event(fmt.Sprintf("n%d", i), typ)})
			if err == nil && (out[0].Err != nil) != (typ == "bad") {
				err = fmt.Errorf("%s: %w", typ, out[0].Err)
			}
			done <- err
		}()
	}
	for range 32 {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
}

// M-06, M-07: nothing is refused beside a backup, and nothing lost.
func TestBackupUnderLoad(t *testing.T) {
	s := openFile(t, tempFile(t), Options{FreeFloor: -1})
	ep, err := s.Endpoint(t.Context(), "whk_1")
	if err != nil {
		t.Fatal(err)
	}
	for i := range 100 {
		if _, err := add(t, s, fmt.Sprintf("before-%d", i), 64<<10, true); err != nil {
			t.Fatal(err)
		}
	}
	stop, failed := make(chan struct{}), make(chan error)
	for g := range int64(4) {
		go func() {
			for i := int64(1); ; i++ {
				select {
				case <-stop:
					failed <- nil
					return
				default:
				}
				ev := &surehook.Event{ID: fmt.Sprintf("during-%d-%d", g, i), Type: "a.b", OccurredAt: time.Now(), Data: make([]byte, 2000)}
				out, err := s.Append(t.Context(), s.config.Load(), []surehook.Append{{Event: ev, Targets: []surehook.Target{{EndpointKey: ep.Key, Owned: true}}}})
				if err == nil {
					_, err = s.Record(t.Context(), []surehook.Outcome{success(g<<32|i, out[0].Deliveries[0])}, nil)
				}
				if err != nil {
					failed <- err
					return
				}
			}
		}()
	}
	to := filepath.Join(t.TempDir(), "odd name?#%.db")
	steps := 0
	err = s.Backup(t.Context(), to, func(done, total int) {
		if steps++; done > total {
			t.Errorf("%d of %d", done, total)
		}
		if err := s.Backup(t.Context(), to+"2", nil); surehook.CodeOf(err) != surehook.Conflict {
			t.Errorf("two at once: %v", err)
		}
	})
	close(stop)
	for range 4 {
		if err := <-failed; err != nil {
			t.Error(err)
		}
	}
	if err != nil || steps < 3 {
		t.Fatalf("%d steps, %v", steps, err)
	}
	if err := s.Backup(t.Context(), to, nil); surehook.CodeOf(err) != surehook.Conflict {
		t.Errorf("over a file: %v", err)
	}
	var answered []string
	for i := range 100 {
		answered = append(answered, fmt.Sprintf("before-%d", i))
	}
	checkAnswered(t, to, answered, len(answered))
}
