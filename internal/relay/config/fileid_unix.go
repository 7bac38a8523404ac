//go:build unix

package config

import (
	"os"
	"syscall"
)

// fileID tells a file from another that took its name.
func fileID(fi os.FileInfo) uint64 {
	if st, ok := fi.Sys().(*syscall.Stat_t); ok {
		return st.Ino
	}
	return 0
}
