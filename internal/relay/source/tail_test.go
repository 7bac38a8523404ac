package source

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/oklog/ulid/v2"

	"github.com/surehook/surehook/internal/relay/audit"
	"github.com/surehook/surehook/internal/relay/config"
)

func TestTail_ReadsWhatIsThereAndWhatComes(t *testing.T) {
	run(t, func(b *bench) {
		b.write(3)
		b.start()
		b.readAll()
		b.write(2)
		b.readAll()
		b.complete()
		if b.counts != (counts{Lines: 10, NotAudit: 5}) {
			t.Errorf("%+v", b.counts)
		}
	})
}

func TestTail_TellsWhereEventsComeFrom(t *testing.T) {
	run(t, func(b *bench) {
		b.write(1)
		b.start()
		if !b.read() {
			t.Fatal("nothing came")
		}
		ev := b.batch.Events[0]
		if ev.Source != "log_tail:"+b.path || ev.Received != time.Now() || ev.Middleware != "m" || ev.Action != audit.Block {
			t.Errorf("%+v", ev)
		}
		if id, err := ulid.ParseStrict(ev.ID); err != nil || !id.Timestamp().Equal(time.Date(2026, 5, 25, 17, 30, 2, 0, time.UTC)) {
			t.Errorf("id %s, of another time than its line", ev.ID)
		}
	})
}

func TestTail_StartsAtTheEndUnlessAsked(t *testing.T) {
	run(t, func(b *bench) {
		b.fromBeginning = false
		b.write(3)
		b.wrote = nil
		b.add(b.next()) // begun, and then ended
		b.start()
		b.readAll()
		b.add("\n")
		b.write(1)
		b.readAll()
		b.complete()
	})
}

// A file that isn't there yet is read from its beginning when it comes, also when
// it comes while nobody reads.
func TestTail_WaitsForAFile(t *testing.T) {
	run(t, func(b *bench) {
		b.fromBeginning = false
		b.start()
		b.readAll()
		b.crash()
		b.write(2)
		b.start()
		b.readAll()
		b.complete()
		if n := strings.Count(b.said.String(), "waiting for it"); n != 1 {
			t.Errorf("told %d times:\n%s", n, b.said.String())
		}
	})
}

func TestTail_PartialLinesWait(t *testing.T) {
	run(t, func(b *bench) {
		line := b.next() + "\n"
		b.start()
		for i := 0; i < len(line); i += 40 {
			b.add(line[i:min(i+40, len(line))])
			if i+40 < len(line) && b.read() {
				t.Fatal("half a line was given")
			}
		}
		b.readAll()
		b.complete()
	})
}

func TestTail_LongLines(t *testing.T) {
	run(t, func(b *bench) {
		fits := `{"action":"block","would_block_rules":[],"path":"fits","x":"`
		fits += long(MaxLine-len(fits)-2) + `"}`
		b.write(1)
		b.add(fits + "\n")
		b.add(fits + "\r\n")
		b.add("x" + fits + "\n")
		b.add(long(5*MaxLine) + "\n")
		b.write(1)
		b.start()
		b.readAll()
		n := 0
		for id, name := range b.got {
			if name == "fits" {
				n++
				delete(b.got, id)
			}
		}
		b.complete()
		if n != 2 || b.counts != (counts{Lines: 8, NotAudit: 2, TooLong: 2}) {
			t.Errorf("%d fit, %+v", n, b.counts)
		}
	})
}

// A kill in the middle of a line that is too long.
func TestTail_LongLineAcrossARestart(t *testing.T) {
	run(t, func(b *bench) {
		b.write(1)
		b.add(long(3 * MaxLine))
		b.start()
		b.readAll()
		b.stop()
		b.add(long(100) + audited("no") + "\n")
		b.write(1)
		b.start()
		b.readAll()
		b.complete()
	})
}

func TestTail_RotationByRename(t *testing.T) {
	run(t, func(b *bench) {
		b.write(3)
		b.start()
		b.readAll()
		b.write(1)
		b.rename()
		b.write(2) // the new file
		b.readAll()
		b.complete()
		// Whoever writes may be slow to notice.
		f, err := os.OpenFile(b.path+".1", os.O_APPEND|os.O_WRONLY, 0)
		b.must(err)
		fmt.Fprintln(f, b.next())
		fmt.Fprint(f, b.next()) // without an end, ever
		b.must(f.Close())
		b.write(1)
		b.readAll()
		time.Sleep(time.Minute) //nolint:forbidigo // in a synctest bubble it moves the clock
		b.readAll()
		b.complete()
		if n := len(b.src.(*tail).files); n != 1 {
			t.Errorf("%d files are held", n)
		}
	})
}

func TestTail_RotationByCopy(t *testing.T) {
	run(t, func(b *bench) {
		b.write(3)
		b.start()
		b.readAll()
		b.write(2) // only the copy has them when the source looks again
		b.copyCut()
		b.write(1)
		b.readAll()
		b.complete()
		b.write(20)
		b.readAll()
		b.copyCut()
		b.write(30) // longer than it was
		b.readAll()
		b.complete()
	})
}

