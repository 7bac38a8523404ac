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
INSERT INTO surehook.counters (name, value) VALUES ('config', 0), ('asleep', 0), ('health', 0), ('erased', 0), ('aliases', 0);

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
    expires_at bigint NOT NULL,
    place      text NOT NULL -- one process at a time has it; empty: none
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
    partner     text NOT NULL,
    alias       text NOT NULL, -- the webhook-id for those who see the event that had the id before
    api_version text NOT NULL, -- of the pylota envelope, so that a body stays as it is
    data        bytea,
    PRIMARY KEY (key)
) PARTITION BY RANGE (key);
CREATE INDEX events_tenant ON surehook.events (tenant, key) WHERE tenant <> '';
-- Those that occurred long before or after they were accepted: a window of time
-- can't find them by their keys.
CREATE INDEX events_odd ON surehook.events (occurred_at) WHERE abs(occurred_at - created_at) > 3600000;
CREATE INDEX events_partner ON surehook.events (partner, key) WHERE partner <> '';

-- Ids are unique over all partitions, by tenant: id is an event's, and where another
-- tenant's has it, the id, a space and the tenant (neither can hold a space). So
-- one of several that are added at once is the first. hash tells a repeat from a
-- conflict.
CREATE TABLE surehook.event_keys (
    id     text COLLATE "C" NOT NULL,
    tenant text NOT NULL,
    key    bigint NOT NULL,
    hash   bytea NOT NULL,
    PRIMARY KEY (id)
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
-- inbox and number are its place where it waits to be pulled; it is due then until
-- it has one.
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
    inbox         bigint,
    number        bigint,
    PRIMARY KEY (event_key, endpoint_key)
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 20000, autovacuum_vacuum_cost_delay = 0,
    autovacuum_analyze_scale_factor = 0, autovacuum_analyze_threshold = 50000);
CREATE INDEX pending_due ON surehook.pending (endpoint_key, due, event_key) WHERE owner IS NULL;
CREATE INDEX pending_order ON surehook.pending (endpoint_key, order_key, sequence) WHERE order_key IS NOT NULL;
CREATE INDEX pending_order_out ON surehook.pending (endpoint_key, order_key) WHERE order_key IS NOT NULL AND owner IS NOT NULL;
CREATE INDEX pending_again ON surehook.pending (endpoint_key, event_key) WHERE first_attempt > 1; -- replayed
CREATE INDEX pending_inbox ON surehook.pending (inbox, number) INCLUDE (size) WHERE inbox IS NOT NULL;
CREATE INDEX pending_suspect ON surehook.pending (owner) WHERE lost >= 3;

-- Events whose endpoints are still to be chosen. xid tells which endpoints are
-- older than the commit that brought the row. Ids aren't unique here: a caller
-- must not wait for another one's transaction. hash tells a repeat, as in
-- event_keys, and the fan-out has the last word.
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
    partner     text NOT NULL DEFAULT '',
    refused     integer NOT NULL DEFAULT 0,
    refused_at  bigint NOT NULL DEFAULT 0,
    retry_at    bigint NOT NULL DEFAULT 0,
    hash        bytea NOT NULL,
    data        bytea NOT NULL
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 20000, autovacuum_vacuum_cost_delay = 0);
CREATE INDEX outbox_event ON surehook.outbox (event_id, tenant);
CREATE INDEX outbox_refused ON surehook.outbox (refused_at) WHERE refused > 0;
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
-- Attempts are appended in the order of their keys, which are times: a few pages say
-- which of them hold a window.
CREATE INDEX attempts_time ON surehook.attempts USING brin (key) WITH (pages_per_range = 32, autosummarize = on);

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
    inbox                bigint NOT NULL DEFAULT 0,
    urgency              text NOT NULL DEFAULT '',
    made_at              bigint NOT NULL DEFAULT surehook.clock(),
    made_in              pg_snapshot NOT NULL DEFAULT pg_current_snapshot() -- what was committed before it
);
CREATE INDEX endpoints_paused ON surehook.endpoints (key) WHERE limits LIKE '%"paused":true%'; -- what is due there is held
CREATE INDEX endpoints_changed ON surehook.endpoints (changed);
CREATE INDEX endpoints_scope ON surehook.endpoints (tenant, partner) WHERE NOT deleted;
CREATE INDEX endpoints_failing ON surehook.endpoints (key) WHERE consecutive_failures >= 10 AND enabled AND NOT deleted;
CREATE INDEX endpoints_inbox ON surehook.endpoints (inbox) WHERE inbox <> 0 AND NOT deleted;
CREATE INDEX endpoints_made ON surehook.endpoints (made_at);

