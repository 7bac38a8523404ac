package postgres

import (
	"strings"
	"testing"
	"time"

	"github.com/surehook/surehook"
	"github.com/surehook/surehook/internal/pgserver"
)

// nextSchema is what a later version may do to the schema while nodes of this
// one run: add, with defaults, and never take away or rename.
const nextSchema = `
	ALTER TABLE surehook.events ADD COLUMN next text NOT NULL DEFAULT '';
	ALTER TABLE surehook.attempts ADD COLUMN next integer;
	ALTER TABLE surehook.pending ADD COLUMN next bigint NOT NULL DEFAULT 0;
	ALTER TABLE surehook.endpoints ADD COLUMN next text NOT NULL DEFAULT '';
	ALTER TABLE surehook.outbox ADD COLUMN next text NOT NULL DEFAULT '';
	ALTER TABLE surehook.dead_letters ADD COLUMN next text;
	CREATE TABLE surehook.next (name text PRIMARY KEY);
	INSERT INTO surehook.schema_versions (version_id, is_applied) VALUES (9999, true)`

// N-12: a node goes on while a newer one migrates the schema under it, prepared
// statements and partitions to come included; a new start of the old version is
// refused.
func TestANodeRunsOnWhileANewerOneMigrates(t *testing.T) {
	dsn := pgserver.Database(t)
	s, err := Open(t.Context(), dsn, Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	ep := &surehook.Endpoint{ID: "whk_1", URL: "https://example.com", Profile: "standard", Envelope: surehook.EnvelopeStandard, Enabled: true}
	if err := s.CreateEndpoint(t.Context(), ep, 0, nil); err != nil {
		t.Fatal(err)
	}
	work := func(id string) {
		t.Helper()
		_, version, err := s.Changes(t.Context(), 0)
		if err != nil {
			t.Fatal(err)
		}
		ev := &surehook.Event{ID: id, Type: "a.b", Data: []byte(`1`), Owner: "o", OccurredAt: time.Now()}
		out, err := s.Append(t.Context(), version, []surehook.Append{{Event: ev, Targets: []surehook.Target{{EndpointKey: ep.Key}}}})
		if err != nil || out[0].Err != nil {
			t.Fatal(err, out)
		}
		got, err := s.Claim(t.Context(), ep.Key, 10, 1<<20)
		if err != nil || len(got.Rows) != 1 {
			t.Fatal(err, got)
		}
		for i, decision := range []surehook.Decision{surehook.Again, surehook.Bury} {
			a := &surehook.Attempt{ID: newAttemptID(time.Now().UnixMilli()), EventKey: ev.Key, EndpointKey: ep.Key, Number: i + 1,
				Status: surehook.AttemptFailed, Code: surehook.Status5xx, CreatedAt: time.Now()}
			if _, err := s.Record(t.Context(), []surehook.Outcome{{Delivery: got.Rows[0].Delivery, Decision: decision, Attempt: a, Version: 1}}, nil); err != nil {
				t.Fatal(err)
			}
			if decision == surehook.Again {
				if got, err = s.Claim(t.Context(), ep.Key, 10, 1<<20); err != nil || len(got.Rows) != 1 {
					t.Fatal(err, got)
				}
			}
		}
		if ls, err := s.ListDeadLetters(t.Context(), surehook.DeadLetterFilter{}, surehook.Page{Limit: 1}); err != nil || ls[0].EventKey != ev.Key {
			t.Fatal(err, ls)
		}
		if _, err := s.Event(t.Context(), nil, id); err != nil {
			t.Fatal(err)
		}
	}
	for range 8 { // past the point where the server makes its plans for good
		work(s.opt.Name + newAttemptID(time.Now().UnixMilli()))
	}
	exec(t, dsn, nextSchema)
	for range 3 {
		work(s.opt.Name + newAttemptID(time.Now().UnixMilli()))
	}
	today := time.Now().UnixMilli() / dayMs
	exec(t, dsn, `DROP TABLE surehook.`+partition{"events", today + daysAhead}.name()+`, surehook.`+partition{"attempts", today + daysAhead}.name())
	if err := s.ensurePartitions(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(t.Context(), dsn, Options{}); err == nil || !strings.Contains(err.Error(), "a newer surehook") {
		t.Errorf("an old version starts on a newer schema: %v", err)
	}
}
