package sqlite

import (
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/surehook/surehook"
)

// Listings must cost what they show, whatever the number of rows: no statement
// may walk a table that grows, nor an endpoint's whole log to find one event,
// nor sort more than one event's or one page's rows.
func TestQueryPlans(t *testing.T) {
	s := openFile(t, tempFile(t), Options{FreeFloor: -1})
	useEverything(t, s)
	plans := make(map[string]string)
	explain := func(c *conn) error { return explainAll(c, plans) }
	for range readers {
		c := <-s.reads
		if err := explain(c); err != nil {
			t.Error(err)
		}
		defer func() { s.reads <- c }()
	}
	if err := s.bare(explain); err != nil {
		t.Error(err)
	}
	if len(plans) < 40 {
		t.Fatalf("only %d statements were used", len(plans))
	}
	scan := regexp.MustCompile(`SCAN (e|a|x|p|attempts|events|pending)\b`)
	wholeLog := regexp.MustCompile(`attempts_endpoint \(endpoint_key=\?\)`)
	allowed := []string{
		`count(*) FILTER`,                   // PendingCount: each row, by design
		`lost = lost + ?`,                   // once at start
		`WHERE alias <> '')`,                // once at start, in an index of those alone: the first one
		`WHERE order_key IS NOT NULL`,       // once at start, those alone that are in sequences
		`INDEXED BY attempts_endpoint`,      // succeeded deliveries: among the endpoint's attempts, in an index that holds all
		`WHERE a.endpoint_key = ? ORDER BY`, // the endpoint's attempts, in order: stops at the limit
		`FROM endpoints e `,                 // endpoints are few, or asked for as a whole
	}
	for sql, plan := range plans {
		sorts := strings.Contains(plan, "TEMP B-TREE FOR ORDER BY") && !strings.Contains(sql, "ORDER BY +") && !strings.Contains(sql, "WHERE e.id = ?")
		if !scan.MatchString(plan) && !wholeLog.MatchString(plan) && !sorts {
			continue
		}
		fine := false
		for _, part := range allowed {
			fine = fine || strings.Contains(sql, part)
		}
		if !fine {
			t.Errorf("%s\n%s", sql, plan)
		}
	}
}

func explainAll(c *conn, plans map[string]string) error {
	for sql := range c.stmts {
		st, _, err := c.Prepare("EXPLAIN QUERY PLAN " + sql)
		if err != nil {
			return err
		}
		plan := ""
		for st.Step() {
			plan += "  " + st.ColumnText(3) + "\n"
		}
		if err := st.Close(); err != nil {
			return err
		}
		plans[strings.Join(strings.Fields(sql), " ")] = plan
	}
	return nil
}

// useEverything calls each listing with each filter, so that its statements are
// prepared. What they find doesn't matter.
func useEverything(t *testing.T, s *Store) {
	t.Helper()
	ctx := t.Context()
	var errs []error
	use := func(_ any, err error) { errs = append(errs, err) }
	appended, err := add(t, s, "e1", 10, true)
	if err != nil {
		t.Fatal(err)
	}
	d := appended.Deliveries[0]
	now, viewer := time.Now(), surehook.Viewer{Partner: "p"}
	for _, p := range []surehook.Page{{Limit: 10}, {Limit: 10, Cursor: 1 << 40}} {
		for _, endpoint := range []int64{0, d.EndpointKey} {
			for _, status := range []surehook.DeliveryStatus{"", surehook.Pending, surehook.Dead, surehook.Succeeded} {
				for _, typ := range []string{"", "a.b", "a.*"} {
					use(s.ListEvents(ctx, surehook.EventFilter{Status: status, Endpoint: endpoint, Type: typ}, p))
					use(s.ListEvents(ctx, surehook.EventFilter{Status: status, Endpoint: endpoint, Type: typ, Tenant: "t", For: surehook.Viewer{Tenant: "t"}, Since: now, Until: now}, p))
					use(s.ListEvents(ctx, surehook.EventFilter{Status: status, Endpoint: endpoint, Type: typ, Partner: "p", For: viewer}, p))
				}
				use(s.ListDeliveries(ctx, surehook.DeliveryFilter{Endpoint: d.EndpointKey, Status: status}, p))
			}
			use(s.EventAttempts(ctx, d.EventKey, endpoint, p))
			use(s.ListDeadLetters(ctx, surehook.DeadLetterFilter{Endpoint: endpoint}, p))
			use(s.ListDeadLetters(ctx, surehook.DeadLetterFilter{Endpoint: endpoint, Tenant: "t", For: surehook.Viewer{Tenant: "t"}, Since: now}, p))
			use(s.ListDeadLetters(ctx, surehook.DeadLetterFilter{Endpoint: endpoint, For: viewer}, p))
			use(s.ListReplays(ctx, endpoint, viewer, p))
		}
		use(s.EndpointAttempts(ctx, d.EndpointKey, p))
		use(s.EventDeliveries(ctx, d.EventKey, p))
		use(s.ListAudit(ctx, "", p))
		use(s.ListAudit(ctx, "t", p))
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
		use(s.Replayable(ctx, d.EndpointKey, surehook.ReplayFilter{Since: now.Add(-time.Hour), Until: now.Add(time.Hour), Status: status}, 0, 10))
	}
	use(s.Stats(ctx, surehook.StatsFilter{Endpoint: d.EndpointKey}, now.Add(-time.Hour), now, time.Minute))
	use(s.Due(ctx))
	use(s.PendingCount(ctx))
	use(s.Event(ctx, nil, "e1"))
	use(s.Record(ctx, []surehook.Outcome{success(1, d)}, nil))
	use(s.Replay(ctx, d.EndpointKey, []int64{d.EventKey}, nil))
	use(s.Claim(ctx, d.EndpointKey, 10, 10))
	use(s.End(ctx, d.EndpointKey, surehook.EndpointDisabled, false, true, 10))
	for _, err := range errs {
		if err != nil {
			t.Fatal(err)
		}
	}
}
