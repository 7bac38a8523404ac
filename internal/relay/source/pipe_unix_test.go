//go:build unix

package source

import (
	"os"
	"strings"
	"syscall"
	"testing"
)

// A pipe is told, and waited out: opening it would wait for its other end.
func TestTail_Pipe(t *testing.T) {
	run(t, func(b *bench) {
		b.must(syscall.Mkfifo(b.path, 0o600))
		b.start()
		b.readAll()
		if err := b.src.Stuck(); err == nil || !strings.Contains(b.said.String(), "isn't a regular file") {
			t.Errorf("%v\n%s", err, b.said.String())
		}
		b.must(os.Remove(b.path))
		b.write(1)
		b.readAll()
		b.complete()
	})
}
