package sqlite

import (
	"os"
	"path/filepath"
	"runtime"
	"testing"
)

// The log beside the file holds events too: in a directory that others may read
// it must be as closed as the file is.
func TestTheLogIsPrivate(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Log("there are no such modes here")
		return
	}
	path := filepath.Join(t.TempDir(), "surehook.db")
	open := reopenable(t, path, Options{FreeFloor: -1})
	for range 2 {
		open()
		for _, file := range []string{path, path + "-wal", path + "-shm"} {
			st, err := os.Stat(file)
			if err != nil {
				t.Fatal(err)
			}
			if st.Mode().Perm() != 0o600 {
				t.Errorf("%s: %v", filepath.Base(file), st.Mode())
			}
		}
	}
}
