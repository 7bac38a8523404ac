package main

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/ncruces/go-sqlite3"

	"github.com/surehook/surehook"
	"github.com/surehook/surehook/engine"
	"github.com/surehook/surehook/internal/api"
	"github.com/surehook/surehook/internal/console"
	"github.com/surehook/surehook/internal/pgserver"
	"github.com/surehook/surehook/store/postgres"
	"github.com/surehook/surehook/store/sqlite"
)

// How fast a page must be, and how small.
const (
	pageTime  = 100 * time.Millisecond
	pageBytes = 100 << 10
	crowd     = 20 // endpoints; the events go around among them
)

// The console's pages are fast and small, with a million events in the store.
func TestProofConsolePages(t *testing.T) {
	n := 50_000
	if full() {
		n = 1_000_000
	}
	t.Run("SQLite", func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "surehook.db")
		s, err := sqlite.Open(t.Context(), path, sqlite.Options{})
		if err != nil {
			t.Fatal(err)
		}
		keys := endpoints(t, s)
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		fillFile(t, path, keys, n)
		if s, err = sqlite.Open(t.Context(), path, sqlite.Options{}); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = s.Close() })
		visit(t, s, n)
	})
	t.Run("PostgreSQL", func(t *testing.T) {
		dsn := pgserver.Database(t)
		s, err := postgres.Open(t.Context(), dsn, postgres.Options{})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = s.Close() })
		fillDatabase(t, dsn, endpoints(t, s), n)
		visit(t, s, n)
	})
}

func endpoints(t *testing.T, s surehook.Store) []int64 {
	t.Helper()
	var keys []int64
	for i := range crowd {
		ep := &surehook.Endpoint{ID: fmt.Sprintf("whk_%d", i), URL: fmt.Sprintf("https://hooks%d.example.com/in", i), EventTypes: []string{"*"}, Profile: "standard",
			Envelope: surehook.EnvelopeStandard, Signature: "v1", Enabled: i%10 != 9, Secrets: surehook.Secrets{Current: "sealed"}}
		if !ep.Enabled {
			ep.DisabledReason = surehook.ReasonManual
		}
		if err := s.CreateEndpoint(t.Context(), ep, 0, nil); err != nil {
			t.Fatal(err)
		}
		keys = append(keys, ep.Key)
	}
	return keys
}

// fillFile writes events of the last 24 hours and what became of them: of a hundred
// deliveries one is dead and one pending.
func fillFile(t *testing.T, path string, keys []int64, n int) {
	t.Helper()
	c, err := sqlite3.Open("file:" + path)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	first := keys[len(keys)-1] + 1
	now := time.Now().UnixMilli()
	series := fmt.Sprintf(`WITH RECURSIVE i(n) AS (SELECT 0 UNION ALL SELECT n + 1 FROM i WHERE n + 1 < %d), e AS (SELECT %d + 2 * n AS key, %d - 86400000 + n * 86400000 / %d AS at, %d + n %% %d AS hook, n FROM i) `, // one counter gives keys here
		n, first, now, n, keys[0], crowd)
	for _, sql := range []string{
		series + `INSERT INTO events (key, tenant, id, type, identity, owner, sequence, subjects, occurred_at, created_at, trace, about, partner, alias, api_version, hash, data)
			SELECT key, '', 'evt_' || key, 'order.paid', '', '', 0, '[]', at, at, '', '', '', '', '2026-10-01', x'00', '{"amount":42}' FROM e`,
		series + `INSERT INTO attempts SELECT key, hook, 1, key + 1, randomblob(16), CASE WHEN n % 100 < 2 THEN 2 ELSE 1 END, CASE WHEN n % 100 < 2 THEN 'status_5xx' ELSE '' END,
			200, '', NULL, at, 1000 + n % 50000, 0, 200, 0, 100, 700, 0, 0, 0 FROM e`,
		series + `INSERT INTO dead_letters SELECT key + 1, key, hook, 0, 'status_5xx', 500, 1, at FROM e WHERE n % 100 = 0`,
		series + fmt.Sprintf(`INSERT INTO pending (event_key, endpoint_key, id, owner, attempt, first_attempt, due, lost) SELECT key, hook, key, NULL, 1, 1, %d, 0 FROM e WHERE n %% 100 = 1`, now+3_600_000),
		fmt.Sprintf(`UPDATE counters SET value = %d WHERE name = 'key'`, first+2*int64(n)+10),
	} {
		if err := c.Exec(sql); err != nil {
			t.Fatal(err)
		}
	}
}

