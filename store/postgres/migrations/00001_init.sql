-- Times are Unix milliseconds, UTC; 0 stands for none. Lists are JSON arrays.
--
-- Keys of events and attempts begin with the time: (ms since 2020) << 22, and
-- 22 bits of a number that no two share. So a key says on which day its row
-- lies, and the partitions by day are ranges of keys.

-- +goose Up
CREATE SEQUENCE surehook.epochs;
CREATE SEQUENCE surehook.ids INCREMENT BY 4096; -- a node takes a block at a time

CREATE TABLE surehook.counters (
    name  text PRIMARY KEY,
    value bigint NOT NULL
);
INSERT INTO surehook.counters (name, value) VALUES ('config', 0), ('asleep', 0), ('health', 0);

CREATE TABLE surehook.settings (
    name  text PRIMARY KEY,
    value bytea NOT NULL
);

-- +goose StatementBegin
-- The database's clock: all times that decide anything are read here.
CREATE FUNCTION surehook.clock() RETURNS bigint LANGUAGE sql VOLATILE
    AS $$ SELECT (extract(epoch FROM clock_timestamp()) * 1000)::bigint $$;
-- +goose StatementEnd

-- The lease of each running node. An epoch that isn't here owns nothing.
CREATE TABLE surehook.nodes (
    epoch      bigint PRIMARY KEY,
    name       text NOT NULL,
    delivers   boolean NOT NULL,
    started_at bigint NOT NULL,
    expires_at bigint NOT NULL
);

-- The event's bytes, once, as they were given. data is NULL once erased.
CREATE TABLE surehook.events (
    key         bigint NOT NULL,
    tenant      text NOT NULL,
    id          text NOT NULL,
    type        text NOT NULL,
    identity    text NOT NULL,
    owner       text NOT NULL,
    sequence    bigint NOT NULL,
    subjects    text NOT NULL,
    occurred_at bigint NOT NULL,
    created_at  bigint NOT NULL,
    trace       text NOT NULL,
    about       text NOT NULL,
    data        bytea,
    PRIMARY KEY (key)
) PARTITION BY RANGE (key);
CREATE INDEX events_tenant ON surehook.events (tenant, key) WHERE tenant <> '';

-- Ids are unique over all partitions. hash tells a repeat from a conflict.
CREATE TABLE surehook.event_keys (
    id     text NOT NULL,
    tenant text NOT NULL,
    key    bigint NOT NULL,
    hash   bytea NOT NULL,
    PRIMARY KEY (id, tenant)
);

-- The last sequence of each owner.
CREATE TABLE surehook.owners (
    tenant text NOT NULL,
    owner  text NOT NULL,
    last   bigint NOT NULL,
    PRIMARY KEY (tenant, owner)
);

-- What is still to do: one row per event and endpoint, gone when it succeeded.
-- owner is the epoch of the node that holds the row, NULL when it is free.
-- order_key names the sequence that the row waits in, at an ordered endpoint.
CREATE TABLE surehook.pending (
    event_key     bigint NOT NULL,
    endpoint_key  bigint NOT NULL,
    id            bigint NOT NULL,
    owner         bigint,
    due           bigint NOT NULL,
    order_key     bigint,
    sequence      bigint NOT NULL DEFAULT 0,
    attempt       integer NOT NULL,
    first_attempt integer NOT NULL,
    lost          integer NOT NULL DEFAULT 0,
    size          integer NOT NULL,
    PRIMARY KEY (event_key, endpoint_key)
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 20000, autovacuum_vacuum_cost_delay = 0,
    autovacuum_analyze_scale_factor = 0, autovacuum_analyze_threshold = 50000);
CREATE INDEX pending_due ON surehook.pending (endpoint_key, due, event_key) WHERE owner IS NULL;
CREATE INDEX pending_order ON surehook.pending (endpoint_key, order_key, sequence) WHERE order_key IS NOT NULL;
CREATE INDEX pending_order_out ON surehook.pending (endpoint_key, order_key) WHERE order_key IS NOT NULL AND owner IS NOT NULL;
CREATE INDEX pending_suspect ON surehook.pending (owner) WHERE lost >= 3;

-- Events whose endpoints are still to be chosen. xid tells which endpoints are
-- older than the commit that brought the row.
CREATE TABLE surehook.outbox (
    id          bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    xid         xid8 NOT NULL DEFAULT pg_current_xact_id(),
    created_at  bigint NOT NULL DEFAULT surehook.clock(),
    tenant      text NOT NULL,
    event_id    text NOT NULL,
    type        text NOT NULL,
    identity    text NOT NULL,
    owner       text NOT NULL,
    subjects    text NOT NULL,
    occurred_at bigint NOT NULL,
    trace       text NOT NULL,
    about       text NOT NULL,
    data        bytea NOT NULL,
    UNIQUE (tenant, event_id)
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 20000, autovacuum_vacuum_cost_delay = 0);
CREATE INDEX outbox_owner ON surehook.outbox (tenant, owner) WHERE owner <> '';

-- The log of attempts, append-only. id is the ULID's 16 bytes.
CREATE TABLE surehook.attempts (
    key          bigint NOT NULL,
    event_key    bigint NOT NULL,
    endpoint_key bigint NOT NULL,
    id           uuid NOT NULL,
    created_at   bigint NOT NULL,
    duration_us  bigint NOT NULL,
    next_due     bigint NOT NULL,
    number       integer NOT NULL,
    http_status  integer NOT NULL,
    resolve_us   integer NOT NULL,
    connect_us   integer NOT NULL,
    tls_us       integer NOT NULL,
    write_us     integer NOT NULL,
    wait_us      integer NOT NULL,
    read_us      integer NOT NULL,
    status       smallint NOT NULL, -- 1 succeeded, 2 failed, 3 dead
    flags        smallint NOT NULL, -- 1 late, 2 test
    code         text NOT NULL,
    error        text NOT NULL,
    response     bytea,
    PRIMARY KEY (event_key, endpoint_key, key)
) PARTITION BY RANGE (key);
CREATE INDEX attempts_endpoint ON surehook.attempts (endpoint_key, key);