CREATE TABLE surehook.endpoint_secrets (
    endpoint_key    bigint PRIMARY KEY,
    secret_enc      text NOT NULL,
    prev_secret_enc text NOT NULL,
    prev_until      bigint NOT NULL
);

-- Where events wait to be pulled: an endpoint's own or a session's, by its key.
-- Whoever gives out numbers has the row locked.
CREATE TABLE surehook.inboxes (
    key     bigint PRIMARY KEY,
    last    bigint NOT NULL DEFAULT 0, -- the last number that was given out
    dropped bigint NOT NULL DEFAULT 0  -- rows that left it unfinished
);

CREATE TABLE surehook.pull_sessions (
    key        bigint PRIMARY KEY, -- also of its inbox
    tenant     text NOT NULL,
    partner    text NOT NULL,
    id         text NOT NULL,
    created_at bigint NOT NULL,
    seen_at    bigint NOT NULL,
    ended_at   bigint NOT NULL,
    end_reason text NOT NULL
);
CREATE UNIQUE INDEX pull_sessions_live ON surehook.pull_sessions (tenant, partner, id) WHERE ended_at = 0;
CREATE INDEX pull_sessions_id ON surehook.pull_sessions (tenant, partner, id, key);
CREATE INDEX pull_sessions_seen ON surehook.pull_sessions (seen_at) WHERE ended_at = 0;
CREATE INDEX pull_sessions_ended ON surehook.pull_sessions (ended_at) WHERE ended_at > 0;

-- Sentinels, each beside the endpoint of the same key; which events were theirs; and
-- the watches of those that ended, until their providers have cancelled them.
CREATE TABLE surehook.sentinels (
    endpoint_key  bigint PRIMARY KEY,
    clauses       text NOT NULL, -- JSON [{"subject":…,"types":[…]}]
    until_kind    text NOT NULL,
    until_at      bigint NOT NULL,
    until_count   bigint NOT NULL,
    status        text NOT NULL,
    ended         text NOT NULL,
    settled       boolean NOT NULL, -- false: it ended, and not all that follows is done
    provider      text NOT NULL,
    watch         text NOT NULL,
    grouping      text NOT NULL,
    label         text NOT NULL,
    session       text NOT NULL,
    principal     text NOT NULL,
    events        bigint NOT NULL,
    last_event_at bigint NOT NULL,
    last_error    text NOT NULL,
    created_at    bigint NOT NULL,
    ended_at      bigint NOT NULL DEFAULT 0 -- when it expired, or its session ended
) WITH (fillfactor = 80);
CREATE INDEX sentinels_at ON surehook.sentinels (until_at) WHERE until_kind = 'at' AND status <> 'expired';
CREATE INDEX sentinels_unsettled ON surehook.sentinels (endpoint_key) WHERE NOT settled;
CREATE INDEX sentinels_ended ON surehook.sentinels (ended_at) WHERE ended_at > 0;
CREATE INDEX sentinels_session ON surehook.sentinels (session, endpoint_key) WHERE session <> '';

