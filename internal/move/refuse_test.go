package move_test

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/ncruces/go-sqlite3"

	"github.com/surehook/surehook"
	"github.com/surehook/surehook/internal/move"
	"github.com/surehook/surehook/internal/pgserver"
	"github.com/surehook/surehook/store/postgres"
	"github.com/surehook/surehook/store/sqlite"
)

// small is a file with two events, one of them pending.
func small(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "surehook.db")
	s, err := sqlite.Open(t.Context(), path, sqlite.Options{FreeFloor: -1})
	if err != nil {
		t.Fatal(err)
	}
	ep := &surehook.Endpoint{ID: "whk_1", URL: "https://example.com/", EventTypes: []string{"*"}, Enabled: true}
	if err := s.CreateEndpoint(t.Context(), ep, 0, nil); err != nil {
		t.Fatal(err)
	}
	_, version, err := s.Changes(t.Context(), 0)
	if err != nil {
		t.Fatal(err)
	}
	for i, targets := range [][]surehook.Target{nil, {{EndpointKey: ep.Key}}} {
		ev := &surehook.Event{ID: fmt.Sprintf("evt_%d", i), Type: "a.b", OccurredAt: time.Now(), Data: []byte(`"a secret"`)}
		if _, err := s.Append(t.Context(), version, []surehook.Append{{Event: ev, Targets: targets}}); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	return path
}

func dbExec(t *testing.T, dsn, sql string) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), dsn)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close(context.Background()) }()
	if _, err := conn.Exec(t.Context(), sql); err != nil {
		t.Fatal(err)
	}
}

// A row that isn't what it should be is named, and what is in it is not shown.
// Mended, the move goes on.
func TestDamagedRows(t *testing.T) {
	for _, c := range []struct{ damage, mend, says string }{
		{`UPDATE events SET created_at = 'soon' WHERE id = 'evt_1'`, `UPDATE events SET created_at = 1700000000000 WHERE id = 'evt_1'`, "events: the row with key "},
		{`UPDATE events SET created_at = 1 << 60 WHERE id = 'evt_1'`, `UPDATE events SET created_at = 1700000000000 WHERE id = 'evt_1'`, "out of its range"},
		{`UPDATE events SET type = 'a' || char(0) WHERE id = 'evt_0'`, `UPDATE events SET type = 'a.b'`, "type has U+0000 in it"},
		{`UPDATE events SET subjects = '{' WHERE id = 'evt_0'`, `UPDATE events SET subjects = '[]'`, "subjects isn't the JSON"},
		{`UPDATE events SET hash = 'text' WHERE id = 'evt_0'`, `UPDATE events SET hash = x'00'`, "event_keys: the row with key "},
		{`UPDATE events SET data = 7 WHERE id = 'evt_0'`, `UPDATE events SET data = x'37'`, "data is a number"},
		{`UPDATE pending SET attempt = 1 << 40`, `UPDATE pending SET attempt = 0`, "pending: the row with event_key "},
		{`DELETE FROM events WHERE id = 'evt_1'`, `DELETE FROM pending`, "event_key can't be told, since the event is gone"},
		{`UPDATE endpoints SET limits = 'x'`, `UPDATE endpoints SET limits = '{}'`, "endpoints: the row with key "},
		{`UPDATE endpoints SET enabled = 2`, `UPDATE endpoints SET enabled = 1`, "enabled is 2, out of its range"},
		{`INSERT INTO attempts (event_key, endpoint_key, number, key, id, status, code, http_status, error, created_at, duration_us, resolve_us, connect_us,
			tls_us, write_us, wait_us, read_us, next_due, flags) VALUES (1,2,3,4,x'00',1,'',0,'',5,0,0,0,0,0,0,0,0,0)`, `DELETE FROM attempts`,
			"attempts: the row with event_key 1, endpoint_key 2, number 3, key 4 is damaged: id has 1 bytes, not 16"},
	} {
		path, dsn := small(t), pgserver.Database(t)
		sqlExec(t, path, c.damage)
		_, err := try(t.Context(), path, dsn, nil, nil)
		if surehook.CodeOf(err) != surehook.Conflict || !strings.Contains(err.Error(), c.says) || !strings.Contains(err.Error(), "call again") {
			t.Errorf("%s: %v", c.damage, err)
			continue
		}
		if strings.Contains(err.Error(), "a secret") {
			t.Errorf("%s: the error shows what is in the row: %v", c.damage, err)
		}
		sqlExec(t, path, c.mend)
		if r, err := try(t.Context(), path, dsn, nil, nil); err != nil || !r.Resumed {
			t.Errorf("%s: mended: %+v, %v", c.damage, r, err)
		}
	}
}