func TestTail_RotationsWhileNobodyReads(t *testing.T) {
	for name, rotate := range map[string]func(b *bench){
		"renamed":                (*bench).rename,
		"copied":                 (*bench).copyCut,
		"renamed and compressed": func(b *bench) { b.rename(); b.compress() },
		"copied and compressed":  func(b *bench) { b.copyCut(); b.compress() },
	} {
		t.Run(name, func(t *testing.T) {
			for _, end := range []func(b *bench){(*bench).stop, (*bench).crash} {
				run(t, func(b *bench) {
					b.write(10)
					b.start()
					b.readAll()
					end(b)
					for range 3 {
						b.write(4)
						rotate(b)
					}
					b.write(2)
					b.start()
					b.readAll()
					b.complete()
					end(b)
					b.start()
					b.readAll()
					b.complete()
				})
			}
		})
	}
}

// The same words at the same place of another file are another event.
func TestTail_TheSameLineInTheNextFile(t *testing.T) {
	run(t, func(b *bench) {
		line := audited("same") + "\n"
		b.add(line)
		b.start()
		b.readAll()
		b.copyCut()
		b.readAll()
		b.add(line)
		b.readAll()
		b.rename()
		b.add(line)
		b.readAll()
		if len(b.got) != 3 {
			t.Errorf("%d events of 3", len(b.got))
		}
	})
}

// Nothing of a new file is given before the store knows that there is one.
func TestTail_AStoreThatIsAway(t *testing.T) {
	run(t, func(b *bench) {
		b.write(2)
		b.states.fail = errors.New("the store is away")
		b.start()
		if b.read() {
			t.Error("lines came before their file was noted")
		}
		b.states.fail = nil
		b.readAll()
		b.states.fail = errors.New("the store is away")
		b.rename()
		b.write(2)
		if b.read() {
			t.Error("lines came before their file was noted")
		}
		b.states.fail = nil
		b.readAll()
		b.complete()
		if n := strings.Count(b.said.String(), "the store is away"); n != 2 {
			t.Errorf("told %d times:\n%s", n, b.said.String())
		}
	})
}

// Coming from the original, and going back.
func TestTail_Bookmark(t *testing.T) {
	run(t, func(b *bench) {
		b.fromBeginning = false
		mark := b.path + ".purple-wolf-relay.bookmark"
		b.write(3)
		b.wrote = nil
		fi, err := os.Stat(b.path)
		b.must(err)
		b.must(os.WriteFile(mark, []byte(content(identOf(fi).Ino, fi.Size())), 0o600))
		b.write(2) // while nobody read
		b.start()
		b.readAll()
		b.complete()
		b.stop()
		fi, err = os.Stat(b.path)
		b.must(err)
		if got, _ := os.ReadFile(mark); string(got) != content(identOf(fi).Ino, fi.Size()) {
			t.Errorf("the bookmark is %q", got)
		}
		// The original reads on, and we come back.
		b.write(2)
		b.wrote = b.wrote[:len(b.wrote)-2]
		fi, err = os.Stat(b.path)
		b.must(err)
		b.must(os.WriteFile(mark, []byte(content(identOf(fi).Ino, fi.Size())), 0o600))
		b.rename()
		b.write(2)
		b.start()
		b.readAll()
		b.complete()
	})
}

func TestTail_ABookmarkThatIsNone(t *testing.T) {
	for _, text := range []string{"", "x", "1", "1 2 3", "-1 5\n", "1 -5\n", "99999999999999999999 1\n", long(1000)} {
		run(t, func(b *bench) {
			b.must(os.WriteFile(b.path+".purple-wolf-relay.bookmark", []byte(text), 0o600))
			b.write(2)
			b.start()
			b.readAll()
			b.complete()
		})
	}
}

// A folder that we may not write in holds nothing up.
func TestTail_BookmarkThatCantBeWritten(t *testing.T) {
	run(t, func(b *bench) {
		b.must(os.Mkdir(b.path+".purple-wolf-relay.bookmark", 0o700)) // a rename onto it fails
		b.write(2)
		b.start()
		b.readAll()
		b.write(2)
		b.readAll()
		b.crash()
		b.write(2)
		b.start()
		b.readAll()
		b.complete()
		if n := strings.Count(b.said.String(), "bookmark beside the log can't be written"); n < 1 || n > 2 { // once a run
			t.Errorf("told %d times:\n%s", n, b.said.String())
		}
	})
}

