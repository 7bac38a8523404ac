package postgres

import (
	"context"
	"encoding/json"
	"errors"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/surehook/surehook"
	"github.com/surehook/surehook/internal/move"
)

// Target is a schema that another store is moved into. It takes no lease: until
// the move is over, no node may.
type Target struct {
	s    *Store
	name string
	days map[partition]bool // that are known to be there
}

var _ move.Target = (*Target)(nil)

// OpenTarget connects and migrates the schema.
func OpenTarget(ctx context.Context, dsn string, opt Options) (*Target, error) {
	s, err := dial(ctx, dsn, opt)
	if err != nil {
		return nil, err
	}
	return &Target{s: s, name: address(s.pool.Config().ConnConfig, s.opt.Schema), days: make(map[partition]bool)}, nil
}

// Close disconnects.
func (t *Target) Close() { t.s.disconnect() }

// Name implements move.Target.
func (t *Target) Name() string { return t.name }

// State implements move.Target.
func (t *Target) State(ctx context.Context) (*move.State, error) {
	note, err := t.s.Setting(ctx, move.Setting)
	switch {
	case surehook.CodeOf(err) == surehook.NotFound:
		return nil, nil
	case err != nil:
		return nil, err
	}
	st := &move.State{}
	if err := json.Unmarshal(note, st); err != nil {
		return nil, surehook.Errorf(surehook.Conflict, "the target's note of a move can't be read: empty the target and start again").WithCause(err)
	}
	return st, nil
}

// notFilling refuses a schema that isn't whole yet.
func (s *Store) notFilling(ctx context.Context) error {
	note, err := s.Setting(ctx, move.Setting)
	switch {
	case surehook.CodeOf(err) == surehook.NotFound:
		return nil
	case err != nil:
		return err
	case move.Unfinished(note):
		return surehook.Errorf(surehook.Conflict, "a store is being moved into this database, and not all of it is here: call surehook migrate-store again to finish it")
	}
	return nil
}

// Begin implements move.Target.
func (t *Target) Begin(ctx context.Context, st *move.State) error {
	note, err := json.Marshal(st)
	if err != nil {
		return err
	}
	s := t.s
	return s.change(ctx, func(ctx context.Context, tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, `SELECT pg_advisory_xact_lock($1)`, int64(migrateLock)); err != nil {
			return err
		}
		if err := s.noNodes(ctx, tx); err != nil {
			return err
		}
		for _, table := range move.Tables {
			var used bool
			if err := tx.QueryRow(ctx, s.q(`SELECT EXISTS (SELECT 1 FROM surehook.`+table.Name+`)`)).Scan(&used); err != nil {
				return err
			}
			if used {
				return surehook.Errorf(surehook.Conflict, "the target isn't empty (%s): choose another schema, or empty this one with DROP SCHEMA %s CASCADE", table.Name, s.opt.Schema)
			}
		}
		_, err := tx.Exec(ctx, s.q(`INSERT INTO surehook.settings (name, value) VALUES ($1, $2)`), move.Setting, note)
		return err
	})
}

// noNodes refuses a target that is in use.
func (s *Store) noNodes(ctx context.Context, tx pgx.Tx) error {
	var used bool
	err := tx.QueryRow(ctx, s.q(`SELECT EXISTS (SELECT 1 FROM surehook.nodes WHERE expires_at > (SELECT surehook.clock()))`)).Scan(&used)
	if err == nil && used {
		err = conflict("a surehook server runs on the target, or ended there less than its lease ago: stop it, wait for that, and call again")
	}
	return err
}

// note replaces the note of how far the move is. Whoever else moves into this
// schema has changed it, or waits here and finds it changed.
func (t *Target) note(ctx context.Context, tx pgx.Tx, old, next *move.State) error {
	was, err := json.Marshal(old)
	if err != nil {
		return err
	}
	is, err := json.Marshal(next)
	if err != nil {
		return err
	}
	tag, err := tx.Exec(ctx, t.s.q(`UPDATE surehook.settings SET value = $3 WHERE name = $1 AND value = $2`), move.Setting, was, is)
	if err == nil && tag.RowsAffected() == 0 {
		err = conflict("another surehook migrate-store is at work on this target; let it finish, or call again when it has ended")
	}
	return err
}

