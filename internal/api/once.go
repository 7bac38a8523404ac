package api

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"sync"
	"time"

	"github.com/surehook/surehook"
)

// Once is what every request takes that changes something and isn't repeatable
// by itself.
type Once struct {
	IdempotencyKey string `header:"Idempotency-Key" maxLength:"255" doc:"A repeat within a day gets the same answer, a secret in it included, and the header Idempotency-Replayed"`
}

// Replayed is the header of an answer that was given before.
const Replayed = "Idempotency-Replayed"

// once gives a repeated request with an Idempotency-Key its first answer. The
// answer may hold a secret, so it is stored sealed. what names the request's
// route and resource.
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
	name := rowName(scope, key)
	leave, err := s.flights.enter(ctx, name) // two at once with one key must not both be the first
	if err != nil {
		return nil, err
	}
	defer leave()
	hash, sealed, err := s.reserve(ctx, scope, key, sum[:])
	switch {
	case err != nil:
		return nil, err
	case hash != nil && string(hash) != string(sum[:]):
		return nil, surehook.Errorf(surehook.Conflict, "this Idempotency-Key was used for another request")
	case hash != nil && len(sealed) == 0:
		return nil, surehook.Errorf(surehook.Conflict, "a request with this Idempotency-Key is under way; try again in a moment, or in two minutes if its server ended meanwhile")
	case hash != nil:
		plain, err := s.e.OpenAnswer(name, sealed)
		if err != nil { // the master key was rotated since
			return nil, surehook.Errorf(surehook.Conflict, "this Idempotency-Key was used, and its answer can't be read any more; use another")
		}
		c.head.Set(Replayed, "true")
		out := new(O)
		return out, json.Unmarshal(plain, out)
	}
	out, err := do()
	if err != nil {
		if gave := s.store.Unreserve(context.WithoutCancel(ctx), scope, key); gave != nil {
			s.log.Warn("an Idempotency-Key stays reserved for two minutes", "request_id", requestID(ctx), "error", gave)
		}
		return nil, err
	}
	s.remember(ctx, scope, key, name, sum[:], out)
	return out, nil
}

// underWay is how long a repeat waits for the request before it, which another
// node may be at.
const underWay = 5 * time.Second

// reserve takes a key for this request, or gives what became of the one before.
func (s *server) reserve(ctx context.Context, scope, key string, sum []byte) (hash, sealed []byte, err error) {
	give := time.After(underWay)
	for {
		hash, sealed, err = s.store.Reserve(ctx, scope, key, sum)
		if err != nil || hash == nil || len(sealed) > 0 || string(hash) != string(sum) {
			return hash, sealed, err
		}
		select {
		case <-time.After(100 * time.Millisecond):
		case <-give:
			return hash, sealed, nil
		case <-ctx.Done():
			return nil, nil, ctx.Err()
		}
	}
}

// remember keeps an answer. What was asked for is done by now, so a failure is
// logged and not answered.
func (s *server) remember(ctx context.Context, scope, key, name string, hash []byte, out any) {
	plain, err := json.Marshal(out)
	var sealed []byte
	if err == nil {
		sealed, err = s.e.SealAnswer(name, plain)
	}
	if err == nil {
		err = s.store.Remember(context.WithoutCancel(ctx), scope, key, hash, sealed)
	}
	if err != nil {
		s.log.Warn("an answer couldn't be kept for its Idempotency-Key", "request_id", requestID(ctx), "error", err)
	}
}

// rowName binds the sealed answer to its key, whatever characters that has.
func rowName(scope, key string) string {
	sum := sha256.Sum256([]byte(scope + "\x00" + key))
	return hex.EncodeToString(sum[:])
}

// flights lets one request of a name through at a time, and none wait for those
// of other names: a test delivery may take a minute.
type flights struct {
	mu sync.Mutex
	in map[string]chan struct{}
}

func (f *flights) enter(ctx context.Context, name string) (leave func(), err error) {
	for {
		f.mu.Lock()
		busy, ok := f.in[name]
		if !ok {
			if f.in == nil {
				f.in = make(map[string]chan struct{})
			}
			mine := make(chan struct{})
			f.in[name] = mine
			f.mu.Unlock()
			return func() { f.leave(name, mine) }, nil
		}
		f.mu.Unlock()
		select {
		case <-busy:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

func (f *flights) leave(name string, mine chan struct{}) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.in, name)
	close(mine)
}
