-- How far providers that look for events themselves have looked at each subject.

-- +goose Up
CREATE TABLE polls (
    provider  TEXT NOT NULL,
    subject   TEXT NOT NULL,
    sentinels TEXT NOT NULL, -- JSON list of the ids of those that watch it
    state     BLOB NOT NULL,
    due       INTEGER NOT NULL,
    failures  INTEGER NOT NULL,
    error     TEXT NOT NULL,
    PRIMARY KEY (provider, subject)
) WITHOUT ROWID;
CREATE INDEX polls_due ON polls (provider, due);

-- +goose Down
DROP TABLE polls;