CREATE TABLE surehook.sentinel_events (
    endpoint_key bigint NOT NULL,
    event_id     text NOT NULL,
    tenant       text NOT NULL,
    event_key    bigint NOT NULL,
    PRIMARY KEY (endpoint_key, event_id, tenant)
);
CREATE INDEX sentinel_events_key ON surehook.sentinel_events (endpoint_key, event_key);

CREATE TABLE surehook.watch_cancels (
    key      bigint PRIMARY KEY,
    provider text NOT NULL,
    watch    text NOT NULL,
    tries    integer NOT NULL,
    retry_at bigint NOT NULL
);
CREATE INDEX watch_cancels_due ON surehook.watch_cancels (retry_at);

CREATE TABLE surehook.tenants (
    key         bigint PRIMARY KEY,
    id          text NOT NULL UNIQUE,
    name        text NOT NULL,
    partner     text NOT NULL,
    events_days integer NOT NULL DEFAULT 0, -- how long its events are kept; 0: as everybody's
    created_at  bigint NOT NULL
);
CREATE INDEX tenants_partner ON surehook.tenants (partner, key) WHERE partner <> '';
CREATE INDEX tenants_days ON surehook.tenants (id) WHERE events_days > 0;

CREATE TABLE surehook.partners (
    key        bigint PRIMARY KEY,
    id         text NOT NULL UNIQUE,
    name       text NOT NULL,
    suspended  boolean NOT NULL,
    created_at bigint NOT NULL,
    updated_at bigint NOT NULL
);

-- How far providers that look for events themselves have looked at each subject.
CREATE TABLE surehook.polls (
    provider  text NOT NULL,
    subject   text NOT NULL,
    sentinels text NOT NULL, -- JSON list of the ids of those that watch it
    state     bytea NOT NULL,
    due       bigint NOT NULL,
    failures  integer NOT NULL,
    error     text NOT NULL,
    PRIMARY KEY (provider, subject)
);
CREATE INDEX polls_due ON surehook.polls (provider, due);

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
    partner      text NOT NULL,
    permissions  text NOT NULL,
    created_at   bigint NOT NULL,
    revoked_at   bigint NOT NULL,
    last_used_at bigint NOT NULL
);

-- Sessions of the console and of tenants' portals, and links that become one.
CREATE TABLE surehook.sessions (
    hash        bytea PRIMARY KEY, -- SHA-256 of the token that the browser holds
    id          text NOT NULL,
    kind        text NOT NULL, -- console, link, portal
    key_hash    bytea NOT NULL, -- of the API key in whose name it asks, or of a rule of who may sign in
    subject     text NOT NULL, -- who, as a login provider says; empty: whoever holds the key
    tenant      text NOT NULL,
    permissions text NOT NULL,
    created_at  bigint NOT NULL,
    used_at     bigint NOT NULL,
    expires_at  bigint NOT NULL
);
CREATE INDEX sessions_expires ON surehook.sessions (expires_at);

