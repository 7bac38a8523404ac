-- Sessions of the console and of tenants' portals, and links that become one.

-- +goose Up
CREATE TABLE sessions (
    hash        BLOB PRIMARY KEY, -- SHA-256 of the token that the browser holds
    id          TEXT NOT NULL,
    kind        TEXT NOT NULL, -- console, link, portal
    key_hash    BLOB NOT NULL, -- of the API key in whose name it asks
    tenant      TEXT NOT NULL,
    permissions TEXT NOT NULL,
    created_at  INTEGER NOT NULL,
    used_at     INTEGER NOT NULL,
    expires_at  INTEGER NOT NULL
) WITHOUT ROWID;
CREATE INDEX sessions_expires ON sessions (expires_at);

-- +goose Down
DROP TABLE sessions;
