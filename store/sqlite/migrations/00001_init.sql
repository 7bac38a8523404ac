-- Times are Unix milliseconds, UTC; 0 stands for none. Lists are JSON arrays.
-- Integer keys come from one allocator (counters.key), whose high-water mark is
-- stored, so that none is ever given out twice.

-- +goose Up
CREATE TABLE counters (
    name  TEXT PRIMARY KEY,
    value INTEGER NOT NULL
) WITHOUT ROWID;

INSERT INTO counters (name, value) VALUES ('key', 1), ('epoch', 0), ('config', 0), ('health', 0);

CREATE TABLE settings (
    name  TEXT PRIMARY KEY,
    value BLOB NOT NULL
) WITHOUT ROWID;

-- The event's bytes, once, as they were given. data is NULL once erased; hash
-- still tells a repeat from a conflict.
CREATE TABLE events (
    key         INTEGER PRIMARY KEY,
    tenant      TEXT NOT NULL,
    id          TEXT NOT NULL,
    type        TEXT NOT NULL,
    identity    TEXT NOT NULL,
    owner       TEXT NOT NULL,
    sequence    INTEGER NOT NULL,
    subjects    TEXT NOT NULL,
    occurred_at INTEGER NOT NULL,
    created_at  INTEGER NOT NULL,
    trace       TEXT NOT NULL,
    about       TEXT NOT NULL,
    hash        BLOB NOT NULL,
    data        BLOB
);
CREATE UNIQUE INDEX events_id ON events (id, tenant); -- in this order an id alone finds it too
CREATE INDEX events_tenant ON events (tenant) WHERE tenant <> ''; -- and by key, which every index ends with

-- What is still to do: one row per event and endpoint, gone when it succeeded.
-- owner is the epoch of the process that holds the row, NULL when it is free.
CREATE TABLE pending (
    event_key     INTEGER NOT NULL,
    endpoint_key  INTEGER NOT NULL,
    id            INTEGER NOT NULL,
    owner         INTEGER,
    attempt       INTEGER NOT NULL,
    first_attempt INTEGER NOT NULL,
    due           INTEGER NOT NULL,
    lost          INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY (event_key, endpoint_key)
) WITHOUT ROWID;
CREATE INDEX pending_due ON pending (endpoint_key, due) WHERE owner IS NULL;

-- Events whose endpoints are still to be chosen.
CREATE TABLE outbox (
    id          INTEGER PRIMARY KEY,
    tenant      TEXT NOT NULL,
    event_id    TEXT NOT NULL,
    type        TEXT NOT NULL,
    identity    TEXT NOT NULL,
    owner       TEXT NOT NULL,
    subjects    TEXT NOT NULL,
    occurred_at INTEGER NOT NULL,
    trace       TEXT NOT NULL,
    about       TEXT NOT NULL,
    data        BLOB NOT NULL,
    UNIQUE (tenant, event_id)
);

-- The log of attempts, append-only, together by delivery.
CREATE TABLE attempts (
    event_key    INTEGER NOT NULL,
    endpoint_key INTEGER NOT NULL,
    number       INTEGER NOT NULL,
    key          INTEGER NOT NULL,
    id           BLOB NOT NULL, -- the ULID's 16 bytes
    status       INTEGER NOT NULL, -- 1 succeeded, 2 failed, 3 dead
    code         TEXT NOT NULL,
    http_status  INTEGER NOT NULL,
    error        TEXT NOT NULL,
    response     BLOB,
    created_at   INTEGER NOT NULL,
    duration_us  INTEGER NOT NULL,
    resolve_us   INTEGER NOT NULL,
    connect_us   INTEGER NOT NULL,
    tls_us       INTEGER NOT NULL,
    write_us     INTEGER NOT NULL,
    wait_us      INTEGER NOT NULL,
    read_us      INTEGER NOT NULL,
    next_due     INTEGER NOT NULL,
    flags        INTEGER NOT NULL, -- 1 late, 2 test
    PRIMARY KEY (event_key, endpoint_key, number, key)
) WITHOUT ROWID;
-- An endpoint's attempts in order of recording, with all that statistics need.
CREATE INDEX attempts_endpoint ON attempts (endpoint_key, key, status, created_at, duration_us, flags);

CREATE TABLE dead_letters (
    key          INTEGER PRIMARY KEY,
    event_key    INTEGER NOT NULL,
    endpoint_key INTEGER NOT NULL,
    pending_id   INTEGER NOT NULL,
    code         TEXT NOT NULL,
    http_status  INTEGER NOT NULL,
    attempts     INTEGER NOT NULL,
    created_at   INTEGER NOT NULL,
    UNIQUE (event_key, endpoint_key)
);
CREATE INDEX dead_letters_endpoint ON dead_letters (endpoint_key, key);
CREATE INDEX dead_letters_delivery ON dead_letters (endpoint_key, event_key);

