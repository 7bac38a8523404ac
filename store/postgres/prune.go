package postgres

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/surehook/surehook"
)

// ownDays are the tenants that say themselves how long their events are kept.
const ownDays = `(SELECT t.id FROM surehook.tenants t WHERE t.events_days > 0)`

// Prune implements surehook.Retention by whole days: an event goes when its day
// is over and past. First its rows in the other tables go, in steps of limit;
// when nothing points into the day any more, its partitions are detached, beside
// everything that runs, and dropped.
//
// A day that holds events of tenants with days of their own can't be dropped: its
// other events go one by one, and PruneTenant is left with the rest. See
// docs/adr/0010.
func (s *Store) Prune(ctx context.Context, before time.Time, limit int) (int64, bool, error) {
	day := before.UnixMilli() / dayMs // the first that stays
	days, err := s.daysBefore(ctx, day)
	if err != nil {
		return 0, false, wrap(err)
	}
	for _, d := range days { // the oldest first, and one step of it
		if s.days.fresh(d) {
			continue
		}
		n, more, err := s.pruneDay(ctx, d, limit)
		switch sqlState(err) {
		case "42P01", "55000": // undefined_table, object_not_in_prerequisite_state: another node is at the same day
			return n, false, nil
		}
		if err != nil || n > 0 || more {
			return n, more && err == nil, wrap(err)
		}
	}
	var n int64
	err = s.change(ctx, func(ctx context.Context, tx pgx.Tx) (err error) {
		n, err = s.giveUp(ctx, tx, before, limit, `(tenant = '' OR tenant NOT IN `+ownDays+`)`)
		return err
	})
	return n, n == int64(limit), err
}

// pruneDay makes one step of a day. more: another one would find something to do.
func (s *Store) pruneDay(ctx context.Context, day int64, limit int) (n int64, more bool, err error) {
	var keep map[string]bool
	began := s.days.began()
	if err := s.again(ctx, func() (err error) { // another node may be dropping the day
		keep, err = s.kept(ctx, day)
		return err
	}); err != nil {
		return 0, false, err
	}
	n, more, over, err := s.pruneRows(ctx, day, limit, keep, began)
	if err != nil || !over {
		return n, more, err
	}
	for _, table := range partitioned {
		if !keep[table] {
			if err := s.dropDay(ctx, table, day); err != nil {
				return n, false, err
			}
		}
	}
	s.days.over(day, keep["events"] || keep["attempts"], began)
	return n, true, nil // the next day
}

// days is what is remembered of the days that are over: how far their rows were
// looked at, so that no step reads again what earlier ones left, and of which
// only what tenants keep for longer is left: there is nothing to be done about
// those for a while.
type days struct {
	mu     sync.Mutex
	at     map[partition][3]int64
	kept   map[int64]time.Time
	forgot int64 // times all of that was
}

const keptLook = time.Hour // a tenant's days may be others then

func (d *days) fresh(day int64) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return time.Since(d.kept[day]) < keptLook
}

// began is to be asked before a step, whose findings reach and over take only if
// nothing was forgotten since.
func (d *days) began() int64 {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.forgot
}

// over notes that a day was looked through.
func (d *days) over(day int64, kept bool, began int64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if began != d.forgot {
		return
	}
	for _, table := range partitioned {
		delete(d.at, partition{table, day})
	}
	if kept {
		if d.kept == nil {
			d.kept = make(map[int64]time.Time)
		}
		d.kept[day] = time.Now()
	}
}

// reached is the key of the last row of p that was looked at.
func (d *days) reached(p partition) [3]int64 {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.at[p]
}

func (d *days) reach(p partition, key [3]int64, began int64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if began != d.forgot {
		return
	}
	if d.at == nil {
		d.at = make(map[partition][3]int64)
	}
	d.at[p] = key
}

func (d *days) forget() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.at, d.kept = nil, nil
	d.forgot++
}

