-- Events that wait to be pulled. inbox and number are a row's place where it does;
-- it is due until it has one. size is that of its event's data.

-- +goose Up
ALTER TABLE endpoints ADD COLUMN inbox INTEGER NOT NULL DEFAULT 0;
ALTER TABLE endpoints ADD COLUMN urgency TEXT NOT NULL DEFAULT '';
CREATE INDEX endpoints_inbox ON endpoints (inbox) WHERE inbox <> 0 AND deleted = 0;
ALTER TABLE pending ADD COLUMN inbox INTEGER;
ALTER TABLE pending ADD COLUMN number INTEGER;
ALTER TABLE pending ADD COLUMN size INTEGER;
CREATE INDEX pending_inbox ON pending (inbox, number, size) WHERE inbox IS NOT NULL;
CREATE TABLE inboxes (
    key     INTEGER PRIMARY KEY, -- the endpoint's or session's
    last    INTEGER NOT NULL DEFAULT 0, -- the last number that was given out
    dropped INTEGER NOT NULL DEFAULT 0  -- rows that left it unfinished
);
CREATE TABLE pull_sessions (
    key        INTEGER PRIMARY KEY, -- also of its inbox
    tenant     TEXT NOT NULL,
    partner    TEXT NOT NULL,
    id         TEXT NOT NULL,
    created_at INTEGER NOT NULL,
    seen_at    INTEGER NOT NULL,
    ended_at   INTEGER NOT NULL,
    end_reason TEXT NOT NULL
);
CREATE UNIQUE INDEX pull_sessions_live ON pull_sessions (tenant, partner, id) WHERE ended_at = 0;
CREATE INDEX pull_sessions_id ON pull_sessions (tenant, partner, id, key);
CREATE INDEX pull_sessions_seen ON pull_sessions (seen_at) WHERE ended_at = 0;
CREATE INDEX pull_sessions_ended ON pull_sessions (ended_at) WHERE ended_at > 0;

-- +goose Down
DROP TABLE pull_sessions;
DROP TABLE inboxes;
DROP INDEX pending_inbox;
ALTER TABLE pending DROP COLUMN size;
ALTER TABLE pending DROP COLUMN number;
ALTER TABLE pending DROP COLUMN inbox;
DROP INDEX endpoints_inbox;
ALTER TABLE endpoints DROP COLUMN urgency;
ALTER TABLE endpoints DROP COLUMN inbox;