CREATE TABLE surehook.event_types (
    name        text COLLATE "C" PRIMARY KEY,
    description text NOT NULL,
    example     bytea,
    schema      bytea,
    validate    boolean NOT NULL,
    requires    text NOT NULL, -- permission of a key that subscribes or replays
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
CREATE INDEX audit_log_target ON surehook.audit_log (target, key);

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

-- +goose StatementBegin
-- A ULID: the time, and 80 random bits, which are those of a UUID before and
-- after the ones that it has in common with all others.
CREATE FUNCTION surehook.ulid(ms bigint) RETURNS text LANGUAGE plpgsql VOLATILE SET standard_conforming_strings = on AS $$
DECLARE
    random constant text := encode(uuid_send(gen_random_uuid()), 'hex');
    parts constant bigint[] := ARRAY[ms, ('x' || substr(random, 1, 10))::bit(40)::bigint, ('x' || substr(random, 23, 10))::bit(40)::bigint];
    out text := '';
BEGIN
    FOR part IN 1..3 LOOP
        FOR shift IN REVERSE CASE part WHEN 1 THEN 45 ELSE 35 END..0 BY 5 LOOP
            out := out || substr('0123456789ABCDEFGHJKMNPQRSTVWXYZ', ((parts[part] >> shift) & 31)::int + 1, 1);
        END LOOP;
    END LOOP;
    RETURN out;
END
$$;
-- +goose StatementEnd

-- +goose StatementBegin
-- What tells an event's content from another's: surehook.Event.ContentHash of the
-- Go code. Each part follows its length, little-endian.
CREATE FUNCTION surehook.content_hash(parts bytea[]) RETURNS bytea LANGUAGE plpgsql IMMUTABLE SET standard_conforming_strings = on AS $$
DECLARE
    part bytea;
    bytes bytea := '';
BEGIN
    FOREACH part IN ARRAY parts LOOP
        bytes := bytes || set_byte(set_byte(set_byte('\x0000000000000000'::bytea, 0, length(part) & 255), 1, (length(part) >> 8) & 255),
            2, (length(part) >> 16) & 255) || part;
    END LOOP;
    RETURN substr(sha256(bytes), 1, 16);
END
$$;
-- +goose StatementEnd

-- +goose StatementBegin
-- Adds an event in the caller's own transaction, and gives its id. It waits for
-- nobody, and nobody waits for it: endpoints are chosen, and sequences given out,
-- after the commit. What it refuses is what package internal/accept refuses.
CREATE FUNCTION surehook.enqueue(type text, data json, tenant text DEFAULT '', id text DEFAULT NULL, owner text DEFAULT '',
    identity text DEFAULT '', subjects text[] DEFAULT '{}', occurred_at timestamptz DEFAULT NULL, trace text DEFAULT '') RETURNS text
    LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET standard_conforming_strings = on AS $$
#variable_conflict use_variable
DECLARE
    given constant boolean := coalesce(id, '') <> '';
    now constant bigint := surehook.clock();
    bytes constant bytea := convert_to(data::text, 'UTF8');
    list constant text[] := coalesce(subjects, '{}');
    subject text;
    parts bytea[];
    problem text[];
    hash bytea;
    known bytea;
BEGIN
    tenant := coalesce(tenant, '');
    owner := coalesce(owner, '');
    identity := coalesce(identity, '');
    problem := CASE
        WHEN coalesce(type, '') = '' THEN ARRAY['type', 'is required']
        WHEN length(type) > 128 OR type COLLATE "C" !~ '^[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*$'
            THEN ARRAY['type', 'must be dotted names of letters, digits, - and _, at most 128 characters']
        WHEN type IN ('webhook.test', 'webhook.disabled') THEN ARRAY['type', 'is one that only surehook itself emits']
        WHEN given AND id COLLATE "C" !~ '^[A-Za-z0-9_:-]{1,200}$'
            THEN ARRAY['id', 'must be at most 200 characters of A-Z a-z 0-9 _ : - (no dot)']
        WHEN occurred_at < '0001-01-01 00:00:00+00'::timestamptz OR occurred_at >= '10000-01-01 00:00:00+00'::timestamptz
            THEN ARRAY['occurred_at', 'must lie in the years 1 to 9999']
        WHEN bytes IS NULL THEN ARRAY['data', 'is required; it may be any JSON value']
        WHEN length(bytes) > 1048576 THEN ARRAY['data', 'is over 1048576 bytes']
        WHEN tenant COLLATE "C" !~ '^[!-~]{0,200}$' THEN ARRAY['tenant', 'must be at most 200 printable ASCII characters without spaces']
        WHEN identity COLLATE "C" !~ '^[!-~]{0,200}$' THEN ARRAY['identity', 'must be at most 200 printable ASCII characters without spaces']
        WHEN owner COLLATE "C" !~ '^[!-~]{0,200}$' THEN ARRAY['owner', 'must be at most 200 printable ASCII characters without spaces']
        WHEN cardinality(list) > 16 THEN ARRAY['subjects', 'holds more than 16']
        WHEN array_ndims(list) > 1 THEN ARRAY['subjects', 'must be a list of texts of 1 to 256 bytes']
    END;
    parts := ARRAY[convert_to(type, 'UTF8'), convert_to(tenant, 'UTF8'), convert_to(identity, 'UTF8'), convert_to(owner, 'UTF8'), ''::bytea];
    FOREACH subject IN ARRAY list LOOP
        parts := parts || convert_to(subject, 'UTF8');
        IF coalesce(length(parts[cardinality(parts)]), 0) NOT BETWEEN 1 AND 256 THEN
            problem := coalesce(problem, ARRAY['subjects', 'must be a list of texts of 1 to 256 bytes']);
        END IF;
    END LOOP;
    IF problem IS NOT NULL THEN
        RAISE EXCEPTION USING ERRCODE = '22023', MESSAGE = 'the event is invalid: ' || problem[1] || ': ' || problem[2], COLUMN = problem[1];
    END IF;
    IF coalesce(trace, '') COLLATE "C" !~ '^[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}$' THEN
        trace := '';
    END IF;
    hash := surehook.content_hash(parts || bytes);
    IF given THEN
        SELECT x.hash INTO known FROM (
            SELECT k.hash, 0 AS place FROM surehook.event_keys k WHERE k.id IN (enqueue.id, enqueue.id || ' ' || enqueue.tenant) AND k.tenant = enqueue.tenant
            UNION ALL SELECT b.hash, b.id FROM surehook.outbox b WHERE b.event_id = enqueue.id AND b.tenant = enqueue.tenant
        ) x ORDER BY x.place LIMIT 1;
        IF known = hash THEN
            RETURN id; -- it is there already
        ELSIF known IS NOT NULL THEN
            RAISE EXCEPTION USING ERRCODE = 'unique_violation', COLUMN = 'id', MESSAGE = 'an event with this id and other content exists',
                HINT = 'Give each event an id of its own, or none.';
        END IF;
    ELSE
        id := 'evt_' || surehook.ulid(now);
    END IF;
    INSERT INTO surehook.outbox (created_at, tenant, event_id, type, identity, owner, subjects, occurred_at, trace, about, hash, data)
        VALUES (now, tenant, id, type, identity, owner, to_json(list)::text,
            coalesce(floor(extract(epoch FROM occurred_at) * 1000)::bigint, now), trace, '', hash, bytes);
    -- A notice at each commit would halve the callers' rate: only a fan-out that
    -- sleeps is woken, and its slow poll stands behind.
    IF (SELECT c.value FROM surehook.counters c WHERE c.name = 'asleep') = 1 THEN
        PERFORM pg_notify((SELECT n.nspname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
            WHERE c.oid = 'surehook.outbox'::regclass), 'outbox');
    END IF;
    RETURN id;
END
$$;
-- +goose StatementEnd

REVOKE ALL ON FUNCTION surehook.clock, surehook.ulid, surehook.content_hash, surehook.enqueue FROM PUBLIC;

-- +goose StatementBegin
-- Whoever is to add events gets USAGE of the schema and EXECUTE of enqueue, and
-- needs nothing else. Defaults of the database may have given PUBLIC more.
DO $$
DECLARE
    schema constant name := (SELECT n.nspname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
        WHERE c.oid = 'surehook.outbox'::regclass);
BEGIN
    IF schema = 'public' THEN
        RETURN; -- it is not ours alone
    END IF;
    EXECUTE format('REVOKE ALL ON SCHEMA %I FROM PUBLIC', schema);
    EXECUTE format('REVOKE ALL ON ALL TABLES IN SCHEMA %I FROM PUBLIC', schema);
    EXECUTE format('REVOKE ALL ON ALL SEQUENCES IN SCHEMA %I FROM PUBLIC', schema);
END
$$;
-- +goose StatementEnd