// Whatever its clock said when a row was made, it finds its day.
func TestOldDays(t *testing.T) {
	path, dsn := small(t), pgserver.Database(t)
	sqlExec(t, path, `UPDATE events SET created_at = CASE id WHEN 'evt_0' THEN 1000 ELSE 1672531200000 END`)
	if _, err := try(t.Context(), path, dsn, nil, nil); err != nil {
		t.Fatal(err)
	}
	s, err := postgres.Open(t.Context(), dsn, postgres.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = s.Close() }()
	for id, at := range map[string]int64{"evt_0": 1000, "evt_1": 1672531200000} {
		if e, err := s.Event(t.Context(), nil, id); err != nil || e.CreatedAt.UnixMilli() != at {
			t.Errorf("%+v, %v", e, err)
		}
	}
}

func TestRefusedTargets(t *testing.T) {
	used := pgserver.Database(t)
	s, err := postgres.Open(t.Context(), used, postgres.Options{})
	if err != nil {
		t.Fatal(err)
	}
	refused := func(dsn, says string) {
		t.Helper()
		path := small(t)
		if _, err := try(t.Context(), path, dsn, nil, nil); surehook.CodeOf(err) != surehook.Conflict || !strings.Contains(err.Error(), says) {
			t.Errorf("%v, want %q", err, says)
		}
		// It left no mark.
		s, err := sqlite.Open(t.Context(), path, sqlite.Options{FreeFloor: -1})
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
	refused(used, "a surehook server runs on the target")
	if _, err := s.PutSetting(t.Context(), "a", nil, false); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	refused(used, "DROP SCHEMA surehook CASCADE")

	taken := pgserver.Database(t)
	if _, err := try(t.Context(), small(t), taken, nil, nil); err != nil {
		t.Fatal(err)
	}
	refused(taken, "another move")
	if _, err := try(t.Context(), filepath.Join(t.TempDir(), "no.db"), pgserver.Database(t), nil, nil); surehook.CodeOf(err) != surehook.NotFound {
		t.Error(err)
	}
}

// A schema may have another name.
func TestOtherSchema(t *testing.T) {
	opt, dsn := postgres.Options{Schema: "other"}, pgserver.Database(t)
	dst, err := postgres.OpenTarget(t.Context(), dsn, opt)
	if err != nil {
		t.Fatal(err)
	}
	defer dst.Close()
	src, err := sqlite.OpenSource(t.Context(), small(t), sqlite.Options{FreeFloor: -1})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = src.Close() }()
	if _, err := move.Run(t.Context(), src, dst, nil); err != nil || !strings.HasSuffix(dst.Name(), ", schema other") {
		t.Fatal(dst.Name(), err)
	}
	s, err := postgres.Open(t.Context(), dsn, opt)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = s.Close() }()
	if n, err := s.PendingCount(t.Context()); err != nil || n.Due != 1 {
		t.Errorf("%+v, %v", n, err)
	}
}

// A file that a server has open is left alone.
func TestSourceInUse(t *testing.T) {
	path := small(t)
	s, err := sqlite.Open(t.Context(), path, sqlite.Options{FreeFloor: -1})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = s.Close() }()
	if _, err := try(t.Context(), path, pgserver.Database(t), nil, nil); err == nil || !strings.Contains(err.Error(), "another surehook process") {
		t.Error(err)
	}
}

// spoiler changes the target behind the move's back.
type spoiler struct {
	move.Target
	once func()
}

func (s *spoiler) Each(ctx context.Context, t move.Table, f func(move.Row) error) error {
	if s.once != nil {
		s.once()
		s.once = nil
	}
	return s.Target.Each(ctx, t, f)
}

