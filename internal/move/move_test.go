package move_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/ncruces/go-sqlite3"

	"github.com/surehook/surehook"
	"github.com/surehook/surehook/engine"
	"github.com/surehook/surehook/internal/move"
	"github.com/surehook/surehook/internal/pgserver"
	"github.com/surehook/surehook/internal/receivertest"
	"github.com/surehook/surehook/store/postgres"
	"github.com/surehook/surehook/store/sqlite"
)

// childEnv has this process, started again by a test, move a file until it is
// killed: the file and the database.
const childEnv = "SUREHOOK_TEST_MOVE"

func TestMain(m *testing.M) {
	if path, dsn, ok := strings.Cut(os.Getenv(childEnv), "\n"); ok {
		tell := func(step, table string, done, total int64) { fmt.Println(step, table, done, total) }
		if _, err := try(context.Background(), path, dsn, nil, tell); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(pgserver.Main(m))
}

var masterKey = bytes.Repeat([]byte{7}, 32)

// try is one call of move.Run. wrap stands between it and the target.
func try(ctx context.Context, path, dsn string, wrap func(move.Target) move.Target, progress move.Progress) (r move.Report, err error) {
	dst, err := postgres.OpenTarget(ctx, dsn, postgres.Options{MaxConns: 2})
	if err != nil {
		return r, err
	}
	defer dst.Close()
	src, err := sqlite.OpenSource(ctx, path, sqlite.Options{FreeFloor: -1})
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, src.Close()) }()
	var target move.Target = dst
	if wrap != nil {
		target = wrap(dst)
	}
	return move.Run(ctx, src, target, progress)
}

