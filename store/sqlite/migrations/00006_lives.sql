-- Partners that may be suspended; how long a tenant's events are kept; and the
-- events that occurred long before or after they were accepted, which a window
-- of time can't find by their keys.

-- +goose Up
CREATE TABLE partners (
    key        INTEGER PRIMARY KEY,
    id         TEXT NOT NULL UNIQUE,
    name       TEXT NOT NULL,
    suspended  INTEGER NOT NULL,
    created_at INTEGER NOT NULL,
    updated_at INTEGER NOT NULL
);
ALTER TABLE tenants ADD COLUMN events_days INTEGER NOT NULL DEFAULT 0;
CREATE INDEX tenants_days ON tenants (id, events_days) WHERE events_days > 0;
CREATE TABLE orphans ( -- events that went before their attempts
    event_key INTEGER PRIMARY KEY,
    at        INTEGER NOT NULL
);
CREATE INDEX orphans_at ON orphans (at);
CREATE INDEX pending_again ON pending (endpoint_key, event_key) WHERE first_attempt > 1; -- replayed
CREATE INDEX events_odd ON events (occurred_at) WHERE abs(occurred_at - created_at) > 3600000;

-- +goose Down
DROP INDEX events_odd;
DROP INDEX pending_again;
DROP TABLE orphans;
DROP INDEX tenants_days;
ALTER TABLE tenants DROP COLUMN events_days;
DROP TABLE partners;
