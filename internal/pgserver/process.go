package pgserver

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"time"
)

// process is a running postmaster with its children.
type process struct {
	cmd  *exec.Cmd
	died chan struct{} // closed when the postmaster has ended
	gone chan struct{} // closed when its children have ended too
	err  error         // how the postmaster ended; read it after died
}

// launch starts a postmaster. Its children inherit the write end of a pipe from
// it, and hold it open for as long as one of them lives: that tells on every
// Unix when the last is gone, without a race.
func launch(cmd *exec.Cmd) (*process, error) {
	r, w, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	cmd.ExtraFiles = []*os.File{w}
	p := &process{cmd: cmd, died: make(chan struct{}), gone: make(chan struct{})}
	started := make(chan error, 1)
	go p.run(r, w, started)
	if err := <-started; err != nil {
		return nil, err
	}
	return p, nil
}

// run keeps one thread from the start to the end: the kernel sends the signal
// for a dead parent when the thread ends that started the child.
func (p *process) run(r, w *os.File, started chan<- error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	defer r.Close()
	err := p.cmd.Start()
	_ = w.Close() // our copy; the server has its own
	started <- err
	if err != nil {
		return
	}
	p.err = p.cmd.Wait()
	close(p.died)
	_, _ = io.Copy(io.Discard, r) // ends when the last child does; nobody writes
	close(p.gone)
}

func (p *process) running() bool {
	select {
	case <-p.died:
		return false
	default:
		return true
	}
}

// await waits until the whole server is gone, or for d; it says whether it is.
func (p *process) await(d time.Duration) bool {
	select {
	case <-p.gone:
		return true
	case <-time.After(d):
		return false
	}
}

// command prepares a program of PostgreSQL to run as the server's user in the
// server's folder, untouched by the environment's settings for clients.
func (s *Server) command(ctx context.Context, program string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, s.program(program), args...) //nolint:gosec // a program that Find found
	cmd.Dir = s.dir
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + s.dir, "LC_ALL=C", "TZ=UTC"}
	cmd.SysProcAttr = s.user.attr()
	return cmd
}

// run runs a program to its end; the error has what it said.
func (s *Server) run(ctx context.Context, program string, args ...string) error {
	out, err := s.command(ctx, program, args...).CombinedOutput()
	if ctx.Err() != nil {
		err = ctx.Err()
	}
	if err == nil {
		return nil
	}
	hint := ""
	if errors.Is(err, os.ErrPermission) {
		hint = fmt.Sprintf("; user %s must be able to reach %s and %s: name another place for the server in Config.Dir or TMPDIR", s.user.name, s.bin, s.dir)
	}
	return fmt.Errorf("pgserver: %s: %w%s\n%s", program, err, hint, tail(string(out)))
}

// guardScript waits until the process that started it is gone, which closes its
// input; then it stops the server, if it is still that server, and removes the
// folder.
const guardScript = `
cat >/dev/null
cd "$1" 2>/dev/null || exit 0
pid=$(head -n 1 data/postmaster.pid 2>/dev/null)
ours() {
	[ -n "$pid" ] && kill -0 "$pid" 2>/dev/null || return 1
	[ ! -d /proc/self ] || [ "$(readlink "/proc/$pid/cwd")" = "$1/data" ]
}
i=0
while ours "$1" && [ $i -lt 100 ]; do
	[ $i -ne 0 ] || kill -QUIT "$pid" 2>/dev/null
	[ $i -ne 80 ] || kill -KILL "$pid" 2>/dev/null
	i=$((i + 1))
	sleep 0.1
done
cd /
rm -rf "$1" || { # someone still writes there, on the way out
	sleep 2
	rm -rf "$1"
}
`

// guard removes a server's folder when this process ends without doing so.
type guard struct {
	cmd   *exec.Cmd
	stdin io.Closer
}

func newGuard(dir string) (*guard, error) {
	// Its output goes nowhere: a test binary isn't done while a child holds its
	// output.
	cmd := exec.CommandContext(context.Background(), "/bin/sh", "-c", guardScript, "sh", dir) //nolint:gosec // a constant script, and a folder that we made
	cmd.Dir = "/"
	cmd.SysProcAttr = apart()
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("pgserver: the guard of the server's folder: %w", err)
	}
	return &guard{cmd, stdin}, nil
}

// dismiss lets the guard clean up now, and waits for it.
func (g *guard) dismiss() error {
	_ = g.stdin.Close() // nothing is written to it
	return g.cmd.Wait()
}

// tail is the end of a log, for an error.
func tail(log string) string {
	lines := strings.Split(strings.TrimSpace(log), "\n")
	return strings.Join(lines[max(0, len(lines)-20):], "\n")
}
