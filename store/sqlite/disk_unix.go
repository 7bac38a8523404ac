//go:build unix

package sqlite

import "golang.org/x/sys/unix"

// diskFree gives the bytes that are free for us on dir's disk.
func diskFree(dir string) (int64, bool) {
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		return 0, false
	}
	return int64(st.Bavail) * int64(st.Bsize), true //nolint:unconvert // the field's type differs between systems
}