// A log that is a link: what it leads to is rotated, or it leads elsewhere.
func TestTail_Links(t *testing.T) {
	run(t, func(b *bench) {
		link := b.path
		b.must(os.Mkdir(b.dir+"/pods", 0o700))
		lead := func(name string) {
			_ = os.Remove(link)
			b.must(os.Symlink(name, link))
		}
		write := func(name string, n int) {
			b.path = name
			b.write(n)
			b.path = link
		}
		pod := b.dir + "/pods/0.log"
		write(pod, 3)
		lead(pod)
		b.start()
		b.readAll()
		b.crash()
		write(pod, 1)
		b.must(os.Rename(pod, pod+".20260525-101010"))
		write(pod, 2)
		b.start()
		b.readAll()
		b.complete()
		b.crash()
		write(pod, 1)
		lead(b.dir + "/access-20260526.log")
		write(b.dir+"/access-20260526.log", 2)
		b.start()
		b.readAll()
		b.stop()
		b.start()
		write(b.dir+"/access-20260526.log", 1)
		b.readAll()
		b.crash()
		write(b.dir+"/access-20260526.log", 1)
		lead(b.dir + "/access-20260527.log")
		write(b.dir+"/access-20260527.log", 1)
		b.start()
		b.readAll()
		if n := len(b.got); n != len(b.wrote)-1 { // what the pod's file got last is nowhere near the link any more
			t.Errorf("%d events of %d\n%s", n, len(b.wrote)-1, b.said.String())
		}
	})
}

func TestTail_NotAFile(t *testing.T) {
	run(t, func(b *bench) {
		b.start()
		b.readAll()
		if err := b.src.Stuck(); err != nil {
			t.Errorf("a log that isn't there yet: %v", err)
		}
		b.must(os.Mkdir(b.path, 0o700))
		b.readAll()
		if err := b.src.Stuck(); err == nil || !strings.Contains(err.Error(), "isn't a regular file") {
			t.Errorf("a folder for a log: %v", err)
		}
		b.must(os.Remove(b.path))
		b.write(1)
		b.readAll()
		b.complete()
		if err := b.src.Stuck(); err != nil {
			t.Error(err)
		}
		b.states.fail = errors.New("the store is away")
		b.rename()
		b.write(1)
		b.readAll()
		if err := b.src.Stuck(); err == nil {
			t.Error("it can't note a file, and says nothing")
		}
		b.states.fail = nil
		b.readAll()
		b.complete()
	})
}

// A broken state is never mistaken for none: that would read again, or pass over.
func TestTail_AStateThatCantBeRead(t *testing.T) {
	run(t, func(b *bench) {
		b.write(1)
		b.states.kept["log_tail:"+b.path] = []byte("{")
		b.start()
		if b.read() {
			t.Error("lines came")
		}
		if !strings.Contains(b.said.String(), "can't be read") {
			t.Error(b.said.String())
		}
	})
}

func TestTail_EndsWithItsContext(t *testing.T) {
	run(t, func(b *bench) {
		b.start()
		ctx, cancel := context.WithCancel(context.Background())
		done := make(chan error)
		go func() {
			_, err := b.src.Next(ctx)
			done <- err
		}()
		synctest.Wait()
		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	})
}

func TestSiblings(t *testing.T) {
	dir := t.TempDir()
	names := []string{"access.log", "access.log.1", "access.log.2.gz", "access.log-20260525", "access-2026-05-25T17-30-02.123.log", "access-20260525.log.gz",
		"access.log.bak", "access.log.purple-wolf-relay.bookmark", "access.log.1.tmp", "other.log.1", "access.log.1x", "accessory.log"}
	for i, n := range names {
		if err := os.WriteFile(dir+"/"+n, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chtimes(dir+"/"+n, time.Time{}, time.Unix(int64(100-i), 0)); err != nil {
			t.Fatal(err)
		}
	}
	all, err := siblings(dir + "/access.log")
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, s := range all {
		got = append(got, strings.TrimPrefix(s.path, dir+"/"))
	}
	want := slices.Clone(names[1:6])
	slices.Reverse(want)
	if !slices.Equal(got, want) {
		t.Errorf("%q", got)
	}
}

func TestLineTime(t *testing.T) {
	for line, want := range map[string]string{
		"2026-05-25T17:30:02Z INF {":                   "2026-05-25T17:30:02Z",
		"\x1b[90m2026-05-25T17:30:02+02:00\x1b[0m INF": "2026-05-25T15:30:02Z",
		"traefik-1  | 2026-05-25T17:30:02.5Z INF":      "2026-05-25T17:30:02.5Z",
		"{\"time\":\"2026-05-25T17:30:02Z\"}":          "",
		"INF hello T":                                  "",
		"9999-99-99T99:99:99Z":                         "",
		"1969-05-25T17:30:02Z":                         "",
		"":                                             "",
	} {
		got := ""
		if at, ok := lineTime([]byte(line)); ok {
			got = at.UTC().Format(time.RFC3339Nano)
		}
		if got != want {
			t.Errorf("%q: %q, want %q", line, got, want)
		}
	}
}

func TestOpen_IDs(t *testing.T) {
	if id := Open(config.Source{Type: config.LogTail, Path: "/x"}, Options{}).ID(); id != "log_tail:/x" {
		t.Error(id)
	}
}
