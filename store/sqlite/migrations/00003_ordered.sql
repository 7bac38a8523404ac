-- Ordered endpoints. order_key names the sequence that a row waits in; the
-- second index finds the one of a sequence that is out.

-- +goose Up
ALTER TABLE endpoints ADD COLUMN ordered INTEGER NOT NULL DEFAULT 0;
ALTER TABLE pending ADD COLUMN order_key INTEGER;
ALTER TABLE pending ADD COLUMN sequence INTEGER NOT NULL DEFAULT 0;
CREATE INDEX pending_order ON pending (endpoint_key, order_key, sequence) WHERE order_key IS NOT NULL;
CREATE INDEX pending_order_out ON pending (endpoint_key, order_key) WHERE order_key IS NOT NULL AND owner IS NOT NULL;

-- +goose Down
DROP INDEX pending_order_out;
DROP INDEX pending_order;
ALTER TABLE pending DROP COLUMN sequence;
ALTER TABLE pending DROP COLUMN order_key;
ALTER TABLE endpoints DROP COLUMN ordered;
