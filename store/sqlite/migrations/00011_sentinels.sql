-- Sentinels, each beside the endpoint of the same key; which events were theirs; and
-- the watches of those that ended, until their providers have cancelled them.

-- +goose Up
CREATE TABLE sentinels (
    endpoint_key  INTEGER PRIMARY KEY,
    clauses       TEXT NOT NULL, -- JSON [{"subject":…,"types":[…]}]
    until_kind    TEXT NOT NULL,
    until_at      INTEGER NOT NULL,
    until_count   INTEGER NOT NULL,
    status        TEXT NOT NULL,
    ended         TEXT NOT NULL,
    settled       INTEGER NOT NULL, -- 0: it ended, and not all that follows is done
    provider      TEXT NOT NULL,
    watch         TEXT NOT NULL,
    grouping      TEXT NOT NULL,
    label         TEXT NOT NULL,
    session       TEXT NOT NULL,
    principal     TEXT NOT NULL,
    events        INTEGER NOT NULL,
    last_event_at INTEGER NOT NULL,
    last_error    TEXT NOT NULL,
    created_at    INTEGER NOT NULL
);
CREATE INDEX sentinels_at ON sentinels (until_at) WHERE until_kind = 'at' AND status <> 'expired';
CREATE INDEX sentinels_unsettled ON sentinels (endpoint_key) WHERE settled = 0;
CREATE INDEX sentinels_session ON sentinels (session, endpoint_key) WHERE session <> '';

CREATE TABLE sentinel_events (
    endpoint_key INTEGER NOT NULL,
    event_id     TEXT NOT NULL,
    tenant       TEXT NOT NULL,
    event_key    INTEGER NOT NULL,
    PRIMARY KEY (endpoint_key, event_id, tenant)
) WITHOUT ROWID;
CREATE INDEX sentinel_events_key ON sentinel_events (endpoint_key, event_key);

CREATE TABLE watch_cancels (
    key      INTEGER PRIMARY KEY,
    provider TEXT NOT NULL,
    watch    TEXT NOT NULL,
    tries    INTEGER NOT NULL,
    retry_at INTEGER NOT NULL
);
CREATE INDEX watch_cancels_due ON watch_cancels (retry_at);

-- +goose Down
DROP TABLE watch_cancels;
DROP TABLE sentinel_events;
DROP TABLE sentinels;
