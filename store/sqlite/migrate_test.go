package sqlite

import (
	"testing"

	"github.com/pressly/goose/v3"

	"github.com/surehook/surehook"
)

// A file of each earlier schema opens, with what was in it.
func TestUpgrade(t *testing.T) {
	path := tempFile(t)
	if err := migrating(path, func(p *goose.Provider) error {
		_, err := p.UpTo(t.Context(), 1)
		return err
	}); err != nil {
		t.Fatal(err)
	}
	// Three suspects, as that schema has them; one of them is held.
	alter(t, path, `
		INSERT INTO endpoints (key, id, version, changed, tenant, partner, url, description, event_types, subjects, identities, profile, envelope,
			signature, headers, limits, enabled, disabled_reason, consecutive_failures, first_failure_at, last_failure_at, last_success_at, created_at, updated_at)
			VALUES (2, 'whk_1', 1, 1, '', '', 'https://example.com', '', '["*"]', '[]', '[]', 'standard', 'standard', '', '{}', '{}', 1, '', 0, 0, 0, 0, 1, 1);
		INSERT INTO endpoint_secrets (endpoint_key, secret_enc, prev_secret_enc, prev_until) VALUES (2, '', '', 0);
		INSERT INTO events (key, tenant, id, type, identity, owner, sequence, subjects, occurred_at, created_at, trace, about, hash, data)
			SELECT value, '', 'e' || value, 'a.b', '', '', 0, '[]', 1, 1, '', '', x'00', '{}' FROM generate_series(3, 5);
		INSERT INTO pending (event_key, endpoint_key, id, owner, attempt, first_attempt, due, lost)
			SELECT key, 2, key + 3, CASE WHEN key = 3 THEN 1 END, 0, 1, 1, 3 FROM events;
		UPDATE counters SET value = 9 WHERE name = 'key'`)
	s := openFile(t, path, Options{FreeFloor: -1})
	c, err := s.Claim(t.Context(), 2, 10, 1<<20)
	if err != nil || len(c.Rows) != 1 {
		t.Fatalf("claimed %+v, %v; want one suspect", c, err)
	}
	if c.More || c.Next.IsZero() {
		t.Errorf("the other suspects aren't to wait for: %+v", c)
	}
	n, err := s.PendingCount(t.Context())
	if want := (surehook.PendingCount{Owned: 1, Due: 2, OldestDue: at(1)}); err != nil || n != want {
		t.Errorf("pending %+v, %v; want %+v", n, err, want)
	}
}