// kept tells which of a day's partitions hold something that tenants keep for
// longer: events, and attempts of such events, also of days before.
func (s *Store) kept(ctx context.Context, day int64) (map[string]bool, error) {
	out := make(map[string]bool)
	for table, what := range map[string]string{
		"events":   `SELECT 1 FROM surehook.%s e WHERE e.tenant = t.id AND e.tenant <> '' AND e.key < $1 LIMIT 1`,
		"attempts": `SELECT 1 FROM surehook.events e JOIN surehook.%s a ON a.event_key = e.key WHERE e.tenant = t.id AND e.tenant <> '' AND e.key < $1 LIMIT 1`,
	} {
		there, err := s.hasDay(ctx, s.pool, table, day)
		if err != nil {
			return out, err
		}
		var kept bool
		if there {
			err = s.pool.QueryRow(ctx, s.q(fmt.Sprintf(`SELECT EXISTS (SELECT 1 FROM surehook.tenants t CROSS JOIN LATERAL (`+what+`) x WHERE t.events_days > 0)`,
				partition{table, day}.name())), keyAt((day+1)*dayMs)).Scan(&kept)
		}
		if err != nil {
			return out, err
		}
		out[table] = kept
	}
	return out, nil
}

// daysBefore lists the days before one that have partitions, or what is left of
// them, oldest first.
func (s *Store) daysBefore(ctx context.Context, day int64) ([]int64, error) {
	rows, err := s.pool.Query(ctx, `SELECT c.relname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
		WHERE n.nspname = $1 AND c.relkind = 'r'`, s.opt.Schema)
	if err != nil {
		return nil, err
	}
	names, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return nil, err
	}
	var out []int64
	for _, name := range names {
		table, date, _ := strings.Cut(name, "_")
		at, err := time.Parse("20060102", date)
		if err != nil || !slices.Contains(partitioned, table) {
			continue
		}
		if d := at.UnixMilli() / dayMs; d < day && !slices.Contains(out, d) {
			out = append(out, d)
		}
	}
	slices.Sort(out)
	return out, nil
}

// notKept is a row x of an event that no tenant keeps for longer: the keys of a
// day are $1 and $2.
const notKept = `x.event_key >= $1 AND x.event_key < $2 AND NOT EXISTS (SELECT 1 FROM surehook.events e
	WHERE e.key = x.event_key AND e.tenant <> '' AND e.tenant IN ` + ownDays + ` OFFSET 0)`

// pruneRows removes some of what points to a day's events from the tables that
// have no days, and from those that do where the day is kept. more: another step
// would find something; over: nothing is left. While a row is held, neither is true,
// and its event keeps its id.
func (s *Store) pruneRows(ctx context.Context, day int64, limit int, keep map[string]bool, began int64) (n int64, more, over bool, err error) {
	from, below := keyAt(day*dayMs), keyAt((day+1)*dayMs)
	events, attempts := partition{"events", day}, partition{"attempts", day}
	reached := map[partition][3]int64{events: s.days.reached(events), attempts: s.days.reached(attempts)}
	looked := make(map[partition][3]int64)
	err = s.change(ctx, func(ctx context.Context, tx pgx.Tx) error {
		n, more, over = 0, false, false
		ended, err := s.pruneDeliveries(ctx, tx, from, below, limit)
		if err != nil {
			return err
		}
		letters, err := tx.Exec(ctx, s.q(`DELETE FROM surehook.dead_letters WHERE key IN (
			SELECT x.key FROM surehook.dead_letters x WHERE `+notKept+` ORDER BY x.event_key LIMIT $3 FOR UPDATE SKIP LOCKED)`), from, below, limit)
		if err != nil {
			return err
		}
		more = ended == limit || letters.RowsAffected() == int64(limit)
		var pending bool
		if err := tx.QueryRow(ctx, s.q(`SELECT EXISTS (SELECT 1 FROM surehook.pending x WHERE `+notKept+`)`), from, below).Scan(&pending); err != nil || pending {
			return err
		}
		there, err := s.hasDay(ctx, tx, "events", day)
		if err != nil {
			return err
		}
		if there {
			gone, last, rows, err := s.pruneEvents(ctx, tx, events, reached[events][0], limit, keep["events"])
			if err != nil {
				return err
			}
			n, looked[events], more = gone, [3]int64{last}, more || rows == limit
		}
		if keep["attempts"] && !more {
			last, rows, err := s.pruneAttempts(ctx, tx, attempts, reached[attempts], limit)
			if err != nil {
				return err
			}
			looked[attempts], more = last, rows == limit
		}
		over = !more
		return nil
	})
	if err == nil {
		for p, key := range looked {
			s.days.reach(p, key, began)
		}
	}
	return n, more, over, err
}

