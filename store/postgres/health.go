package postgres

import (
	"context"
	"maps"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/surehook/surehook"
	"github.com/surehook/surehook/store/internal/row"
)

const healthOf = `SELECT key, version, enabled, consecutive_failures, first_failure_at, last_failure_at, last_success_at
	FROM surehook.endpoints WHERE key = ANY($1) AND NOT deleted`

// standing is what decides about an endpoint's health.
type standing struct {
	key, version int64
	enabled      bool
	health       surehook.Health
}

// settleHealth updates each endpoint once, in key order, and only on change: a
// batch of successes of healthy endpoints locks nothing.
func (s *Store) settleHealth(ctx context.Context, tx pgx.Tx, health map[int64]*surehook.Tally, rules map[int64]surehook.HealthRule, out *surehook.Recorded) error {
	if len(health) == 0 {
		return nil
	}
	keys := slices.Sorted(maps.Keys(health))
	seen, err := s.standings(ctx, tx, healthOf, keys)
	if err != nil {
		return err
	}
	keys = keys[:0]
	for _, st := range seen {
		if _, changed, reason, _ := health[st.key].Settle(st.health, st.version, rules[st.key]); changed || reason != "" {
			keys = append(keys, st.key)
		}
	}
	if len(keys) == 0 {
		return nil
	}
	slices.Sort(keys)
	if seen, err = s.standings(ctx, tx, healthOf+` ORDER BY key FOR NO KEY UPDATE`, keys); err != nil {
		return err
	}
	for _, st := range seen {
		if err := s.settleOne(ctx, tx, st, health[st.key], rules[st.key], out); err != nil {
			return err
		}
	}
	return nil
}

func (s *Store) standings(ctx context.Context, tx pgx.Tx, sql string, keys []int64) ([]standing, error) {
	rows, err := tx.Query(ctx, s.q(sql), keys)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, func(row pgx.CollectableRow) (standing, error) {
		var st standing
		var first, last, success int64
		err := row.Scan(&st.key, &st.version, &st.enabled, &st.health.ConsecutiveFailures, &first, &last, &success)
		st.health.FirstFailureAt, st.health.LastFailureAt, st.health.LastSuccessAt = at(first), at(last), at(success)
		return st, err
	})
}

func (s *Store) settleOne(ctx context.Context, tx pgx.Tx, st standing, t *surehook.Tally, rule surehook.HealthRule, out *surehook.Recorded) error {
	next, changed, reason, trigger := t.Settle(st.health, st.version, rule)
	if changed {
		if _, err := tx.Exec(ctx, s.q(`UPDATE surehook.endpoints SET consecutive_failures = $2, first_failure_at = $3, last_failure_at = $4, last_success_at = $5
			WHERE key = $1`), st.key, next.ConsecutiveFailures, millis(next.FirstFailureAt), millis(next.LastFailureAt), millis(next.LastSuccessAt)); err != nil {
			return err
		}
	}
	if reason == "" || !st.enabled {
		return nil
	}
	return s.disable(ctx, tx, st, reason, trigger, rule, out)
}

// disable is guarded by the row's lock: one update wins, and the winner's
// transaction also holds the event that tells of it.
func (s *Store) disable(ctx context.Context, tx pgx.Tx, st standing, reason string, trigger *surehook.Attempt, rule surehook.HealthRule, out *surehook.Recorded) error {
	if _, err := tx.Exec(ctx, s.q(`UPDATE surehook.endpoints SET enabled = false, disabled_reason = $2, version = version + 1, updated_at = surehook.clock()
		WHERE key = $1`), st.key, reason); err != nil {
		return err
	}
	if err := s.bumpConfig(ctx, tx, st.key); err != nil {
		return err
	}
	e, err := s.endpointByKey(ctx, tx, st.key)
	if err != nil {
		return err
	}
	now, err := s.now(ctx, tx)
	if err != nil {
		return err
	}
	if err := s.putAudit(ctx, tx, now, row.Disabling(e, reason, trigger)); err != nil {
		return err
	}
	out.Disabled = append(out.Disabled, e)
	if rule.Disabled == nil {
		return nil
	}
	if ev := rule.Disabled(e, reason, trigger); ev != nil {
		_, err := s.putOutbox(ctx, tx, ev)
		return err
	}
	return nil
}