// Write implements move.Target.
func (t *Target) Write(ctx context.Context, table move.Table, rows []move.Row, old, next *move.State) error {
	var made []partition
	err := t.s.change(ctx, func(ctx context.Context, tx pgx.Tx) error {
		if err := t.note(ctx, tx, old, next); err != nil {
			return err
		}
		var err error
		if made, err = t.makeDays(ctx, tx, table, rows); err != nil {
			return err
		}
		_, err = tx.CopyFrom(ctx, pgx.Identifier{t.s.opt.Schema, table.Name}, table.Names(), pgx.CopyFromSlice(len(rows), func(i int) ([]any, error) {
			return rows[i], nil
		}))
		return rejected(err)
	})
	if err == nil {
		for _, p := range made {
			t.days[p] = true
		}
	}
	return err
}

// rejected says what a row breaks. The server's details would repeat what is in
// it.
func rejected(err error) error {
	e, ok := errors.AsType[*pgconn.PgError](err)
	if !ok || !strings.HasPrefix(e.Code, "22") && !strings.HasPrefix(e.Code, "23") {
		return err
	}
	return surehook.Errorf(surehook.Conflict, "the target refuses one of them: %s", e.Message)
}

// makeDays makes the partitions that rows need.
func (t *Target) makeDays(ctx context.Context, tx pgx.Tx, table move.Table, rows []move.Row) ([]partition, error) {
	if table.Name != partitioned[0] && table.Name != partitioned[1] {
		return nil, nil
	}
	var need []partition
	seen := make(map[partition]bool)
	for _, r := range rows { // their key is the first column
		p := partition{table.Name, (r[0].(int64)>>keyBits + keyEpoch) / dayMs}
		if !t.days[p] && !seen[p] {
			seen[p] = true
			need = append(need, p)
		}
	}
	if len(need) == 0 {
		return nil, nil
	}
	if _, err := tx.Exec(ctx, `SELECT pg_advisory_xact_lock($1)`, int64(migrateLock)); err != nil {
		return nil, err
	}
	for _, p := range need {
		missing, err := t.s.missingPartitions(ctx, tx, p.day, p.day)
		if err != nil {
			return nil, err
		}
		for _, m := range missing {
			if m != p {
				continue
			}
			if err := m.make(ctx, tx, t.s.schema); err != nil {
				return nil, err
			}
		}
	}
	return need, nil
}

// beginEach reads for as long as it takes.
const beginEach = `BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY; SET LOCAL statement_timeout = 0; SET LOCAL idle_in_transaction_session_timeout = 0;
	SET LOCAL jit = off`

// Each implements move.Target.
func (t *Target) Each(ctx context.Context, table move.Table, f func(move.Row) error) error {
	sql := `SELECT ` + strings.Join(table.Names(), ", ") + ` FROM surehook.` + table.Name
	if table.Name == "settings" {
		sql += ` WHERE name <> '` + move.Setting + `'`
	}
	return wrap(pgx.BeginTxFunc(ctx, t.s.pool, pgx.TxOptions{BeginQuery: beginEach}, func(tx pgx.Tx) error {
		rows, err := tx.Query(ctx, t.s.q(sql), pgx.QueryExecModeDescribeExec) // f can't be undone, so no statement that a pooler may not know
		if err != nil {
			return err
		}
		defer rows.Close()
		for rows.Next() {
			v, err := rows.Values()
			if err != nil {
				return err
			}
			if err := f(v); err != nil {
				return err
			}
		}
		return rows.Err()
	}))
}

// Finish implements move.Target.
func (t *Target) Finish(ctx context.Context, id, config int64, old, next *move.State) error {
	s := t.s
	// A sequence keeps no transactions: it goes up first.
	if _, err := s.pool.Exec(ctx, s.q(`SELECT setval('surehook.ids', greatest((SELECT last_value FROM surehook.ids), $1))`), pgx.QueryExecModeExec, id+1); err != nil {
		return wrap(err)
	}
	// A bulk load leaves the planner without a clue until some hours later.
	for _, table := range move.Tables {
		if _, err := s.pool.Exec(ctx, s.q(`ANALYZE surehook.`+table.Name)); err != nil {
			return wrap(err)
		}
	}
	return s.change(ctx, func(ctx context.Context, tx pgx.Tx) error {
		if err := s.noNodes(ctx, tx); err != nil {
			return err
		}
		if _, err := tx.Exec(ctx, s.q(`UPDATE surehook.counters SET value = greatest(value, $1) + 1 WHERE name = 'config'`), config); err != nil {
			return err
		}
		if _, err := tx.Exec(ctx, s.q(`UPDATE surehook.counters SET value = 1 WHERE name = 'aliases' AND EXISTS (SELECT FROM surehook.events WHERE alias <> '')`)); err != nil {
			return err
		}
		return t.note(ctx, tx, old, next)
	})
}