// pruneEvents looks at some of a day's events, from a key on. It removes their
// ids, and where the day is kept the events as well: those that no tenant keeps
// for longer. It tells how many went, and of the rows it looked at how many they
// were and the last one's key.
func (s *Store) pruneEvents(ctx context.Context, tx pgx.Tx, p partition, after int64, limit int, kept bool) (n, last int64, rows int, err error) {
	// By way of the day's events: the ids have no index by key.
	type seen struct {
		Key  int64
		ID   string
		Goes bool
	}
	all, err := collect(ctx, tx, pgx.RowToStructByPos[seen], s.q(fmt.Sprintf(`SELECT x.key, CASE WHEN x.alias <> '' THEN x.id || ' ' || x.tenant ELSE x.id END,
		x.tenant = '' OR x.tenant NOT IN %s FROM surehook.%s x WHERE x.key > $1 ORDER BY x.key LIMIT $2`, ownDays, p.name())), after, limit)
	if err != nil || len(all) == 0 {
		return 0, after, 0, err
	}
	last = all[len(all)-1].Key
	var keys []int64
	ids := make([]string, len(all))
	for i, x := range all {
		ids[i] = x.ID
		if x.Goes {
			keys = append(keys, x.Key)
		}
	}
	if kept {
		n, err = s.pruneKeys(ctx, tx, keys)
		return n, last, len(all), err
	}
	// An id may be a later event's by now.
	gone, err := tx.Exec(ctx, s.q(`DELETE FROM surehook.event_keys WHERE id = ANY($1) AND key <= $2`), ids, last)
	return gone.RowsAffected(), last, len(all), err
}

// pruneAttempts looks at some of the attempts of a day that is kept, and removes
// those whose events are gone.
func (s *Store) pruneAttempts(ctx context.Context, tx pgx.Tx, p partition, after [3]int64, limit int) (last [3]int64, rows int, err error) {
	last = after
	var keys [3][]int64
	found, err := tx.Query(ctx, s.q(fmt.Sprintf(`SELECT x.event_key, x.endpoint_key, x.key, NOT EXISTS (SELECT 1 FROM surehook.events e WHERE e.key = x.event_key OFFSET 0)
		FROM surehook.%s x WHERE (x.event_key, x.endpoint_key, x.key) > ($1, $2, $3) ORDER BY x.event_key, x.endpoint_key, x.key LIMIT $4`, p.name())),
		after[0], after[1], after[2], limit)
	if err != nil {
		return last, 0, err
	}
	var goes bool
	if _, err := pgx.ForEachRow(found, []any{&last[0], &last[1], &last[2], &goes}, func() error {
		rows++
		for i := range keys {
			if goes {
				keys[i] = append(keys[i], last[i])
			}
		}
		return nil
	}); err != nil || len(keys[0]) == 0 {
		return last, rows, err
	}
	_, err = tx.Exec(ctx, s.q(fmt.Sprintf(`DELETE FROM surehook.%s a USING unnest($1::bigint[], $2::bigint[], $3::bigint[]) x(event_key, endpoint_key, key)
		WHERE a.event_key = x.event_key AND a.endpoint_key = x.endpoint_key AND a.key = x.key`, p.name())), keys[0], keys[1], keys[2])
	return last, rows, err
}

// pruneKeys removes events with all that is theirs. Nothing is pending of them.
func (s *Store) pruneKeys(ctx context.Context, tx pgx.Tx, keys []int64) (int64, error) {
	if len(keys) == 0 {
		return 0, nil
	}
	for _, sql := range []string{
		`DELETE FROM surehook.dead_letters WHERE event_key = ANY($1) AND $2::bigint IS NOT NULL`,
		`DELETE FROM surehook.attempts WHERE event_key = ANY($1) AND key >= $2`,
		`DELETE FROM surehook.event_keys k USING surehook.events e WHERE e.key = ANY($1) AND e.key >= $2
			AND k.id IN (e.id, e.id || ' ' || e.tenant) AND k.key = e.key`,
	} {
		if _, err := tx.Exec(ctx, s.q(sql), keys, keys[0]-hourOfKeys); err != nil {
			return 0, err
		}
	}
	gone, err := tx.Exec(ctx, s.q(`DELETE FROM surehook.events WHERE key = ANY($1)`), keys)
	return gone.RowsAffected(), err
}

// PruneTenant implements surehook.Retention. The attempts that say why deliveries
// ended stay until their day is dropped.
func (s *Store) PruneTenant(ctx context.Context, tenant string, before time.Time, limit int) (int64, bool, error) {
	var n int64
	var more bool
	err := s.change(ctx, func(ctx context.Context, tx pgx.Tx) (err error) {
		if n, more, err = s.pruneOfTenant(ctx, tx, tenant, before, limit); err != nil || more {
			return err
		}
		given, err := s.giveUp(ctx, tx, before, limit, `tenant = $3 AND tenant <> ''`, tenant)
		n, more = n+given, given == int64(limit)
		return err
	})
	return n, more, err
}

