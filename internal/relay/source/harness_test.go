package source

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tidwall/gjson"

	"github.com/surehook/surehook/internal/relay/config"
)

// memory keeps states in memory, as a store would through crashes.
type memory struct {
	mu   sync.Mutex
	kept map[string][]byte
	fail error
}

func (m *memory) Load(_ context.Context, id string) ([]byte, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.kept[id], m.fail
}

func (m *memory) Save(_ context.Context, id string, state []byte) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.fail == nil {
		m.kept[id] = bytes.Clone(state)
	}
	return m.fail
}

// fataler is what the harness needs of a test, rapid's too.
type fataler interface {
	Helper()
	Fatal(...any)
	Fatalf(string, ...any)
}

type counts struct{ Lines, NotAudit, Malformed, TooLong int }

func (c *counts) add(b *Batch) {
	c.Lines, c.NotAudit = c.Lines+b.Lines, c.NotAudit+b.NotAudit
	c.Malformed, c.TooLong = c.Malformed+b.Malformed, c.TooLong+b.TooLong
}

// bench is a log that is written and rotated, and a source that reads it. Times of
// files are a clock of its own: the file system's is too coarse.
type bench struct {
	t             fataler
	dir, path     string
	fromBeginning bool
	states        *memory
	src           Source
	batch         *Batch // given, not committed
	said          bytes.Buffer
	clock         int64
	lines         int
	wrote         []string          // marks of the audit lines, in order
	got           map[string]string // id → mark, of what was committed
	counts        counts            // sums over what was committed
	half          string            // a line that was begun
}

func newBench(t fataler, dir string) *bench {
	return &bench{t: t, dir: dir, path: filepath.Join(dir, "access.log"), fromBeginning: true, states: &memory{kept: map[string][]byte{}}, got: map[string]string{}, clock: 946_684_800}
}

func run(t *testing.T, f func(b *bench)) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, t.TempDir())
		f(b)
		b.stop()
	})
}

func (b *bench) must(err error) {
	b.t.Helper()
	if err != nil {
		b.t.Fatal(err)
	}
}

func (b *bench) touch(path string) {
	b.t.Helper()
	b.clock++
	b.must(os.Chtimes(path, time.Time{}, time.Unix(b.clock, 0)))
}

