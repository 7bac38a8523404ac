package move

import "slices"

// Kind is what a column holds, and how a value of it looks in a Row.
type Kind uint8

// The kinds of columns.
const (
	Int      Kind = iota // int64
	Int32                // int64 that fits into 32 bits
	Int16                // int64 that fits into 16 bits
	Moment               // int64, Unix milliseconds from which a key is made
	Key                  // int64, never negative
	MayInt               // int64 or nil
	Bool                 // bool
	Text                 // string that every store can keep
	Said                 // Text; what can't be kept of it is replaced
	List                 // Text: a JSON array of texts
	Headers              // Text: a JSON object of texts
	Limits               // Text: an endpoint's limits
	Bytes                // []byte
	MayBytes             // []byte or nil
	UUID                 // [16]byte
)

// Column is one column of a Table.
type Column struct {
	Name string
	Kind Kind
}

// Table is a table as both stores see it. Columns that say nothing about the
// data, such as who holds a row, are left out.
type Table struct {
	Name    string
	Columns []Column
}

// Names lists the columns.
func (t Table) Names() []string {
	out := make([]string, len(t.Columns))
	for i, c := range t.Columns {
		out[i] = c.Name
	}
	return out
}

func of(k Kind, names ...string) []Column {
	out := make([]Column, len(names))
	for i, n := range names {
		out[i] = Column{n, k}
	}
	return out
}

func table(name string, groups ...[]Column) Table {
	return Table{Name: name, Columns: slices.Concat(groups...)}
}

// Tables are all that is moved, in this order. What waits for its fan-out comes
// before the endpoints: the target sees all of them made after it, and created_at
// and made_at say which were.
var Tables = []Table{
	table("settings", of(Text, "name"), of(Bytes, "value")),
	table("outbox", of(Int, "created_at"), of(Text, "tenant", "event_id", "type", "identity", "owner"), of(List, "subjects"), of(Int, "occurred_at"),
		of(Text, "trace", "about", "partner"), of(Bytes, "hash", "data")),
	table("tenants", of(Int, "key"), of(Text, "id"), of(Said, "name"), of(Text, "partner"), of(Int32, "events_days"), of(Int, "created_at")),
	table("partners", of(Int, "key"), of(Text, "id"), of(Said, "name"), of(Bool, "suspended"), of(Int, "created_at", "updated_at")),
	table("partner_changes", of(Text, "tenant"), of(Int, "changed")),
	table("api_keys", of(Int, "key"), of(Text, "id"), of(Said, "name"), of(Bytes, "hash"), of(Text, "hint", "tenant", "partner"), of(List, "permissions"),
		of(Int, "created_at", "revoked_at", "last_used_at")),
	table("event_types", of(Text, "name"), of(Said, "description"), of(MayBytes, "example", "schema"), of(Bool, "validate"), of(Text, "requires"),
		of(Int, "created_at", "updated_at")),
	table("endpoints", of(Int, "key"), of(Text, "id"), of(Int, "version", "changed"), of(Text, "tenant", "partner", "url"), of(Said, "description"),
		of(List, "event_types", "subjects", "identities"), of(Text, "profile", "envelope", "signature"), of(Headers, "headers"), of(Limits, "limits"),
		of(Bool, "ordered", "enabled"), of(Text, "disabled_reason"), of(Int32, "consecutive_failures"),
		of(Int, "first_failure_at", "last_failure_at", "last_success_at", "created_at", "updated_at"), of(Bool, "deleted"), of(Int, "inbox"), of(Text, "urgency"),
		of(Int, "made_at")),
	table("endpoint_secrets", of(Int, "endpoint_key"), of(Text, "secret_enc", "prev_secret_enc"), of(Int, "prev_until")),
	table("sentinels", of(Int, "endpoint_key"), of(Text, "clauses", "until_kind"), of(Int, "until_at", "until_count"), of(Text, "status", "ended"), of(Bool, "settled"),
		of(Text, "provider", "watch"), of(Said, "grouping", "label"), of(Text, "session", "principal"), of(Int, "events", "last_event_at"), of(Said, "last_error"), of(Int, "created_at", "ended_at")),
	table("watch_cancels", of(Int, "key"), of(Text, "provider", "watch"), of(Int32, "tries"), of(Int, "retry_at")),
	table("owners", of(Text, "tenant", "owner"), of(Int, "last")),
	table("events", of(Key, "key"), of(Text, "tenant", "id", "type", "identity", "owner"), of(Int, "sequence"), of(List, "subjects"),
		of(Int, "occurred_at"), of(Moment, "created_at"), of(Text, "trace", "about", "partner", "alias", "api_version"), of(MayBytes, "data")),
	table("event_keys", of(Text, "id", "tenant"), of(Key, "key"), of(Bytes, "hash")),
	table("sentinel_events", of(Int, "endpoint_key"), of(Text, "event_id", "tenant"), of(Key, "event_key")),
	table("pending", of(Key, "event_key"), of(Int, "endpoint_key", "id", "due"), of(MayInt, "order_key"), of(Int, "sequence"),
		of(Int32, "attempt", "first_attempt", "lost", "size"), of(MayInt, "inbox", "number")),
	table("inboxes", of(Int, "key", "last", "dropped")),
	table("pull_sessions", of(Int, "key"), of(Text, "tenant", "partner", "id"), of(Int, "created_at", "seen_at", "ended_at"), of(Text, "end_reason")),
	table("attempts", of(Key, "key", "event_key"), of(Int, "endpoint_key"), of(UUID, "id"), of(Moment, "created_at"), of(Int, "duration_us", "next_due"),
		of(Int32, "number", "http_status", "resolve_us", "connect_us", "tls_us", "write_us", "wait_us", "read_us"), of(Int16, "status", "flags"),
		of(Text, "code"), of(Said, "error"), of(MayBytes, "response")),
	table("dead_letters", of(Key, "key", "event_key"), of(Int, "endpoint_key", "pending_id"), of(Text, "code"), of(Int32, "http_status", "attempts"),
		of(Moment, "created_at")),
	table("replays", of(Key, "key"), of(Text, "id"), of(Int, "endpoint_key", "since", "until"), of(Text, "status", "state"), of(Key, "cursor"),
		of(Int, "scanned", "queued", "total"), of(Said, "error"), of(Moment, "created_at"), of(Int, "updated_at")),
	table("audit_log", of(Key, "key"), of(Moment, "at"), of(Text, "actor", "action", "target", "tenant"), of(Said, "request_id", "details")),
	table("polls", of(Text, "provider", "subject"), of(List, "sentinels"), of(Bytes, "state"), of(Int, "due"), of(Int32, "failures"), of(Said, "error")),
	table("idempotency", of(Text, "scope", "name"), of(Bytes, "request_hash", "answer"), of(Int, "created_at")),
}