func (s *Store) pruneOfTenant(ctx context.Context, tx pgx.Tx, tenant string, before time.Time, limit int) (n int64, more bool, err error) {
	keys, err := collect(ctx, tx, pgx.RowTo[int64], s.q(`SELECT e.key FROM surehook.events e WHERE e.tenant = $1 AND e.tenant <> '' AND e.key < $2
		AND NOT EXISTS (SELECT 1 FROM surehook.pending p WHERE p.event_key = e.key AND p.owner IS NOT NULL OFFSET 0) ORDER BY e.key LIMIT $3`),
		tenant, timeKey(before), limit)
	if err != nil || len(keys) == 0 {
		return 0, false, err
	}
	rows, err := collect(ctx, tx, scanDelivery, s.q(`SELECT event_key, endpoint_key, id, attempt, first_attempt FROM surehook.pending
		WHERE event_key = ANY($1) ORDER BY event_key, endpoint_key FOR UPDATE`), keys)
	if err != nil {
		return 0, false, err
	}
	var held bool // since we looked
	if err := tx.QueryRow(ctx, s.q(`SELECT EXISTS (SELECT 1 FROM surehook.pending WHERE event_key = ANY($1) AND owner IS NOT NULL)`), keys).Scan(&held); err != nil || held {
		return 0, held, err
	}
	now, err := s.now(ctx, tx)
	if err != nil {
		return 0, false, err
	}
	if n, err = s.pruneKeys(ctx, tx, keys); err != nil {
		return 0, false, err
	}
	if err := s.endRows(ctx, tx, rows, surehook.EventUnavailable, now); err != nil {
		return 0, false, err
	}
	_, err = tx.Exec(ctx, s.q(`DELETE FROM surehook.dead_letters WHERE event_key = ANY($1)`), keys) // of those rows: they go with their events
	return n, len(keys) == limit, err
}

// pruneDeliveries ends free rows of events that go, with an attempt that says so.
func (s *Store) pruneDeliveries(ctx context.Context, tx pgx.Tx, from, below int64, limit int) (int, error) {
	all, err := collect(ctx, tx, scanDelivery, s.q(`SELECT x.event_key, x.endpoint_key, x.id, x.attempt, x.first_attempt FROM surehook.pending x
		WHERE x.owner IS NULL AND `+notKept+` ORDER BY x.event_key, x.endpoint_key LIMIT $3 FOR UPDATE SKIP LOCKED`), from, below, limit)
	if err != nil || len(all) == 0 {
		return 0, err
	}
	now, err := s.now(ctx, tx)
	if err != nil {
		return 0, err
	}
	return len(all), s.endRows(ctx, tx, all, surehook.EventUnavailable, now)
}

func (s *Store) hasDay(ctx context.Context, tx querier, table string, day int64) (there bool, err error) {
	err = tx.QueryRow(ctx, `SELECT to_regclass($1) IS NOT NULL`, s.schema+"."+partition{table, day}.name()).Scan(&there)
	return there, err
}

// dropDay removes a day's partition. Each step may be the first one after a crash:
// what is half detached is finished, what is detached is dropped.
func (s *Store) dropDay(ctx context.Context, table string, day int64) error {
	p := partition{table, day}
	var attached, halfway bool
	err := s.pool.QueryRow(ctx, `SELECT true, i.inhdetachpending FROM pg_inherits i WHERE i.inhrelid = to_regclass($1)`,
		s.schema+"."+p.name()).Scan(&attached, &halfway)
	if err != nil && err != pgx.ErrNoRows { //nolint:errorlint // pgx gives it as it is
		return err
	}
	how := "CONCURRENTLY"
	if halfway {
		how = "FINALIZE"
	}
	if attached {
		if _, err := s.pool.Exec(ctx, fmt.Sprintf(`ALTER TABLE %[1]s.%[2]s DETACH PARTITION %[1]s.%[3]s %[4]s`, s.schema, table, p.name(), how)); err != nil {
			return err
		}
	}
	_, err = s.pool.Exec(ctx, fmt.Sprintf(`DROP TABLE IF EXISTS %s.%s`, s.schema, p.name()))
	return err
}
