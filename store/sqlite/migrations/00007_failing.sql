-- +goose Up
CREATE INDEX endpoints_failing ON endpoints (key) WHERE consecutive_failures >= 10 AND enabled = 1 AND deleted = 0;

-- +goose Down
DROP INDEX endpoints_failing;
