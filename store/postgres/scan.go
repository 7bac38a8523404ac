package postgres

import (
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/surehook/surehook"
	"github.com/surehook/surehook/store/internal/row"
)

// intoTime reads milliseconds.
type intoTime struct{ to *time.Time }

func (i intoTime) ScanInt64(v pgtype.Int8) error {
	*i.to = at(v.Int64)
	return nil
}

// intoDuration reads microseconds.
type intoDuration struct{ to *time.Duration }

func (i intoDuration) ScanInt64(v pgtype.Int8) error {
	*i.to = time.Duration(v.Int64) * time.Microsecond
	return nil
}

// intoList reads a list of texts.
type intoList struct{ to *[]string }

func (i intoList) ScanText(v pgtype.Text) (err error) {
	*i.to, err = row.ParseList(v.String)
	return err
}

// intoStatus reads what an attempt meant.
type intoStatus struct{ to *surehook.AttemptStatus }

func (i intoStatus) ScanInt64(v pgtype.Int8) error {
	if v.Int64 > 0 && v.Int64 < int64(len(row.Statuses)) {
		*i.to = row.Statuses[v.Int64]
	}
	return nil
}

// eventColumns are an event without its bytes, in the order of scanEvent.
const eventColumns = `e.key, e.tenant, e.id, e.type, e.identity, e.owner, e.sequence, e.subjects, e.occurred_at, e.created_at, e.trace, e.about, e.partner, e.alias, e.api_version,
	e.data IS NULL`

func eventTargets(e *surehook.Event) []any {
	return []any{&e.Key, &e.Tenant, &e.ID, &e.Type, &e.Identity, &e.Owner, &e.Sequence, intoList{&e.Subjects}, intoTime{&e.OccurredAt},
		intoTime{&e.CreatedAt}, &e.Trace, &e.About, &e.Partner, &e.Alias, &e.APIVersion, &e.Erased}
}

func scanEvent(r pgx.CollectableRow) (*surehook.Event, error) {
	e := &surehook.Event{}
	return e, r.Scan(eventTargets(e)...)
}

// scanEventData reads eventColumns and, after them, the event's bytes.
func scanEventData(r pgx.CollectableRow) (*surehook.Event, error) {
	e := &surehook.Event{}
	return e, r.Scan(append(eventTargets(e), &e.Data)...)
}

// endpointColumns are an endpoint with its secrets, in the order of scanEndpoint.
const endpointColumns = `e.key, e.id, e.version, e.tenant, e.partner, e.url, e.description, e.event_types, e.subjects,
	e.identities, e.profile, e.envelope, e.signature, e.headers, e.limits, e.enabled, e.disabled_reason,
	e.consecutive_failures, e.first_failure_at, e.last_failure_at, e.last_success_at, e.created_at, e.updated_at, e.deleted, e.ordered, e.inbox, e.urgency,
	coalesce(s.secret_enc, ''), coalesce(s.prev_secret_enc, ''), coalesce(s.prev_until, 0), ` + sentinelColumns + `
	FROM surehook.endpoints e LEFT JOIN surehook.endpoint_secrets s ON s.endpoint_key = e.key LEFT JOIN surehook.sentinels n ON n.endpoint_key = e.key`

func scanEndpoint(r pgx.CollectableRow) (*surehook.Endpoint, error) {
	e := &surehook.Endpoint{}
	var headers, limits string
	var n sentinelRow
	if err := r.Scan(append([]any{&e.Key, &e.ID, &e.Version, &e.Tenant, &e.Partner, &e.URL, &e.Description, intoList{&e.EventTypes}, intoList{&e.Subjects},
		intoList{&e.Identities}, &e.Profile, &e.Envelope, &e.Signature, &headers, &limits, &e.Enabled, &e.DisabledReason,
		&e.Health.ConsecutiveFailures, intoTime{&e.Health.FirstFailureAt}, intoTime{&e.Health.LastFailureAt}, intoTime{&e.Health.LastSuccessAt},
		intoTime{&e.CreatedAt}, intoTime{&e.UpdatedAt}, &e.Deleted, &e.Ordered, &e.Inbox, &e.Urgency,
		&e.Secrets.Current, &e.Secrets.Previous, intoTime{&e.Secrets.PreviousUntil}}, n.targets()...)...); err != nil {
		return nil, err
	}
	var err error
	if e.Sentinel, err = n.sentinel(e.ID); err != nil {
		return nil, err
	}
	if e.Headers, err = row.ParseHeaders(headers); err != nil {
		return nil, err
	}
	e.Limits, err = row.ParseLimits(limits)
	return e, err
}
