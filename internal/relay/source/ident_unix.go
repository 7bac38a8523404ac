//go:build unix

package source

import (
	"os"
	"syscall"
)

// ident is what tells files apart as long as they are there.
type ident struct {
	Dev uint64 `json:"dev"`
	Ino uint64 `json:"ino"`
}

func identOf(fi os.FileInfo) ident {
	if st, ok := fi.Sys().(*syscall.Stat_t); ok {
		return ident{uint64(st.Dev), st.Ino} //nolint:unconvert // the type differs between systems
	}
	return ident{}
}