// add writes text as it is.
func (b *bench) add(text string) {
	b.t.Helper()
	f, err := os.OpenFile(b.path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	b.must(err)
	_, err = f.WriteString(text)
	b.must(errors.Join(err, f.Close()))
	b.touch(b.path)
}

func audited(name string) string {
	return fmt.Sprintf(`2026-05-25T17:30:02Z INF {"path":"%s","action":"block","would_block_rules":[]} middlewareName=m@file`, name)
}

// write writes n audit lines, each with a line of something else before it.
func (b *bench) write(n int) {
	b.t.Helper()
	for range n {
		b.add(b.stamp() + "something else\n" + b.next() + "\n")
	}
}

func (b *bench) next() string {
	name := fmt.Sprintf("l%04d", b.lines)
	b.wrote = append(b.wrote, name)
	return b.stamp() + audited(name)
}

// stamp is the time that lines begin with: it is what tells one file from another
// while there is little in them.
func (b *bench) stamp() string {
	b.lines++
	return time.Unix(int64(b.lines), 0).UTC().Format("01-02 15:04:05 ")
}

// end ends a line that was begun.
func (b *bench) end() {
	b.t.Helper()
	if b.half != "" {
		b.add(b.half)
		b.half = ""
	}
}

// start opens the source, stop ends it in order, crash doesn't.
func (b *bench) start() {
	b.src = Open(config.Source{Type: config.LogTail, Path: b.path, FromBeginning: b.fromBeginning},
		Options{States: b.states, Log: slog.New(slog.NewTextHandler(&b.said, nil))})
}

func (b *bench) stop() {
	b.t.Helper()
	if b.src != nil {
		b.commit()
		b.must(b.src.Close(context.Background()))
	}
	b.src = nil
}

// crash ends it as a kill would: what isn't saved is gone.
func (b *bench) crash() {
	b.states.mu.Lock()
	kept := maps.Clone(b.states.kept)
	b.states.mu.Unlock()
	if b.src != nil {
		mark, err := os.ReadFile(b.path + ".purple-wolf-relay.bookmark")
		_ = b.src.Close(context.Background()) // lets go of the files
		if err == nil {
			b.must(os.WriteFile(b.path+".purple-wolf-relay.bookmark", mark, 0o600))
		}
	}
	b.states.kept, b.src, b.batch = kept, nil, nil
}

// read takes a batch, and commits the one before; false: there is nothing more.
func (b *bench) read() bool {
	b.t.Helper()
	b.commit()
	ctx, cancel := context.WithTimeout(context.Background(), 400*time.Millisecond)
	defer cancel()
	batch, err := b.src.Next(ctx)
	if errors.Is(err, context.DeadlineExceeded) {
		return false
	}
	b.must(err)
	b.batch = batch
	return true
}

// store does what the store does with a batch: it takes each id once.
func (b *bench) store() {
	for i := range b.batch.Events {
		ev := &b.batch.Events[i]
		b.got[ev.ID] = gjson.GetBytes(ev.JSON, "path").Str
	}
}

func (b *bench) commit() {
	b.t.Helper()
	if b.batch == nil {
		return
	}
	b.store()
	b.counts.add(b.batch)
	b.must(b.src.Committed(context.Background(), b.batch))
	b.batch = nil
}

// readAll reads until there is nothing more.
func (b *bench) readAll() {
	b.t.Helper()
	for b.read() {
	}
}

// complete fails unless each line that was written came, under one id.
func (b *bench) complete() {
	b.t.Helper()
	times := map[string]int{}
	for _, name := range b.got {
		times[name]++
	}
	var lost, twice []string
	for _, name := range b.wrote {
		switch times[name] {
		case 0:
			lost = append(lost, name)
		case 1:
		default:
			twice = append(twice, name)
		}
		delete(times, name)
	}
	if len(lost)+len(twice)+len(times) > 0 {
		b.t.Fatalf("lost %v, doubled %v, unknown %v of %d lines\n%s", lost, twice, times, len(b.wrote), b.said.String())
	}
}

// rename rotates by renaming: access.log.1 becomes access.log.2, and so on.
func (b *bench) rename() {
	b.t.Helper()
	b.shift()
	b.must(os.Rename(b.path, b.path+".1"))
}

func (b *bench) shift() {
	b.t.Helper()
	for n := 9; n >= 1; n-- {
		for _, ext := range []string{"", ".gz"} {
			if _, err := os.Stat(fmt.Sprintf("%s.%d%s", b.path, n, ext)); err == nil {
				b.must(os.Rename(fmt.Sprintf("%s.%d%s", b.path, n, ext), fmt.Sprintf("%s.%d%s", b.path, n+1, ext)))
			}
		}
	}
}

// copyCut rotates by copying and cutting.
func (b *bench) copyCut() {
	b.t.Helper()
	b.shift()
	text, err := os.ReadFile(b.path)
	b.must(err)
	b.must(os.WriteFile(b.path+".1", text, 0o600))
	b.touch(b.path + ".1")
	b.must(os.Truncate(b.path, 0))
	b.touch(b.path)
}

// compress compresses the newest rotated file, as gzip does: the time stays.
func (b *bench) compress() {
	b.t.Helper()
	name := b.path + ".1"
	fi, err := os.Stat(name)
	if err != nil {
		return
	}
	text, err := os.ReadFile(name)
	b.must(err)
	var z bytes.Buffer
	w := gzip.NewWriter(&z)
	_, err = w.Write(text)
	b.must(errors.Join(err, w.Close()))
	b.must(os.WriteFile(name+".gz", z.Bytes(), 0o600))
	b.must(os.Chtimes(name+".gz", time.Time{}, fi.ModTime()))
	b.must(os.Remove(name))
}

// stream opens a source on a stream.
func stream(r io.Reader) Source {
	return Open(config.Source{Type: config.Stdin}, Options{Stdin: r})
}

func long(n int) string { return strings.Repeat("x", n) }
