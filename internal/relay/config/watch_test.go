package config

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

// watched is a file under Watch.
type watched struct {
	t         *testing.T
	dir, path string
	reload    chan os.Signal
	refuse    error
	mu        sync.Mutex
	used      []string // ids of the subscribers of each configuration
	log       bytes.Buffer
	written   int64
}

func (w *watched) Write(b []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.log.Write(b)
}

// write puts a file there; each writing has a time of its own.
func (w *watched) write(name, text string) {
	w.t.Helper()
	path := filepath.Join(w.dir, name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		w.t.Fatal(err)
	}
	w.written++
	if err := os.Chtimes(path, time.Time{}, time.Unix(w.written, 0)); err != nil {
		w.t.Fatal(err)
	}
}

func subscribers(ids ...string) string {
	text := "sources: [{type: stdin}]\nsubscribers:\n"
	for _, id := range ids {
		text += fmt.Sprintf(" - {id: %s, url: https://a.example/, secret_file: SECRET}\n", id)
	}
	return text
}

func watch(t *testing.T, f func(w *watched)) {
	watchAfter(t, func(*watched) {}, f)
}

// watchAfter does something between the reading of the file and the watch.
func watchAfter(t *testing.T, before, f func(w *watched)) {
	synctest.Test(t, func(t *testing.T) {
		w := &watched{t: t, dir: t.TempDir(), reload: make(chan os.Signal)}
		w.path = filepath.Join(w.dir, "relay.yaml")
		w.write("secret", "one")
		w.config(subscribers("a"))
		c, err := Load(w.path, env())
		if err != nil {
			t.Fatal(err)
		}
		before(w)
		ctx, cancel := context.WithCancel(t.Context())
		var done sync.WaitGroup
		done.Go(func() {
			Watch(ctx, c, WatchOptions{Env: env(), Reload: w.reload, Log: slog.New(slog.NewTextHandler(w, nil))}, func(c *Config) error {
				if w.refuse != nil {
					return w.refuse
				}
				ids := ""
				for _, s := range c.Subscribers {
					ids += s.ID + "=" + string(s.Secret) + " "
				}
				w.used = append(w.used, strings.TrimSpace(ids))
				return nil
			})
		})
		synctest.Wait()
		f(w)
		cancel()
		done.Wait()
	})
}

func (w *watched) config(text string) {
	w.write("relay.yaml", strings.ReplaceAll(text, "SECRET", filepath.Join(w.dir, "secret")))
}

// pass lets two looks go by.
func (w *watched) pass() {
	time.Sleep(4*time.Second + time.Millisecond) //nolint:forbidigo // in a synctest bubble it moves the clock
	synctest.Wait()
}

func (w *watched) expect(used ...string) {
	w.t.Helper()
	if !slices.Equal(w.used, used) {
		w.t.Errorf("used %q, want %q", w.used, used)
	}
}

func TestWatch_SeesChangesOfTheFileAndItsSecrets(t *testing.T) {
	watch(t, func(w *watched) {
		w.pass()
		w.expect()
		w.config(subscribers("a", "b"))
		w.pass()
		w.expect("a=one b=one")
		w.write("secret", "two\n")
		w.pass()
		w.expect("a=one b=one", "a=two b=two")
		w.config(subscribers("a", "b")) // the same again
		w.pass()
		w.expect("a=one b=one", "a=two b=two")
	})
}

func TestWatch_AnInvalidFileChangesNothing(t *testing.T) {
	watch(t, func(w *watched) {
		w.config(subscribers("a") + "nonsense: 1\n")
		w.pass()
		w.pass()
		w.expect()
		if n := strings.Count(w.log.String(), "nonsense"); n != 1 || !strings.Contains(w.log.String(), "line 4") {
			t.Errorf("told %d times:\n%s", n, w.log.String())
		}
		w.config(subscribers("b"))
		w.pass()
		w.expect("b=one")
	})
}

func TestWatch_WaitsUntilTheFileStandsStill(t *testing.T) {
	watch(t, func(w *watched) {
		for range 5 {
			w.config("sources: [")                       // half of it
			time.Sleep(2*time.Second + time.Millisecond) //nolint:forbidigo // in a synctest bubble it moves the clock
		}
		w.config(subscribers("b"))
		w.pass()
		w.expect("b=one")
		if strings.Contains(w.log.String(), "ERROR") {
			t.Error(w.log.String())
		}
	})
}

func TestWatch_AChangeWhileTheRelayStarts(t *testing.T) {
	watchAfter(t, func(w *watched) { w.config(subscribers("b")) }, func(w *watched) {
		w.pass()
		w.expect("b=one")
	})
}

func TestWatch_ReloadsWhenAsked(t *testing.T) {
	watch(t, func(w *watched) {
		w.config(subscribers("b"))
		w.reload <- syscall.SIGHUP
		synctest.Wait()
		w.expect("b=one")
		w.reload <- syscall.SIGHUP
		synctest.Wait()
		w.expect("b=one")
		if !strings.Contains(w.log.String(), "it is the same") {
			t.Error(w.log.String())
		}
		w.pass()
		w.expect("b=one")
	})
}

func TestWatch_ASecretThatComesLater(t *testing.T) {
	watch(t, func(w *watched) {
		w.config(strings.ReplaceAll(subscribers("b"), "SECRET", filepath.Join(w.dir, "later")))
		w.pass()
		w.expect()
		w.write("later", "here")
		w.pass()
		w.expect("b=here")
	})
}

func TestWatch_WhatIsRefusedIsOfferedAgain(t *testing.T) {
	watch(t, func(w *watched) {
		w.refuse = errors.New("the store is away")
		w.config(subscribers("b"))
		w.pass()
		w.pass()
		w.expect()
		if n := strings.Count(w.log.String(), "the store is away"); n != 1 {
			t.Errorf("told %d times", n)
		}
		w.refuse = nil
		w.pass()
		w.expect("b=one")
	})
}
