-- Keys of a partner's, permissions that event types require, the partner that
-- sees an event, and what fixes its body and webhook-id when it is accepted. The
-- events' table is made anew: what comes behind data is read through all of it.

-- +goose Up
ALTER TABLE api_keys ADD COLUMN partner TEXT NOT NULL DEFAULT '';
ALTER TABLE event_types ADD COLUMN requires TEXT NOT NULL DEFAULT '';
ALTER TABLE outbox ADD COLUMN partner TEXT NOT NULL DEFAULT '';
CREATE INDEX tenants_partner ON tenants (partner, key) WHERE partner <> '';
CREATE TABLE events_new (
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
    partner     TEXT NOT NULL,
    alias       TEXT NOT NULL, -- the webhook-id for those who see the event that had the id before
    api_version TEXT NOT NULL, -- of the pylota envelope, so that a body stays as it is
    hash        BLOB NOT NULL,
    data        BLOB
);
INSERT INTO events_new SELECT e.key, e.tenant, e.id, e.type, e.identity, e.owner, e.sequence, e.subjects, e.occurred_at, e.created_at, e.trace, e.about,
    ifnull((SELECT t.partner FROM tenants t WHERE t.id = e.tenant), ''), '', '2026-10-01', e.hash, e.data FROM events e;
DROP TABLE events;
ALTER TABLE events_new RENAME TO events;
-- Of the events with one id, one has no alias: its id is its own everywhere.
CREATE UNIQUE INDEX events_id ON events (id) WHERE alias = '';
CREATE UNIQUE INDEX events_alias ON events (id, tenant) WHERE alias <> '';
CREATE INDEX events_tenant ON events (tenant) WHERE tenant <> '';
CREATE INDEX events_partner ON events (partner) WHERE partner <> '';

-- +goose Down
DROP INDEX events_partner;
DROP INDEX events_alias;
DROP INDEX events_id;
CREATE UNIQUE INDEX events_id ON events (id, tenant);
ALTER TABLE events DROP COLUMN api_version;
ALTER TABLE events DROP COLUMN alias;
ALTER TABLE events DROP COLUMN partner;
DROP INDEX tenants_partner;
ALTER TABLE outbox DROP COLUMN partner;
ALTER TABLE event_types DROP COLUMN requires;
ALTER TABLE api_keys DROP COLUMN partner;
