package sqlite

import (
	"github.com/ncruces/go-sqlite3"

	"github.com/surehook/surehook"
	"github.com/surehook/surehook/store/internal/row"
)

// eventColumns are an event without its bytes, in the order of scanEvent.
const (
	eventColumns     = `e.key, e.tenant, e.id, e.type, e.identity, e.owner, e.sequence, e.subjects, e.occurred_at, e.created_at, e.trace, e.about, e.partner, e.alias, e.api_version, e.data IS NULL`
	eventColumnCount = 16
)

func scanEvent(st *sqlite3.Stmt, i int) (*surehook.Event, error) {
	subjects, err := unlist(st.ColumnRawText(i + 7))
	return &surehook.Event{
		Key: st.ColumnInt64(i), Tenant: st.ColumnText(i + 1), ID: st.ColumnText(i + 2), Type: st.ColumnText(i + 3),
		Identity: st.ColumnText(i + 4), Owner: st.ColumnText(i + 5), Sequence: st.ColumnInt64(i + 6), Subjects: subjects,
		OccurredAt: at(st.ColumnInt64(i + 8)), CreatedAt: at(st.ColumnInt64(i + 9)), Trace: st.ColumnText(i + 10),
		About: st.ColumnText(i + 11), Partner: st.ColumnText(i + 12), Alias: st.ColumnText(i + 13), APIVersion: st.ColumnText(i + 14),
		Erased: st.ColumnBool(i + 15),
	}, err
}

// endpointColumns are an endpoint with its secrets, in the order of scanEndpoint.
const endpointColumns = `e.key, e.id, e.version, e.tenant, e.partner, e.url, e.description, e.event_types, e.subjects,
	e.identities, e.profile, e.envelope, e.signature, e.headers, e.limits, e.enabled, e.disabled_reason,
	e.consecutive_failures, e.first_failure_at, e.last_failure_at, e.last_success_at, e.created_at, e.updated_at, e.deleted, e.ordered, e.inbox, e.urgency,
	ifnull(s.secret_enc, ''), ifnull(s.prev_secret_enc, ''), ifnull(s.prev_until, 0), ` + sentinelColumns

const fromEndpoints = ` FROM endpoints e LEFT JOIN endpoint_secrets s ON s.endpoint_key = e.key` + fromSentinels

func scanEndpoint(st *sqlite3.Stmt) (*surehook.Endpoint, error) {
	e := &surehook.Endpoint{
		Key: st.ColumnInt64(0), ID: st.ColumnText(1), Version: st.ColumnInt64(2), Tenant: st.ColumnText(3),
		Partner: st.ColumnText(4), URL: st.ColumnText(5), Description: st.ColumnText(6),
		Profile: st.ColumnText(10), Envelope: surehook.Envelope(st.ColumnText(11)), Signature: st.ColumnText(12),
		Enabled: st.ColumnBool(15), DisabledReason: st.ColumnText(16),
		Health: surehook.Health{ConsecutiveFailures: st.ColumnInt(17), FirstFailureAt: at(st.ColumnInt64(18)),
			LastFailureAt: at(st.ColumnInt64(19)), LastSuccessAt: at(st.ColumnInt64(20))},
		CreatedAt: at(st.ColumnInt64(21)), UpdatedAt: at(st.ColumnInt64(22)), Deleted: st.ColumnBool(23),
		Ordered: st.ColumnBool(24), Inbox: st.ColumnInt64(25), Urgency: st.ColumnText(26),
		Secrets: surehook.Secrets{Current: st.ColumnText(27), Previous: st.ColumnText(28), PreviousUntil: at(st.ColumnInt64(29))},
	}
	var err error
	if e.Sentinel, err = scanSentinel(st, 30, e.ID); err != nil {
		return nil, err
	}
	for i, to := range []*[]string{&e.EventTypes, &e.Subjects, &e.Identities} {
		if *to, err = unlist(st.ColumnRawText(7 + i)); err != nil {
			return nil, err
		}
	}
	if e.Headers, err = row.ParseHeaders(st.ColumnRawText(13)); err != nil {
		return nil, err
	}
	e.Limits, err = row.ParseLimits(st.ColumnRawText(14))
	return e, err
}

func endpointByKey(c *conn, key int64) (*surehook.Endpoint, error) {
	var e *surehook.Endpoint
	found, err := c.one(`SELECT `+endpointColumns+fromEndpoints+` WHERE e.key = ?`, []any{key}, func(st *sqlite3.Stmt) (err error) {
		e, err = scanEndpoint(st)
		return err
	})
	if err == nil && !found {
		err = notFound("webhook")
	}
	return e, err
}

// bumpConfig marks an endpoint as changed, in the transaction that changes it.
// The writer is one, so the counter can be taken into use before the commit; a
// rollback takes it back.
func (s *Store) bumpConfig(c *conn, endpoint int64) error {
	if _, err := c.exec(`UPDATE counters SET value = value + 1 WHERE name = 'config'`); err != nil {
		return err
	}
	v, err := c.int64(`SELECT value FROM counters WHERE name = 'config'`)
	if err != nil {
		return err
	}
	if _, err := c.exec(`UPDATE endpoints SET changed = ? WHERE key = ?`, v, endpoint); err != nil {
		return err
	}
	s.config.Store(v)
	return nil
}