CREATE TABLE endpoints (
    key                  INTEGER PRIMARY KEY,
    id                   TEXT NOT NULL UNIQUE,
    version              INTEGER NOT NULL,
    changed              INTEGER NOT NULL, -- counters.config at the last change
    tenant               TEXT NOT NULL,
    partner              TEXT NOT NULL,
    url                  TEXT NOT NULL,
    description          TEXT NOT NULL,
    event_types          TEXT NOT NULL,
    subjects             TEXT NOT NULL,
    identities           TEXT NOT NULL,
    profile              TEXT NOT NULL,
    envelope             TEXT NOT NULL,
    signature            TEXT NOT NULL,
    headers              TEXT NOT NULL, -- JSON object
    limits               TEXT NOT NULL, -- JSON object, durations in ms
    enabled              INTEGER NOT NULL,
    disabled_reason      TEXT NOT NULL,
    consecutive_failures INTEGER NOT NULL,
    first_failure_at     INTEGER NOT NULL,
    last_failure_at      INTEGER NOT NULL,
    last_success_at      INTEGER NOT NULL,
    created_at           INTEGER NOT NULL,
    updated_at           INTEGER NOT NULL,
    deleted              INTEGER NOT NULL DEFAULT 0
);
CREATE INDEX endpoints_changed ON endpoints (changed);
CREATE INDEX endpoints_scope ON endpoints (tenant, partner) WHERE deleted = 0;

CREATE TABLE endpoint_secrets (
    endpoint_key   INTEGER PRIMARY KEY,
    secret_enc     TEXT NOT NULL,
    prev_secret_enc TEXT NOT NULL,
    prev_until     INTEGER NOT NULL
);

CREATE TABLE tenants (
    key        INTEGER PRIMARY KEY,
    id         TEXT NOT NULL UNIQUE,
    name       TEXT NOT NULL,
    partner    TEXT NOT NULL,
    created_at INTEGER NOT NULL
);

CREATE TABLE api_keys (
    key          INTEGER PRIMARY KEY,
    id           TEXT NOT NULL UNIQUE,
    name         TEXT NOT NULL,
    hash         BLOB NOT NULL UNIQUE,
    hint         TEXT NOT NULL,
    tenant       TEXT NOT NULL,
    permissions  TEXT NOT NULL,
    created_at   INTEGER NOT NULL,
    revoked_at   INTEGER NOT NULL,
    last_used_at INTEGER NOT NULL
);

CREATE TABLE event_types (
    name        TEXT PRIMARY KEY,
    description TEXT NOT NULL,
    example     BLOB,
    schema      BLOB,
    validate    INTEGER NOT NULL,
    created_at  INTEGER NOT NULL,
    updated_at  INTEGER NOT NULL
) WITHOUT ROWID;

CREATE TABLE replays (
    key          INTEGER PRIMARY KEY,
    id           TEXT NOT NULL UNIQUE,
    endpoint_key INTEGER NOT NULL,
    since        INTEGER NOT NULL,
    until        INTEGER NOT NULL,
    status       TEXT NOT NULL,
    state        TEXT NOT NULL,
    cursor       INTEGER NOT NULL,
    scanned      INTEGER NOT NULL,
    queued       INTEGER NOT NULL,
    total        INTEGER NOT NULL,
    error        TEXT NOT NULL,
    created_at   INTEGER NOT NULL,
    updated_at   INTEGER NOT NULL
);
CREATE INDEX replays_endpoint ON replays (endpoint_key, key);
CREATE INDEX replays_running ON replays (key) WHERE state = 'running';

CREATE TABLE audit_log (
    key        INTEGER PRIMARY KEY,
    at         INTEGER NOT NULL,
    actor      TEXT NOT NULL,
    action     TEXT NOT NULL,
    target     TEXT NOT NULL,
    tenant     TEXT NOT NULL,
    request_id TEXT NOT NULL,
    details    TEXT NOT NULL
);
CREATE INDEX audit_log_tenant ON audit_log (tenant, key);

-- Answers to requests that carried an Idempotency-Key, sealed by the caller.
CREATE TABLE idempotency (
    scope        TEXT NOT NULL,
    name         TEXT NOT NULL,
    request_hash BLOB NOT NULL,
    answer       BLOB NOT NULL,
    created_at   INTEGER NOT NULL,
    PRIMARY KEY (scope, name)
) WITHOUT ROWID;
CREATE INDEX idempotency_age ON idempotency (created_at);

-- +goose Down
DROP TABLE idempotency;
DROP TABLE audit_log;
DROP TABLE replays;
DROP TABLE event_types;
DROP TABLE api_keys;
DROP TABLE tenants;
DROP TABLE endpoint_secrets;
DROP TABLE endpoints;
DROP TABLE dead_letters;
DROP TABLE attempts;
DROP TABLE outbox;
DROP TABLE pending;
DROP TABLE events;
DROP TABLE settings;
DROP TABLE counters;
