package pgserver

import (
	"os"

	"golang.org/x/sys/unix"
)

const (
	shm      = "/dev/shm"
	tmpfs    = 0x01021994
	shmSpare = 4 << 30 // bytes that must be free: containers often have 64 MB in all
)

// memory is a folder that is in memory and has much room, else "". Whoever names
// a folder for temporary files (TMPDIR) gets that one.
func memory() string {
	if os.Getenv("TMPDIR") != "" {
		return ""
	}
	var st unix.Statfs_t
	if err := unix.Statfs(shm, &st); err != nil || st.Type != tmpfs || st.Bavail*uint64(st.Bsize) < shmSpare {
		return ""
	}
	dir, err := os.MkdirTemp(shm, "surehook-try-")
	if err != nil {
		return ""
	}
	_ = os.Remove(dir) // empty
	return shm
}
