package sqlite

import (
	"fmt"

	"github.com/surehook/surehook"
	"github.com/surehook/surehook/internal/move"
	"github.com/surehook/surehook/store/internal/row"
)

// export is how a table is read for another store.
type export struct {
	from  string // the table itself is x; what is joined to it adds no rows
	where string
	order []string
	as    map[string]string // columns that aren't x's own of that name
	made  string            // the column that make gives
	make  func(get func(column string) any) (any, error)
}

// Keys of what happens are made anew, of the time and the old key's low bits: so
// they keep their order, a repeat makes the same ones, and no table of them is
// needed. Keys of what is there (endpoints, tenants, API keys) stay: no store
// reads a time from them, they are below all that the target will give out, and
// what names an endpoint needs no look at it.
func timeKey(ms, key string) string {
	return fmt.Sprintf(`(((max(%[1]s, %[3]d) - %[3]d) << %[4]d) | (%[2]s & %[5]d))`, ms, key, int64(move.KeyEpoch), move.KeyBits, 1<<move.KeyBits-1)
}

// Attempts may outlive their event; together they stay. An attempt began before
// it got its key, and clocks are set back: none may lie before its event.
const (
	eventOf     = ` x LEFT JOIN events e ON e.key = x.event_key`
	attemptedAt = `ifnull(e.created_at, (SELECT min(a.created_at) FROM attempts a WHERE a.event_key = x.event_key))`
)

// Whether an endpoint is younger than an event in the outbox is told by their
// numbers, which one counter gave: in place of times, they say the same to the
// target, and are below every time that it will write there itself.
var exports = map[string]export{
	"settings":         {from: `settings x`, where: `x.name <> '` + move.Setting + `'`, order: []string{`x.name`}},
	"outbox":           {from: `outbox x`, order: []string{`x.id`}, as: map[string]string{"created_at": `x.id`, "hash": `x''`}, made: "hash", make: contentHash},
	"tenants":          {from: `tenants x`, order: []string{`x.key`}},
	"partners":         {from: `partners x`, order: []string{`x.key`}},
	"api_keys":         {from: `api_keys x`, order: []string{`x.key`}},
	"event_types":      {from: `event_types x`, order: []string{`x.name`}},
	"endpoints":        {from: `endpoints x`, order: []string{`x.key`}, as: map[string]string{"made_at": `x.key`}},
	"endpoint_secrets": {from: `endpoint_secrets x`, order: []string{`x.endpoint_key`}},
	"sentinels":        {from: `sentinels x`, order: []string{`x.endpoint_key`}},
	"watch_cancels":    {from: `watch_cancels x`, order: []string{`x.key`}},
	"sentinel_events": {from: `sentinel_events` + eventOf, order: []string{`x.endpoint_key`, `x.event_id`, `x.tenant`},
		as: map[string]string{"event_key": timeKey(`ifnull(e.created_at, 0)`, `x.event_key`)}},
	"owners":      {from: `owners x`, order: []string{`x.tenant`, `x.owner`}},
	"polls":       {from: `polls x`, order: []string{`x.provider`, `x.subject`}},
	"idempotency": {from: `idempotency x`, order: []string{`x.scope`, `x.name`}},
	"partner_changes": {from: `tenants x`, where: `x.partner <> ''`, order: []string{`x.id`},
		as: map[string]string{"tenant": `x.id`, "changed": `(SELECT value FROM counters WHERE name = 'config')`}},
	"events": {from: `events x`, order: []string{`x.key`},
		as: map[string]string{"key": timeKey(`x.created_at`, `x.key`)}},
	"event_keys": {from: `events x`, order: []string{`x.key`},
		as: map[string]string{"key": timeKey(`x.created_at`, `x.key`), "id": `CASE WHEN x.alias <> '' THEN x.id || ' ' || x.tenant ELSE x.id END`}},
	"pending": {from: `pending` + eventOf, order: []string{`x.event_key`, `x.endpoint_key`},
		as: map[string]string{"event_key": timeKey(`e.created_at`, `x.event_key`), "size": `ifnull(length(e.data), 0)`}},
	"inboxes":       {from: `inboxes x`, order: []string{`x.key`}},
	"pull_sessions": {from: `pull_sessions x`, order: []string{`x.key`}},
	"attempts": {from: `attempts` + eventOf, order: []string{`x.event_key`, `x.endpoint_key`, `x.number`, `x.key`},
		as: map[string]string{"key": timeKey(`max(x.created_at, ifnull(e.created_at, 0))`, `x.key`), "event_key": timeKey(attemptedAt, `x.event_key`)}},
	"dead_letters": {from: `dead_letters` + eventOf, order: []string{`x.key`},
		as: map[string]string{"key": timeKey(`x.created_at`, `x.key`), "event_key": timeKey(`ifnull(e.created_at, x.created_at)`, `x.event_key`)}},
	"replays": {from: `replays x`, order: []string{`x.key`},
		as: map[string]string{"key": timeKey(`x.created_at`, `x.key`),
			"cursor": `ifnull((SELECT ` + timeKey(`e.created_at`, `e.key`) + ` FROM events e WHERE e.key <= x.cursor ORDER BY e.key DESC LIMIT 1), 0)`}},
	"audit_log": {from: `audit_log x`, order: []string{`x.key`},
		as: map[string]string{"key": timeKey(`x.at`, `x.key`)}},
}

// contentHash is what tells a repeat of an event that waits for its fan-out.
func contentHash(get func(column string) any) (any, error) {
	subjects, err := row.ParseList(get("subjects").(string))
	e := surehook.Event{Type: get("type").(string), Tenant: get("tenant").(string), Identity: get("identity").(string), Owner: get("owner").(string),
		About: get("about").(string), Subjects: subjects, Data: get("data").([]byte)}
	h := e.ContentHash()
	return h[:], err
}
