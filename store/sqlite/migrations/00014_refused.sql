-- Since when the store has refused an event of the outbox: retention ends that.

-- +goose Up
ALTER TABLE outbox ADD COLUMN refused_at INTEGER NOT NULL DEFAULT 0;
CREATE INDEX outbox_refused ON outbox (refused_at) WHERE refused > 0;

-- +goose Down
DROP INDEX outbox_refused;
ALTER TABLE outbox DROP COLUMN refused_at;
