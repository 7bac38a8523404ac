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
var ErrOtherKey = errors.New("the master key isn't the one that sealed this store's secrets: give the one that goes with it, the same on every node; " +
	"if it is lost, start once with --master-key-lost and rotate the secret of every webhook")

// Check compares the ring with the store's mark, which it makes at first use and
// keeps under the current key. lost takes the ring for the store's from now on.
func (r *Keyring) Check(ctx context.Context, s surehook.Settings, lost bool) error {
	mark, err := r.Seal("settings", "value", CheckSetting, []byte(checkText))
	if err != nil {
		return err
	}
	stored, err := s.PutSetting(ctx, CheckSetting, []byte(mark), false)
	if err != nil {
		return err
	}
	_, moved, err := r.Reseal("settings", "value", CheckSetting, string(stored))
	if err != nil && !lost {
		return ErrOtherKey
	}
	if moved || err != nil {
		_, err = s.PutSetting(ctx, CheckSetting, []byte(mark), true)
	}
	return err
}
