package seal

import (
	"context"
	"fmt"
	"io"

	"github.com/surehook/surehook"
)

// EventIDKey is the setting that holds the key of the ids which are a function of
// what caused the event.
const EventIDKey = "event_id_key"

// Setting gives 32 random bytes that are made at first use and kept sealed, and
// brings them under the current key. Where no key of the ring opens them they are
// made anew if lost, else the error is ErrOtherKey.
func (r *Keyring) Setting(ctx context.Context, s surehook.Settings, name string, lost bool) ([]byte, error) {
	fresh := make([]byte, keySize)
	r.mu.Lock()
	_, err := io.ReadFull(r.rand, fresh)
	r.mu.Unlock()
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	sealed, err := r.Seal("settings", "value", name, fresh)
	if err != nil {
		return nil, err
	}
	stored, err := s.PutSetting(ctx, name, []byte(sealed), false)
	if err != nil {
		return nil, err
	}
	if len(stored) == keySize { // of a version that didn't seal them; a sealed value is longer
		return r.keep(ctx, s, name, stored)
	}
	plain, err := r.Open("settings", "value", name, string(stored))
	switch {
	case err != nil && lost:
		return r.keep(ctx, s, name, fresh)
	case err != nil:
		return nil, ErrOtherKey
	}
	if id, err := KeyID(string(stored)); err == nil && id == r.current {
		return plain, nil
	}
	return r.keep(ctx, s, name, plain)
}

func (r *Keyring) keep(ctx context.Context, s surehook.Settings, name string, plain []byte) ([]byte, error) {
	sealed, err := r.Seal("settings", "value", name, plain)
	if err == nil {
		_, err = s.PutSetting(ctx, name, []byte(sealed), true)
	}
	return plain, err
}
