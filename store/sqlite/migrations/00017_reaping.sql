-- When sentinels ended, by themselves or with their sessions: they are removed some
-- time after that. Of those that ended before this, it is today.

-- +goose Up
ALTER TABLE sentinels ADD COLUMN ended_at INTEGER NOT NULL DEFAULT 0;
UPDATE sentinels SET ended_at = unixepoch() * 1000 WHERE status = 'expired'
    OR endpoint_key IN (SELECT e.key FROM endpoints e JOIN pull_sessions s ON s.key = e.inbox WHERE e.inbox <> 0 AND s.ended_at > 0);
CREATE INDEX sentinels_ended ON sentinels (ended_at) WHERE ended_at > 0;

-- +goose Down
DROP INDEX sentinels_ended;
ALTER TABLE sentinels DROP COLUMN ended_at;