func startEngine(t *testing.T, store surehook.Store) *engine.Engine {
	t.Helper()
	e, err := engine.New(engine.Options{Store: store, MasterKeys: [][]byte{masterKey}, AllowNetworks: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")},
		MaxWebhooks: -1, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	if err := e.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	return e
}

func stop(t *testing.T, e *engine.Engine, store surehook.Store) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	if err := errors.Join(e.Stop(ctx), store.Close()); err != nil {
		t.Fatal(err)
	}
}

// sqlExec changes a file past its store.
func sqlExec(t *testing.T, path, sql string) {
	t.Helper()
	c, err := sqlite3.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(c.Exec(sql), c.Close()); err != nil {
		t.Fatal(err)
	}
}

// filled is a file with something in every table.
type filled struct {
	path     string
	receiver *receivertest.Receiver
	ids      map[string]string // of endpoints, by name
	secret   map[string]string
	running  string // id of a replay that was cut off
}

// script answers by what the path begins with.
func script(_ int, r receivertest.Request) receivertest.Answer {
	if strings.Contains(r.Line, "/broken") {
		return receivertest.Answer{Status: 500, Body: "no\x00\xff\xfe" + strings.Repeat("\x01", 20)}
	}
	return receivertest.Answer{}
}

// fill makes a store by way of the engine: every kind of endpoint, and of what
// can become of a delivery.
func fill(t *testing.T, events int) *filled {
	t.Helper()
	f := &filled{path: filepath.Join(t.TempDir(), "surehook.db"), receiver: receivertest.New(t, script), ids: map[string]string{}, secret: map[string]string{}}
	store, err := sqlite.Open(t.Context(), f.path, sqlite.Options{Sync: sqlite.Normal, FreeFloor: -1})
	if err != nil {
		t.Fatal(err)
	}
	e, by := startEngine(t, store), engine.Actor{}
	for _, tenant := range []surehook.Tenant{{ID: "t1", Name: "One\u00e9"}, {ID: "t2", Name: "Two", Partner: "p1"}} {
		f.must(t, e.PutTenant(t.Context(), &tenant, "tenant.create", by))
	}
	f.must(t, e.PutPartner(t.Context(), &surehook.Partner{ID: "p-1", Name: "a partner"}, by))
	f.must(t, store.WatchPoll(t.Context(), "local-gh", "github:o/r#1", "sen_1", []byte(`{"start":"2026-01-01T00:00:00Z"}`), time.Minute))
	for name, w := range map[string]engine.Webhook{
		"ok":       {URL: "/ok", EventTypes: []string{"bulk.*", "one.*"}, Headers: map[string]string{"X-A": "ü\""}},
		"tenant":   {URL: "/tenant", Tenant: "t1", EventTypes: []string{"one.*"}, Subjects: []string{"a*"}, Signature: "v1a"},
		"partner":  {URL: "/partner", Partner: "p1", EventTypes: []string{"one.*"}, Envelope: surehook.EnvelopePayload},
		"dead":     {URL: "/broken/dead", EventTypes: []string{"one.*"}, Limits: surehook.Limits{Attempts: 1, Rate: 1e5}},
		"waiting":  {URL: "/broken/waiting", EventTypes: []string{"one.*"}, Limits: surehook.Limits{Waits: []time.Duration{time.Hour, time.Hour}}},
		"ordered":  {URL: "/broken/ordered", EventTypes: []string{"one.*"}, Ordered: true, Limits: surehook.Limits{Waits: []time.Duration{time.Hour, time.Hour}}},
		"disabled": {URL: "/ok/disabled", Disabled: true},
		"deleted":  {URL: "/broken/deleted", EventTypes: []string{"one.*"}, Limits: surehook.Limits{Attempts: 1}},
	} {
		w.URL = f.receiver.URL + w.URL
		ep, secret, err := e.CreateWebhook(t.Context(), w, by)
		f.must(t, err)
		f.ids[name], f.secret[name] = ep.ID, secret
	}
	f.publish(t, e, events)
	if _, s, err := e.RotateSecret(t.Context(), f.ids["waiting"], time.Hour, by); err != nil {
		t.Fatal(err)
	} else {
		f.secret["old"], f.secret["waiting"] = f.secret["waiting"], s
	}
	younger, _, err := e.CreateWebhook(t.Context(), engine.Webhook{URL: f.receiver.URL + "/younger", EventTypes: []string{"one.*"}}, by)
	f.must(t, err)
	f.ids["younger"] = younger.ID
	_, err = e.TestWebhook(t.Context(), f.ids["ok"], by)
	f.must(t, err)
	f.must(t, e.DeleteWebhook(t.Context(), f.ids["deleted"], by))
	f.catalogue(t, store)
	f.must(t, f.replays(t, e))
	stop(t, e, store)
	// As a crash leaves them: held by a process that is gone, a replay on its way,
	// an event before its fan-out, texts that only SQLite keeps; and an event whose
	// attempts are younger than what retention keeps.
	sqlExec(t, f.path, `UPDATE pending SET owner = 1 WHERE event_key = (SELECT min(event_key) FROM pending);
		UPDATE pending SET due = 1 WHERE endpoint_key = (SELECT key FROM endpoints WHERE id = '`+f.ids["waiting"]+`') AND event_key % 2 = 0;
		UPDATE replays SET state = 'running' WHERE id = '`+f.running+`';
		INSERT INTO outbox (id, tenant, event_id, type, identity, owner, subjects, occurred_at, trace, about, data)
			SELECT key - 1, 't1', 'evt_outbox', 'one.late', '', '', '["a1"]', 5, '', '', x'31' FROM endpoints WHERE id = '`+f.ids["younger"]+`';
		UPDATE attempts SET error = 'a' || char(0) || 'b' WHERE key = (SELECT min(key) FROM attempts);
		INSERT INTO pull_sessions (key, tenant, partner, id, created_at, seen_at, ended_at, end_reason) VALUES (77, 't1', '', 'agent', 1, 2, 3, 'idle');
		INSERT INTO inboxes (key, last, dropped) VALUES (77, 3, 1);
		UPDATE endpoints SET inbox = 77, urgency = 'fyi' WHERE id = '`+f.ids["disabled"]+`';
		INSERT INTO sentinels SELECT key, '[{"subject":"a"}]', 'count', 0, 9, 'error', '', 0, 'local-gh', 'w', 'g' || char(0), 'l', 's', 'key_1', 1, 5, 'e' || char(0), 5, 4102444800000
			FROM endpoints WHERE id = '`+f.ids["disabled"]+`';
		INSERT INTO sentinel_events SELECT endpoint_key, 'one-0', 't1', event_key FROM pending ORDER BY event_key DESC LIMIT 1;
		INSERT INTO sentinel_events SELECT endpoint_key, 'pruned', '', 1 FROM pending LIMIT 1;
		INSERT INTO watch_cancels VALUES (1, 'local-gh', 'w0', 3, 5);
		UPDATE events SET data = NULL WHERE id = 'bulk-1';
		DELETE FROM events WHERE id = 'bulk-2'`)
	return f
}

func (f *filled) must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func (f *filled) publish(t *testing.T, e *engine.Engine, events int) {
	t.Helper()
	for n := 0; n < events; {
		var batch []surehook.Event
		for ; n < events && len(batch) < 200; n++ {
			batch = append(batch, bulkEvent(n))
		}
		rs, err := e.Enqueue(t.Context(), batch...)
		f.must(t, err)
		for _, r := range rs {
			f.must(t, r.Err)
		}
	}
	for n := range 6 {
		for _, tenant := range []string{"", "t1", "t2"} {
			_, err := e.Publish(t.Context(), surehook.Event{ID: fmt.Sprintf("one-%d", n), Type: "one.a", Tenant: tenant, Owner: "owner", Identity: "i", Subjects: []string{"a1", "ü"},
				Trace: "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", Data: []byte(`[1]`)})
			f.must(t, err)
		}
	}
	f.await(t, "the bulk", func() bool { return f.pending(t, e, "ok") == 0 })
	for _, name := range []string{"dead", "waiting", "ordered", "deleted"} {
		f.await(t, name, func() bool {
			as, err := e.Store().EndpointAttempts(t.Context(), f.key(t, e, name), surehook.Page{Limit: 1})
			f.must(t, err)
			return len(as) > 0
		})
	}
}

func (f *filled) key(t *testing.T, e *engine.Engine, name string) int64 {
	t.Helper()
	ep, err := e.Store().Endpoint(t.Context(), f.ids[name])
	f.must(t, err)
	return ep.Key
}

func (f *filled) pending(t *testing.T, e *engine.Engine, name string) int {
	t.Helper()
	ds, err := e.Store().ListDeliveries(t.Context(), surehook.DeliveryFilter{Endpoint: f.key(t, e, name), Status: surehook.Pending}, surehook.Page{Limit: 1000})
	f.must(t, err)
	return len(ds)
}

func (f *filled) await(t *testing.T, what string, done func() bool) {
	t.Helper()
	limit := time.After(time.Minute)
	for tick := time.NewTicker(20 * time.Millisecond); !done(); {
		select {
		case <-limit:
			t.Fatalf("%s: not within a minute", what)
		case <-tick.C:
		}
	}
}

// catalogue fills what the API would.
func (f *filled) catalogue(t *testing.T, s surehook.Store) {
	t.Helper()
	ctx := t.Context()
	f.must(t, s.CreateKey(ctx, &surehook.APIKey{ID: "key_1", Name: "n", Hash: []byte("hash"), Hint: "abcd", Tenant: "t1", Permissions: []string{surehook.PermRead}},
		&surehook.AuditEntry{Actor: "system", Action: "key.create", Target: "key_1", Details: "{}"}))
	f.must(t, s.CreateKey(ctx, &surehook.APIKey{ID: "key_2", Hash: []byte("hash2"), RevokedAt: time.UnixMilli(9)}, nil))
	f.must(t, s.PutEventType(ctx, &surehook.EventType{Name: "one.a", Description: "d", Example: []byte(`{"a":1}`), Schema: []byte(`{}`), Validate: true}, nil))
	f.must(t, s.PutEventType(ctx, &surehook.EventType{Name: "bulk.a"}, nil))
	f.must(t, s.Remember(ctx, "key_1", "once", []byte("request"), []byte("answer\x00\xff")))
}

// replays makes one that ended, one that is to go on, and some by ids.
func (f *filled) replays(t *testing.T, e *engine.Engine) error {
	t.Helper()
	if _, err := e.Replay(t.Context(), f.ids["ok"], engine.ReplayRequest{IDs: []string{"bulk-3"}}, engine.Actor{}); err != nil {
		return err
	}
	window := engine.ReplayRequest{Since: time.Now().Add(-time.Hour), Status: "dead"}
	r, err := e.StartReplay(t.Context(), f.ids["dead"], window, engine.Actor{})
	if err != nil {
		return err
	}
	f.running = r.ID
	_, err = e.StartReplay(t.Context(), f.ids["ordered"], window, engine.Actor{})
	return err
}
