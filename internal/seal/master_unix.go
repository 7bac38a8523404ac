//go:build !windows

package seal

import (
	"errors"
	"io/fs"
	"os"
)

// loose reports whether anyone but the owner has a right to the file.
func loose(mode fs.FileMode) bool { return mode&0o077 != 0 }

// syncDir makes the name of a new file survive a crash.
func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
