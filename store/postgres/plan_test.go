package postgres

import (
	"context"
	"fmt"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/surehook/surehook"
)

const (
	planDays   = 5
	planEvents = 10_000 // a day
)

// Listings must cost what they show, whatever the number of rows: no statement
// may read a table that grows from end to end.
func TestQueryPlans(t *testing.T) {
	dsn := migrated(t)
	s := reopenable(t, dsn, Options{})()
	newest := fill(t, s)
	r, seen := traced(t, s)
	useEverything(t, r, newest)
	if len(seen.statements) < 40 {
		t.Fatalf("only %d statements were used", len(seen.statements))
	}
	ctx := t.Context()
	tx, err := s.pool.BeginTx(ctx, pgx.TxOptions{BeginQuery: beginRead})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback(context.Background()) }()
	for sql, args := range seen.statements {
		if strings.Contains(sql, "FOR NO KEY UPDATE") || !strings.HasPrefix(sql, "SELECT") && !strings.HasPrefix(sql, "(") {
			continue // a read-only transaction doesn't explain it
		}
		lines, err := collect(ctx, tx, pgx.RowTo[string], `EXPLAIN (COSTS OFF) `+sql, args...)
		if err != nil {
			t.Fatalf("%s: %v", sql, err)
		}
		if plan := strings.Join(lines, "\n"); readsWhole(plan) {
			t.Errorf("%s\n%s", sql, plan)
		}
	}
}

var seqScan = regexp.MustCompile(`Seq Scan on (?:(?:events|attempts)_(\d+)|pending|dead_letters|event_keys)\b`)

// readsWhole tells plans that read a table from end to end, other than today's,
// which may have just begun, and the empty ones of the days to come.
func readsWhole(plan string) bool {
	today := partition{day: time.Now().UnixMilli() / dayMs}.name()[1:]
	for _, m := range seqScan.FindAllStringSubmatch(plan, -1) {
		if m[1] < today {
			return true
		}
	}
	return false
}

// fill stores events of some days: most of them for the first endpoint, the rest
// for a hundred others, of which the last gets none. It gives the newest event's key.
func fill(t *testing.T, s *Store) (newest int64) {
	t.Helper()
	today := time.Now().UnixMilli() / dayMs
	err := s.change(t.Context(), func(ctx context.Context, tx pgx.Tx) error {
		missing, err := s.missingPartitions(ctx, tx, today-planDays, today)
		if err != nil {
			return err
		}
		for _, p := range missing {
			if err := p.make(ctx, tx, s.schema); err != nil {
				return err
			}
		}
		first := keyAt((today - planDays) * dayMs)
		step := (keyAt(time.Now().UnixMilli()) - first) / (planDays * planEvents)
		newest = first + (planDays*planEvents-1)*step
		event := fmt.Sprintf(`SELECT n, %d + n * %d::bigint AS key, CASE WHEN n %% 3 > 0 THEN 1 ELSE 2 + (n / 3) %% 99 END AS endpoint, ((%[1]d + n * %[2]d::bigint) >> 22) + %[3]d AS ms
			FROM generate_series(0, %[4]d) n`, first, step, int64(keyEpoch), planDays*planEvents-1)
		for _, sql := range []string{
			`INSERT INTO surehook.endpoints (key, id, version, changed, tenant, partner, url, description, event_types, subjects, identities, profile, envelope,
				signature, headers, limits, ordered, enabled, disabled_reason, consecutive_failures, first_failure_at, last_failure_at, last_success_at, created_at, updated_at)
				SELECT n, 'whk_' || n, 1, 1, '', '', '', '', '[]', '[]', '[]', '', '', '', '{}', '{}', false, true, '', 0, 0, 0, 0, 0, 0 FROM generate_series(1, 101) n`,
			`INSERT INTO surehook.events SELECT key, CASE WHEN n % 10 = 0 THEN 'acme' ELSE '' END, 'e' || n, 'a.b', '', '', 0, '[]', ms, ms, '', '', CASE WHEN n % 10 = 0 THEN 'p' ELSE '' END, '', '', '{}' FROM (` + event + `) x`,
			`INSERT INTO surehook.event_keys SELECT 'e' || n, CASE WHEN n % 10 = 0 THEN 'acme' ELSE '' END, key, '' FROM (` + event + `) x`,
			`INSERT INTO surehook.attempts SELECT key, key, endpoint, gen_random_uuid(), ms, 1000, 0, 1, 200, 0, 0, 0, 0, 0, 0, CASE WHEN n % 4 < 3 THEN 1 ELSE 2 END, 0, '', '', NULL
				FROM (` + event + `) x`,
			`INSERT INTO surehook.pending (event_key, endpoint_key, id, due, attempt, first_attempt, size) SELECT key, endpoint, n, ms, 1, 1, 2 FROM (` + event + `) x WHERE n % 4 = 3 AND n % 40 <> 3`,
			`INSERT INTO surehook.dead_letters SELECT key, key, endpoint, n, '', 500, 1, ms FROM (` + event + `) x WHERE n % 40 = 3`,
		} {
			if _, err := tx.Exec(ctx, s.q(sql)); err != nil {
				return fmt.Errorf("%s: %w", sql, err)
			}
		}
		return nil
	})
	if err == nil {
		_, err = s.pool.Exec(t.Context(), `ANALYZE`)
	}
	if err != nil {
		t.Fatal(err)
	}
	return newest
}

// statements remembers what is run, each with its last arguments.
type statements struct {
	mu         sync.Mutex
	statements map[string][]any
}

func (s *statements) keep(sql string, args []any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.statements[sql] = args
}

func (s *statements) TraceQueryStart(ctx context.Context, _ *pgx.Conn, d pgx.TraceQueryStartData) context.Context {
	s.keep(d.SQL, d.Args)
	return ctx
}

