package move_test

import (
	"bufio"
	"context"
	"errors"
	"math/rand/v2"
	"os"
	"os/exec"
	"reflect"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/surehook/surehook"
	"github.com/surehook/surehook/internal/move"
	"github.com/surehook/surehook/internal/pgserver"
	"github.com/surehook/surehook/store/postgres"
	"github.com/surehook/surehook/store/sqlite"
)

func bulk() int {
	if testing.Short() {
		return 3000
	}
	return 20_000
}

// A move, whole and cut off anywhere, brings the same.
func TestMove(t *testing.T) {
	f := fill(t, bulk())
	whole := pgserver.Database(t)
	want, err := try(t.Context(), f.path, whole, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, tr := range want.Tables {
		if tr.Rows == 0 || !tr.Equal {
			t.Errorf("%+v", tr)
		}
	}
	if want.Resumed || want.Already || int(want.Rows) < 3*bulk() {
		t.Errorf("%+v", want)
	}
	again, err := try(t.Context(), f.path, whole, nil, nil)
	if err != nil || !again.Already || again.Rows != want.Rows {
		t.Errorf("once more: %+v, %v", again, err)
	}

	t.Run("it is served from one place alone", func(t *testing.T) { refusals(t, f, whole) })
	t.Run("cut off", func(t *testing.T) { cutOff(t, f, want) })
	t.Run("killed", func(t *testing.T) { killed(t, f, want) })
	t.Run("the target goes on", func(t *testing.T) { goesOn(t, f, whole) })
}

func abandon(t *testing.T, path string) {
	t.Helper()
	src, err := sqlite.OpenSource(t.Context(), path, sqlite.Options{FreeFloor: -1})
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(src.SetMark(t.Context(), nil), src.Close()); err != nil {
		t.Fatal(err)
	}
}

func refusals(t *testing.T, f *filled, whole string) {
	if s, err := sqlite.Open(t.Context(), f.path, sqlite.Options{}); err == nil || !strings.Contains(err.Error(), "migrate-store --abandon") {
		t.Errorf("a server starts on what was moved: %v, %v", s, err)
	}
	if _, err := try(t.Context(), f.path, pgserver.Database(t), nil, nil); surehook.CodeOf(err) != surehook.Conflict || !strings.Contains(err.Error(), "--abandon") {
		t.Errorf("into a second target: %v", err)
	}
	abandon(t, f.path)
	if _, err := try(t.Context(), f.path, whole, nil, nil); surehook.CodeOf(err) != surehook.Conflict || !strings.Contains(err.Error(), "another move") {
		t.Errorf("again after it was abandoned: %v", err)
	}
	if _, err := os.Stat(f.path); err != nil {
		t.Error(err)
	}
}

// cutter fails some writes, before or after they are done.
type cutter struct {
	move.Target
	left  int
	after bool
}

var errCut = errors.New("cut")

func (c *cutter) Write(ctx context.Context, t move.Table, rows []move.Row, old, next *move.State) error {
	if c.left--; c.left >= 0 {
		return c.Target.Write(ctx, t, rows, old, next)
	}
	if c.after {
		if err := c.Target.Write(ctx, t, rows, old, next); err != nil {
			return err
		}
	}
	return errCut
}

func (c *cutter) Finish(ctx context.Context, id, config int64, old, next *move.State) error {
	if c.left--; c.left < 0 {
		return errCut
	}
	return c.Target.Finish(ctx, id, config, old, next)
}

func cutOff(t *testing.T, f *filled, want move.Report) {
	dsn := pgserver.Database(t)
	abandon(t, f.path)
	rnd := rand.New(rand.NewPCG(1, 2))
	for call := 0; ; call++ {
		r, err := try(t.Context(), f.path, dsn, func(to move.Target) move.Target {
			return &cutter{Target: to, left: rnd.IntN(9), after: rnd.IntN(2) == 0}
		}, nil)
		if err == nil {
			same(t, r, want)
			return
		}
		if !errors.Is(err, errCut) || r.Resumed != (call > 0) {
			t.Fatal(r, err)
		}
		if s, err := postgres.Open(t.Context(), dsn, postgres.Options{}); err == nil || !strings.Contains(err.Error(), "call surehook migrate-store again") {
			t.Fatal("a server starts on half of it:", s, err)
		}
		if _, err := sqlite.Open(t.Context(), f.path, sqlite.Options{}); err == nil {
			t.Fatal("a server starts on what is being moved")
		}
	}
}

func same(t *testing.T, got, want move.Report) {
	t.Helper()
	if got.Rows != want.Rows || !reflect.DeepEqual(got.Tables, want.Tables) {
		t.Errorf("got %+v\nwant %+v", got, want)
	}
}

func killed(t *testing.T, f *filled, want move.Report) {
	dsn := pgserver.Database(t)
	abandon(t, f.path)
	rnd := rand.New(rand.NewPCG(3, 4))
	kills := 0
	for range 8 {
		cmd := exec.CommandContext(t.Context(), os.Args[0])
		cmd.Env = append(os.Environ(), childEnv+"="+f.path+"\n"+dsn)
		cmd.Stderr = os.Stderr
		out, err := cmd.StdoutPipe()
		f.must(t, err)
		f.must(t, cmd.Start())
		lines := bufio.NewScanner(out)
		for range 1 + rnd.IntN(4) {
			lines.Scan()
		}
		f.must(t, cmd.Process.Kill())
		for more := true; more; more = lines.Scan() { // to the end
			continue
		}
		if cmd.Wait() != nil {
			kills++
		}
	}
	r, err := try(t.Context(), f.path, dsn, nil, nil)
	if err != nil || kills == 0 {
		t.Fatal(kills, err)
	}
	if r.Already {
		r.Tables = want.Tables // the last child was too quick
	}
	same(t, r, want)
}

// A call that is told to stop does so between two batches, and the next one goes
// on, whichever it was.
func TestCancelled(t *testing.T) {
	path, dsn := small(t), pgserver.Database(t)
	for call := 0; ; call++ {
		ctx, cancel := context.WithCancel(t.Context())
		calls := 0
		r, err := try(ctx, path, dsn, nil, func(string, string, int64, int64) {
			if calls++; calls > call+1 {
				cancel()
			}
		})
		done := ctx.Err() == nil
		cancel()
		switch {
		case done && err == nil && r.Resumed && call > 2:
			return
		case done || err == nil || call > 20:
			t.Fatal(call, r, err)
		}
	}
}

// Behind a pooler in transaction mode each statement may meet another session.
func TestBehindAPooler(t *testing.T) {
	path, dsn := small(t), pgserver.Pooler(t, pgserver.Database(t))
	for left := 0; ; left++ {
		r, err := try(t.Context(), path, dsn, func(to move.Target) move.Target { return &cutter{Target: to, left: left} }, nil)
		if err == nil && r.Resumed {
			return
		}
		if !errors.Is(err, errCut) || left > 20 {
			t.Fatal(r, err)
		}
	}
}

// goesOn starts an engine on what was moved.
func goesOn(t *testing.T, f *filled, dsn string) {
	conn, err := pgx.Connect(t.Context(), dsn)
	f.must(t, err)
	defer func() { _ = conn.Close(context.Background()) }()
	var ids, config bool
	f.must(t, conn.QueryRow(t.Context(), `SELECT (SELECT last_value FROM surehook.ids) > (SELECT max(id) FROM (SELECT id FROM surehook.pending UNION ALL SELECT pending_id FROM surehook.dead_letters) x),
		(SELECT value FROM surehook.counters WHERE name = 'config') > (SELECT max(changed) FROM surehook.endpoints)`).Scan(&ids, &config))
	if !ids || !config {
		t.Error("ids or versions would be given out again", ids, config)
	}
	store, err := postgres.Open(t.Context(), dsn, postgres.Options{})
	if err != nil {
		t.Fatal(err)
	}
	arrived := len(f.receiver.Requests())
	f.receiver.Use(nil) // everybody takes everything now
	e := startEngine(t, store)
	defer stop(t, e, store)
	f.signed(t, e, arrived)
	f.known(t, e)
	f.looks(t, e)
}
