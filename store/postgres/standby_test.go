package postgres

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/surehook/surehook"
	"github.com/surehook/surehook/internal/pgserver"
)

// own starts a server for one test, which may change and stop it.
func own(t *testing.T) *pgserver.Server {
	t.Helper()
	if err := pgserver.Install(t.Context()); err != nil {
		t.Fatal(err)
	}
	pg, err := pgserver.Start(t.Context(), pgserver.Config{Settings: map[string]string{"fsync": "off"}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := pg.Close(); err != nil {
			t.Error(err)
		}
	})
	return pg
}

// cancelWaits cuts every wait for a synchronous standby short until done, as an
// administrator might.
func cancelWaits(t *testing.T, dsn string, done <-chan struct{}) (cut int) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), dsn)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close(context.Background()) }()
	for {
		select {
		case <-done:
			return cut
		case <-time.After(20 * time.Millisecond):
		}
		var n int
		if err := conn.QueryRow(t.Context(), `SELECT count(pg_cancel_backend(pid)) FROM pg_stat_activity WHERE wait_event = 'SyncRep'`).Scan(&n); err != nil {
			t.Fatal(err)
		}
		cut += n
	}
}

// The server calls a commit a success whose wait for the standby was cut short.
// To a publisher it is one that nobody can vouch for, and so is a repeat of it.
func TestACommitThatNoStandbyHasIsNone(t *testing.T) {
	pg := own(t)
	dsn := pg.DSN("postgres")
	s, err := Open(t.Context(), dsn, Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.die)
	e := &surehook.Endpoint{ID: "whk", Enabled: true}
	if err := s.CreateEndpoint(t.Context(), e, 0, nil); err != nil {
		t.Fatal(err)
	}
	if err := pg.SetSettings(t.Context(), map[string]string{"synchronous_standby_names": "nobody"}); err != nil {
		t.Fatal(err)
	}
	publish := func(owner string) ([]surehook.Appended, error) {
		return s.Append(t.Context(), 1, []surehook.Append{{Event: &surehook.Event{ID: "e" + owner, Owner: owner, Type: "a.b", Data: []byte(`{}`)},
			Targets: []surehook.Target{{EndpointKey: e.Key, Owned: true}}}})
	}
	refused := map[string]func() error{
		"an event":          func() error { _, err := publish(""); return err },
		"its repeat":        func() error { _, err := publish(""); return err },
		"one of an owner":   func() error { _, err := publish("o"); return err },
		"that one's repeat": func() error { _, err := publish("o"); return err },
		"a change":          func() error { return s.CreateKey(t.Context(), &surehook.APIKey{ID: "key", Hash: []byte{1}}, nil) },
		"outcomes": func() error {
			a := &surehook.Attempt{ID: newAttemptID(time.Now().UnixMilli()), EventKey: 1, EndpointKey: e.Key, Number: 1, Status: surehook.AttemptFailed, CreatedAt: time.Now()}
			_, err := s.Record(t.Context(), []surehook.Outcome{{Delivery: surehook.Delivery{EventKey: 1, EndpointKey: e.Key}, Decision: surehook.Note, Attempt: a}}, nil)
			return err
		},
	}
	for _, what := range []string{"an event", "its repeat", "one of an owner", "that one's repeat", "a change", "outcomes"} {
		done := make(chan struct{})
		go func() {
			defer close(done)
			if err := refused[what](); surehook.CodeOf(err) != surehook.Unavailable {
				t.Errorf("%s: %v", what, err)
			}
		}()
		if cancelWaits(t, dsn, done) == 0 {
			t.Errorf("%s: nothing waited for the standby", what)
		}
	}
	if err := pg.SetSettings(t.Context(), map[string]string{"synchronous_standby_names": ""}); err != nil {
		t.Fatal(err)
	}
	for _, owner := range []string{"", "o"} {
		out, err := publish(owner)
		if err != nil || !out[0].Duplicate {
			t.Errorf("%+v, %v", out, err)
		}
	}
	// Nothing is held that no lane knows of.
	for end := time.Now().Add(10 * time.Second); ; {
		c, err := s.Claim(t.Context(), e.Key, 10, 1<<20)
		if err == nil && len(c.Rows) == 2 {
			break
		}
		if time.Now().After(end) {
			t.Fatalf("%+v, %v", c, err)
		}
		<-time.After(20 * time.Millisecond)
	}
}