func (s *statements) TraceBatchStart(ctx context.Context, _ *pgx.Conn, d pgx.TraceBatchStartData) context.Context {
	for _, q := range d.Batch.QueuedQueries {
		s.keep(q.SQL, q.Arguments)
	}
	return ctx
}

func (*statements) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}
func (*statements) TraceBatchQuery(context.Context, *pgx.Conn, pgx.TraceBatchQueryData) {
}
func (*statements) TraceBatchEnd(context.Context, *pgx.Conn, pgx.TraceBatchEndData) {}

// traced gives a store on the same database that can read and configure, and
// remembers its statements.
func traced(t *testing.T, s *Store) (*Store, *statements) {
	t.Helper()
	seen := &statements{statements: make(map[string][]any)}
	cfg := s.pool.Config()
	cfg.ConnConfig.Tracer = seen
	pool, err := pgxpool.NewWithConfig(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	r := &Store{opt: s.opt, log: s.log, pool: pool, schema: s.schema}
	r.ids.s = r
	return r, seen
}

// useEverything calls each listing with each filter.
func useEverything(t *testing.T, s *Store, event int64) {
	t.Helper()
	ctx := t.Context()
	now := time.Now()
	use := func(_ any, err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	tenant, viewer := "acme", surehook.Viewer{Partner: "p"}
	for _, p := range []surehook.Page{{Limit: 50}, {Limit: 50, Cursor: event - 1<<32}} {
		for _, endpoint := range []int64{0, 1, 50, 101} {
			for _, status := range []surehook.DeliveryStatus{"", surehook.Pending, surehook.Dead, surehook.Succeeded} {
				for _, typ := range []string{"", "a.b", "a.*"} {
					use(s.ListEvents(ctx, surehook.EventFilter{Status: status, Endpoint: endpoint, Type: typ}, p))
					use(s.ListEvents(ctx, surehook.EventFilter{Status: status, Endpoint: endpoint, Type: typ, Tenant: tenant, For: surehook.Viewer{Tenant: tenant}, Since: now.Add(-time.Hour), Until: now}, p))
					use(s.ListEvents(ctx, surehook.EventFilter{Status: status, Endpoint: endpoint, Type: typ, Partner: "p", For: viewer}, p))
				}
				use(s.ListDeliveries(ctx, surehook.DeliveryFilter{Endpoint: max(endpoint, 1), Status: status}, p))
			}
			use(s.EventAttempts(ctx, event, endpoint, p))
			use(s.ListDeadLetters(ctx, surehook.DeadLetterFilter{Endpoint: endpoint}, p))
			use(s.ListDeadLetters(ctx, surehook.DeadLetterFilter{Endpoint: endpoint, Tenant: tenant, For: surehook.Viewer{Tenant: tenant}, Since: now.Add(-time.Hour)}, p))
			use(s.ListDeadLetters(ctx, surehook.DeadLetterFilter{Endpoint: endpoint, For: viewer}, p))
			use(s.ListReplays(ctx, endpoint, viewer, p))
			use(s.EndpointAttempts(ctx, max(endpoint, 1), p))
		}
		use(s.EventDeliveries(ctx, event, p))
		use(s.ListAudit(ctx, "", p))
		use(s.ListAudit(ctx, tenant, p))
		use(s.ListTenants(ctx, "", p))
		use(s.ListTenants(ctx, "p", p))
		if _, err := s.Event(ctx, nil, "e1:0123456789abcdef"); surehook.CodeOf(err) != surehook.NotFound {
			t.Error(err)
		}
		use(s.ListKeys(ctx, p))
		use(s.ListEndpoints(ctx, surehook.EndpointFilter{}, p))
		use(s.ListEndpoints(ctx, surehook.EndpointFilter{Of: "p"}, p))
	}
	for status := range replayableBy {
		use(s.Replayable(ctx, 1, surehook.ReplayFilter{Since: now.Add(-48 * time.Hour), Until: now.Add(-47 * time.Hour), Status: status}, 0, 10))
		use(s.Replayable(ctx, 101, surehook.ReplayFilter{Status: status}, 0, 10))
		use(s.Replayable(ctx, 50, surehook.ReplayFilter{Status: status}, 0, 10))
	}
	use(s.Stats(ctx, surehook.StatsFilter{Endpoint: 50}, now.Add(-time.Hour), now, time.Minute))
	use(s.Event(ctx, nil, "e7"))
	use(s.Event(ctx, &tenant, "e10"))
	use(s.EventByKey(ctx, event))
	use(s.estimate(ctx, &surehook.Replay{Since: now.Add(-time.Hour)}))
	use(s.Replay(ctx, 1, []int64{event}, nil))
}

// The server compiles no statement of ours: one that is kept to its plan would seem
// dear to it, and take a quarter of a second for the work of a millisecond.
func TestNothingIsCompiled(t *testing.T) {
	s := reopenable(t, migrated(t), Options{})()
	for name, begin := range map[string]string{
		"read": beginRead, "write": beginWrite, "import": beginEach, "limits": "BEGIN; " + limits, "in order": "BEGIN; " + inOrder,
		"batch": "BEGIN; " + strings.Replace(batchSQL, "$1", "0", 1),
	} {
		err := pgx.BeginTxFunc(t.Context(), s.pool, pgx.TxOptions{BeginQuery: begin}, func(tx pgx.Tx) error {
			var jit string
			if err := tx.QueryRow(t.Context(), `SHOW jit`).Scan(&jit); err != nil {
				return err
			}
			if jit != "off" {
				t.Errorf("%s: jit is %s", name, jit)
			}
			return nil
		})
		if err != nil {
			t.Error(name, err)
		}
	}
}
