package seal

import (
	"context"
	"errors"

	"github.com/surehook/surehook"
)

// CheckSetting is the setting that tells whether a keyring is the one that seals
// a store's secrets.
const CheckSetting = "master_key_check"

const checkText = "surehook"

// ErrOtherKey says that the store's secrets were sealed under a key that the ring lacks.
var ErrOtherKey = errors.New("the master key isn't the one that sealed this store's secrets: give the key that goes with it; until then deliveries fail with secret_unavailable")

// Check compares the ring with the store's mark, which it makes at first use and
// keeps under the current key.
func (r *Keyring) Check(ctx context.Context, s surehook.Settings) error {
	mark, err := r.Seal("settings", "value", CheckSetting, []byte(checkText))
	if err != nil {
		return err
	}
	stored, err := s.PutSetting(ctx, CheckSetting, []byte(mark), false)
	if err != nil {
		return err
	}
	_, moved, err := r.Reseal("settings", "value", CheckSetting, string(stored))
	if err != nil {
		return ErrOtherKey
	}
	if moved {
		_, err = s.PutSetting(ctx, CheckSetting, []byte(mark), true)
	}
	return err
}