CREATE TABLE surehook.dead_letters (
    key          bigint PRIMARY KEY,
    event_key    bigint NOT NULL,
    endpoint_key bigint NOT NULL,
    pending_id   bigint NOT NULL,
    code         text NOT NULL,
    http_status  integer NOT NULL,
    attempts     integer NOT NULL,
    created_at   bigint NOT NULL,
    UNIQUE (event_key, endpoint_key)
);
CREATE INDEX dead_letters_endpoint ON surehook.dead_letters (endpoint_key, key);
CREATE INDEX dead_letters_delivery ON surehook.dead_letters (endpoint_key, event_key);

CREATE TABLE surehook.endpoints (
    key                  bigint PRIMARY KEY,
    id                   text NOT NULL UNIQUE,
    version              bigint NOT NULL,
    changed              bigint NOT NULL, -- counters.config at the last change
    tenant               text NOT NULL,
    partner              text NOT NULL,
    url                  text NOT NULL,
    description          text NOT NULL,
    event_types          text NOT NULL,
    subjects             text NOT NULL,
    identities           text NOT NULL,
    profile              text NOT NULL,
    envelope             text NOT NULL,
    signature            text NOT NULL,
    headers              text NOT NULL, -- JSON object
    limits               text NOT NULL, -- JSON object, durations in ms
    ordered              boolean NOT NULL,
    enabled              boolean NOT NULL,
    disabled_reason      text NOT NULL,
    consecutive_failures integer NOT NULL,
    first_failure_at     bigint NOT NULL,
    last_failure_at      bigint NOT NULL,
    last_success_at      bigint NOT NULL,
    created_at           bigint NOT NULL,
    updated_at           bigint NOT NULL,
    deleted              boolean NOT NULL DEFAULT false,
    made_at              bigint NOT NULL DEFAULT surehook.clock(),
    made_in              pg_snapshot NOT NULL DEFAULT pg_current_snapshot() -- what was committed before it
);
CREATE INDEX endpoints_changed ON surehook.endpoints (changed);
CREATE INDEX endpoints_scope ON surehook.endpoints (tenant, partner) WHERE NOT deleted;
CREATE INDEX endpoints_made ON surehook.endpoints (made_at);

CREATE TABLE surehook.endpoint_secrets (
    endpoint_key    bigint PRIMARY KEY,
    secret_enc      text NOT NULL,
    prev_secret_enc text NOT NULL,
    prev_until      bigint NOT NULL
);

CREATE TABLE surehook.tenants (
    key        bigint PRIMARY KEY,
    id         text NOT NULL UNIQUE,
    name       text NOT NULL,
    partner    text NOT NULL,
    created_at bigint NOT NULL
);

-- When a tenant's partner last changed, by counters.config; also of tenants that
-- are deleted. Nodes follow it.
CREATE TABLE surehook.partner_changes (
    tenant  text PRIMARY KEY,
    changed bigint NOT NULL
);
CREATE INDEX partner_changes_changed ON surehook.partner_changes (changed);

CREATE TABLE surehook.api_keys (
    key          bigint PRIMARY KEY,
    id           text NOT NULL UNIQUE,
    name         text NOT NULL,
    hash         bytea NOT NULL UNIQUE,
    hint         text NOT NULL,
    tenant       text NOT NULL,
    permissions  text NOT NULL,
    created_at   bigint NOT NULL,
    revoked_at   bigint NOT NULL,
    last_used_at bigint NOT NULL
);

CREATE TABLE surehook.event_types (
    name        text COLLATE "C" PRIMARY KEY,
    description text NOT NULL,
    example     bytea,
    schema      bytea,
    validate    boolean NOT NULL,
    created_at  bigint NOT NULL,
    updated_at  bigint NOT NULL
);

CREATE TABLE surehook.replays (
    key          bigint PRIMARY KEY,
    id           text NOT NULL UNIQUE,
    endpoint_key bigint NOT NULL,
    since        bigint NOT NULL,
    until        bigint NOT NULL,
    status       text NOT NULL,
    state        text NOT NULL,
    cursor       bigint NOT NULL,
    scanned      bigint NOT NULL,
    queued       bigint NOT NULL,
    total        bigint NOT NULL,
    error        text NOT NULL,
    created_at   bigint NOT NULL,
    updated_at   bigint NOT NULL
);
CREATE INDEX replays_endpoint ON surehook.replays (endpoint_key, key);
CREATE INDEX replays_running ON surehook.replays (key) WHERE state = 'running';

CREATE TABLE surehook.audit_log (
    key        bigint PRIMARY KEY,
    at         bigint NOT NULL,
    actor      text NOT NULL,
    action     text NOT NULL,
    target     text NOT NULL,
    tenant     text NOT NULL,
    request_id text NOT NULL,
    details    text NOT NULL
);
CREATE INDEX audit_log_tenant ON surehook.audit_log (tenant, key);

-- Answers to requests that carried an Idempotency-Key, sealed by the caller.
CREATE TABLE surehook.idempotency (
    scope        text NOT NULL,
    name         text NOT NULL,
    request_hash bytea NOT NULL,
    answer       bytea NOT NULL,
    created_at   bigint NOT NULL,
    PRIMARY KEY (scope, name)
);
CREATE INDEX idempotency_age ON surehook.idempotency (created_at);
