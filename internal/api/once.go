package api

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"

	"github.com/surehook/surehook"
)

// once gives a repeated request with an Idempotency-Key its first answer. The
// answer may hold a secret, so it is stored sealed.
func once[O any](ctx context.Context, s *server, c *call, what, key string, body any, do func() (*O, error)) (*O, error) {
	if key == "" {
		return do()
	}
	scope := c.key.ID + " " + what
	raw, err := json.Marshal(body)
	if err != nil {
		return nil, err
	}
	sum := sha256.Sum256(raw)
	s.onceMu.Lock() // two at once with one key must not both be the first
	defer s.onceMu.Unlock()
	hash, sealed, err := s.store.Idempotent(ctx, scope, key)
	switch {
	case err != nil:
		return nil, err
	case sealed != nil && string(hash) != string(sum[:]):
		return nil, surehook.Errorf(surehook.Conflict, "this Idempotency-Key was used for another request")
	case sealed != nil:
		plain, err := s.e.OpenAnswer(rowName(scope, key), sealed)
		if err != nil { // the master key was rotated since
			return nil, surehook.Errorf(surehook.Conflict, "this Idempotency-Key was used, and its answer can't be read any more; use another")
		}
		out := new(O)
		return out, json.Unmarshal(plain, out)
	}
	out, err := do()
	if err != nil {
		return nil, err
	}
	plain, err := json.Marshal(out)
	if err != nil {
		return nil, err
	}
	text, err := s.e.SealAnswer(rowName(scope, key), plain)
	if err != nil {
		return nil, err
	}
	if err := s.store.Remember(ctx, scope, key, sum[:], text); err != nil {
		s.log.Warn("an answer couldn't be kept for its Idempotency-Key", "request_id", requestID(ctx), "error", err)
	}
	return out, nil
}

// rowName binds the sealed answer to its key, whatever characters that has.
func rowName(scope, key string) string {
	sum := sha256.Sum256([]byte(scope + "\x00" + key))
	return hex.EncodeToString(sum[:])
}
