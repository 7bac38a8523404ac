-- What was done to one endpoint is read from the audit log.

-- +goose Up
CREATE INDEX audit_log_target ON audit_log (target, key);

-- +goose Down
DROP INDEX audit_log_target;
