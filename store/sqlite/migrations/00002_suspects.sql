-- Rows that were lost with their process three times go out one at a time: the
-- one that is held, and an endpoint's first one that waits, are found here.

-- +goose Up
CREATE INDEX pending_suspects ON pending (owner, endpoint_key, due) WHERE lost >= 3;

-- +goose Down
DROP INDEX pending_suspects;