// fillDatabase does the same on PostgreSQL, whose keys begin with the time.
func fillDatabase(t *testing.T, dsn string, keys []int64, n int) {
	t.Helper()
	ctx := t.Context()
	conn, err := pgx.Connect(ctx, dsn)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close(context.Background()) }()
	hooks := strings.Trim(strings.ReplaceAll(fmt.Sprint(keys), " ", ","), "[]")
	series := fmt.Sprintf(`WITH e AS MATERIALIZED (SELECT ((%[4]d + n * %[5]d / %[1]d - 1577836800000) << 22) + (n %% 100000) * 2 AS key, %[4]d + n * %[5]d / %[1]d AS at,
		(ARRAY[%[2]s]::bigint[])[1 + n %% %[3]d] AS hook, n FROM generate_series(0::bigint, %[1]d - 1) n) `, n, hooks, crowd, time.Now().Add(-24*time.Hour).UnixMilli(), (24 * time.Hour).Milliseconds())
	for _, sql := range []string{
		series + `, k AS (INSERT INTO surehook.event_keys (id, tenant, key, hash) SELECT 'evt_' || key, '', key, '\x00'::bytea FROM e)
			INSERT INTO surehook.events (key, tenant, id, type, identity, owner, sequence, subjects, occurred_at, created_at, trace, about, partner, alias, api_version, data)
			SELECT key, '', 'evt_' || key, 'order.paid', '', '', 0, '[]', at, at, '', '', '', '', '2026-10-01', '{"amount":42}' FROM e`,
		series + `INSERT INTO surehook.attempts SELECT key + 1, key, hook, gen_random_uuid(), at, 1000 + n % 50000, 0, 1, 200, 200, 0, 0, 100, 700, 0,
			CASE WHEN n % 100 < 2 THEN 2 ELSE 1 END, 0, CASE WHEN n % 100 < 2 THEN 'status_5xx' ELSE '' END, '', NULL FROM e`,
		series + `INSERT INTO surehook.dead_letters SELECT key + 1, key, hook, 0, 'status_5xx', 500, 1, at FROM e WHERE n % 100 = 0`,
		series + `INSERT INTO surehook.pending (event_key, endpoint_key, id, owner, due, attempt, first_attempt, size) SELECT key, hook, key, NULL, surehook.clock() + 3600000, 1, 1, 13 FROM e WHERE n % 100 = 1`,
		`VACUUM ANALYZE surehook.attempts`, // which sums up the pages of its index by time, as autovacuum does
		`ANALYZE`,
	} {
		if _, err := conn.Exec(ctx, sql); err != nil {
			t.Fatal(err)
		}
	}
}

// visit opens every kind of page, and measures.
func visit(t *testing.T, store surehook.Store, n int) {
	t.Helper()
	e, err := engine.New(engine.Options{Store: store, MasterKeys: [][]byte{bytes.Repeat([]byte{7}, 32)}})
	if err != nil {
		t.Fatal(err)
	}
	if err := e.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		if err := e.Stop(ctx); err != nil {
			t.Error(err)
		}
	})
	if _, _, err := api.EnsureAdminKey(t.Context(), e, "console-proof-key"); err != nil {
		t.Fatal(err)
	}
	h := api.New(api.Options{Engine: e})
	c, err := console.New(console.Options{API: h.As, Sessions: store, NewID: e.NewID})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	var cookie string
	do := func(method, path string, form url.Values) *httptest.ResponseRecorder {
		req := httptest.NewRequestWithContext(t.Context(), method, path, strings.NewReader(form.Encode()))
		req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		req.Header.Set("Cookie", cookie)
		w := httptest.NewRecorder()
		c.ServeHTTP(w, req)
		return w
	}
	cookie, _, _ = strings.Cut(do("POST", "/console/login", url.Values{"key": {"console-proof-key"}}).Header().Get("Set-Cookie"), ";")
	evs, err := store.ListEvents(t.Context(), surehook.EventFilter{}, surehook.Page{Limit: 1})
	if err != nil || len(evs) != 1 {
		t.Fatal(evs, err)
	}
	day := time.Now().UTC()
	worst := time.Duration(0)
	for _, path := range []string{"/", "/chart", "/chart?window=hour", "/endpoints", "/endpoints/whk_3", "/chart?endpoint=whk_3", "/events", "/events?type=order.*", "/events?type=nothing.*", "/events?subject=nothing", "/events?type=nothing&status=succeeded", "/endpoints/whk_3/history", "/events?type=nothing.*&since=" + day.Add(-time.Hour).Format("2006-01-02T15:04"),
		"/events?status=dead", "/events?status=pending", "/events?status=succeeded", "/events/" + evs[0].ID, "/dead-letters", "/dead-letters?webhook_id=whk_0", "/replays", "/event-types",
		"/sentinels", "/sessions", "/tenants", "/partners", "/keys", "/audit", "/system"} {
		var took []time.Duration
		var size int
		first := time.Duration(0)
		for i := range 6 {
			start := time.Now()
			w := do("GET", "/console"+path, nil)
			if d := time.Since(start); i == 0 {
				first = d
			} else {
				took = append(took, d)
			}
			if size = w.Body.Len(); w.Code != http.StatusOK {
				t.Fatalf("%s: %d %s", path, w.Code, w.Body)
			}
		}
		slices.Sort(took)
		median := took[len(took)/2]
		t.Logf("%-60s first %8s then %8s %6d bytes", path, first.Round(time.Microsecond*100), median.Round(time.Microsecond*100), size)
		if median > pageTime || size > pageBytes {
			t.Errorf("%s takes %s and has %d bytes, at %d events", path, median, size, n)
		}
		worst = max(worst, median)
	}
	t.Logf("the slowest page takes %s at %d events", worst, n)
}
