-- Events of the outbox that the store refuses wait: how often it did, and until when.

-- +goose Up
ALTER TABLE outbox ADD COLUMN refused INTEGER NOT NULL DEFAULT 0;
ALTER TABLE outbox ADD COLUMN retry_at INTEGER NOT NULL DEFAULT 0;

-- +goose Down
ALTER TABLE outbox DROP COLUMN retry_at;
ALTER TABLE outbox DROP COLUMN refused;