func TestWhatDiffersIsFound(t *testing.T) {
	for sql, tables := range map[string][]string{
		`UPDATE surehook.events SET data = 'x' WHERE id = 'evt_0'`: {"events"},
		`DELETE FROM surehook.event_keys WHERE id = 'evt_0'`:       {"event_keys"},
		`UPDATE surehook.pending SET owner = NULL, due = due + 1`:  {"pending"},
		`INSERT INTO surehook.owners VALUES ('', 'o', 1); DELETE FROM surehook.settings WHERE name <> 'migrate_store'; UPDATE surehook.endpoints SET enabled = false`: {"endpoints", "owners"},
	} {
		path, dsn := small(t), pgserver.Database(t)
		r, err := try(t.Context(), path, dsn, func(to move.Target) move.Target {
			return &spoiler{Target: to, once: func() { dbExec(t, dsn, sql) }}
		}, nil)
		var differ []string
		for _, tr := range r.Tables {
			if !tr.Equal {
				differ = append(differ, tr.Table)
			}
		}
		if surehook.CodeOf(err) != surehook.Conflict || !slices.Equal(differ, tables) {
			t.Errorf("%s: %v, %v", sql, differ, err)
		}
		if _, err := postgres.Open(t.Context(), dsn, postgres.Options{}); err == nil {
			t.Errorf("%s: a server starts on it", sql)
		}
	}
}

// Two at once: one of them goes on, the other one is told.
func TestTwoAtOnce(t *testing.T) {
	path, dsn := small(t), pgserver.Database(t)
	other := false
	_, err := try(t.Context(), path, dsn, func(to move.Target) move.Target {
		return &spoiler{Target: to, once: func() {
			other = true
			dbExec(t, dsn, `UPDATE surehook.settings SET value = '{"source":"other","rows":1,"started":"2026-01-01T00:00:00Z"}' WHERE name = 'migrate_store'`)
		}}
	}, nil)
	if !other || err == nil || !strings.Contains(err.Error(), "another surehook migrate-store") {
		t.Error(other, err)
	}
}

// What a schema has beyond the tables and columns that are moved is known here:
// whoever adds one says how it is moved.
func TestNothingIsForgotten(t *testing.T) {
	moved := func(more ...string) map[string]bool {
		out := map[string]bool{}
		for _, tb := range move.Tables {
			for _, c := range tb.Names() {
				out[tb.Name+"."+c] = true
			}
		}
		for _, c := range more {
			out[c] = true
		}
		return out
	}
	dsn := pgserver.Database(t)
	dst, err := postgres.OpenTarget(t.Context(), dsn, postgres.Options{Schema: "other"})
	if err != nil {
		t.Fatal(err)
	}
	dst.Close()
	conn, err := pgx.Connect(t.Context(), dsn)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close(context.Background()) }()
	rows, err := conn.Query(t.Context(), `SELECT c.relname || '.' || a.attname FROM pg_attribute a JOIN pg_class c ON c.oid = a.attrelid JOIN pg_namespace n ON n.oid = c.relnamespace
		WHERE n.nspname = 'other' AND c.relkind IN ('r', 'p') AND NOT c.relispartition AND a.attnum > 0 AND NOT a.attisdropped
		AND c.relname NOT IN ('counters', 'nodes', 'schema_versions', 'sessions')`) // whoever is signed in signs in again
	if err != nil {
		t.Fatal(err)
	}
	there, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		t.Fatal(err)
	}
	// An event that was put off is tried at once where it comes to.
	known := moved("endpoints.made_in", "outbox.id", "outbox.xid", "outbox.refused", "outbox.refused_at", "outbox.retry_at", "pending.owner")
	for _, c := range there {
		if !known[c] {
			t.Errorf("PostgreSQL's %s isn't moved", c)
		}
		delete(known, c)
	}
	if len(known) > 0 {
		t.Errorf("PostgreSQL has no %v", known)
	}
	// Attempts whose events are gone go with their day's partition.
	known = moved("outbox.id", "outbox.refused", "outbox.refused_at", "outbox.retry_at", "pending.owner", "events.hash", "orphans.event_key", "orphans.at")
	for _, c := range sqliteColumns(t, small(t)) {
		if !known[c] {
			t.Errorf("SQLite's %s isn't moved", c)
		}
	}
}

func sqliteColumns(t *testing.T, path string) (out []string) {
	t.Helper()
	c, err := sqlite3.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	st, _, err := c.Prepare(`SELECT m.name || '.' || i.name FROM sqlite_schema m, pragma_table_info(m.name) i
		WHERE m.type = 'table' AND m.name NOT IN ('counters', 'goose_db_version', 'sqlite_sequence', 'sessions')`)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = st.Close() }()
	for st.Step() {
		out = append(out, st.ColumnText(0))
	}
	if len(out) < 50 {
		t.Fatal(out, st.Err())
	}
	return out
}
