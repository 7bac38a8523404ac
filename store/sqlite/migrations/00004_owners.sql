-- The last sequence of each owner, and which owners have events in the outbox.

-- +goose Up
CREATE TABLE owners (
    tenant TEXT NOT NULL,
    owner  TEXT NOT NULL,
    last   INTEGER NOT NULL,
    PRIMARY KEY (tenant, owner)
) WITHOUT ROWID;
CREATE INDEX outbox_owner ON outbox (tenant, owner) WHERE owner <> '';

-- +goose Down
DROP INDEX outbox_owner;
DROP TABLE owners;
