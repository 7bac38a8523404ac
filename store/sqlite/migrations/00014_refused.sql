-- Since when the store has refused an event of the outbox: retention ends that. And
-- which endpoints are paused: what is due there is held.

-- +goose Up
ALTER TABLE outbox ADD COLUMN refused_at INTEGER NOT NULL DEFAULT 0;
CREATE INDEX outbox_refused ON outbox (refused_at) WHERE refused > 0;
CREATE INDEX endpoints_paused ON endpoints (key) WHERE limits LIKE '%"paused":true%';

-- +goose Down
DROP INDEX endpoints_paused;
DROP INDEX outbox_refused;
ALTER TABLE outbox DROP COLUMN refused_at;
