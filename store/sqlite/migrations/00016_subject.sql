-- Who opened a session, where a login provider said so.

-- +goose Up
ALTER TABLE sessions ADD COLUMN subject TEXT NOT NULL DEFAULT '';

-- +goose Down
ALTER TABLE sessions DROP COLUMN subject;
