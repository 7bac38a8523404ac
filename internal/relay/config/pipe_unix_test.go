//go:build unix

package config

import (
	"path/filepath"
	"syscall"
	"testing"
)

// A pipe that nobody writes holds nobody up.
func TestLoad_Pipe(t *testing.T) {
	path := filepath.Join(t.TempDir(), "pipe")
	if err := syscall.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
	_, err := Load(path, env())
	problems(t, err, "0:: isn't a regular file")
	_, err = Parse("r.yaml", []byte("sources: [{type: stdin}]\nsubscribers:\n - {id: a, url: https://a.example/, secret_file: "+path+"}\n"), env())
	problems(t, err, "3:subscribers[0].secret_file: names a file that isn't a regular file")
}
