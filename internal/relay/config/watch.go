package config

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"time"
)

// WatchOptions of Watch.
type WatchOptions struct {
	Env    Env
	Reload <-chan os.Signal // SIGHUP: read it again now
	Every  time.Duration    // between two looks at the files; 2 s
	Log    *slog.Logger
}

// Watch reads the file again when it, or a secret's file, was changed, or when
// Reload says so, and hands each configuration to use, one at a time. It ends
// with ctx. A file that can't be used changes nothing: the log says why, and its
// next change is tried as if it had never been there. What use refuses is offered
// again at each look. The first look reads the file again as well: it may have
// changed since current was read.
//
// Files are looked at rather than watched by the system's means: that works the
// same on network file systems, in containers and for mounted secrets, which
// change behind a link, and needs no limit to be raised.
func Watch(ctx context.Context, current *Config, o WatchOptions, use func(*Config) error) {
	if o.Every <= 0 {
		o.Every = 2 * time.Second
	}
	w := &watcher{current: current, files: current.files, o: o, use: use, changing: true}
	w.seen = w.look()
	tick := time.NewTicker(o.Every)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-o.Reload:
			w.seen, w.changing = w.look(), false
			w.load(true)
		case <-tick.C:
			w.check()
		}
	}
}

type watcher struct {
	current  *Config
	files    []string // what is looked at
	o        WatchOptions
	use      func(*Config) error
	seen     []string // what the files looked like when they were read last
	changing bool     // they looked otherwise at the last look
	refused  string   // why the file as it is can't be used
}

// look gives what can be told of the files without reading them.
func (w *watcher) look() []string {
	out := make([]string, len(w.files))
	for i, path := range w.files {
		if fi, err := os.Stat(path); err != nil {
			out[i] = "missing"
		} else {
			out[i] = fmt.Sprint(fi.Size(), fi.ModTime().UnixNano(), fileID(fi))
		}
	}
	return out
}

// check reads the files once they have changed and then stood still for one look:
// somebody may be writing them.
func (w *watcher) check() {
	now := w.look()
	if !slices.Equal(now, w.seen) {
		w.seen, w.changing = now, true
		return
	}
	if w.changing {
		w.changing = false
		w.load(false)
	}
}

func (w *watcher) load(asked bool) {
	c, err := Load(w.current.path, w.o.Env)
	w.follow(c, err)
	if err == nil && c.sum == w.current.sum {
		w.refused = ""
		if asked {
			w.o.Log.Info("the configuration was read again; it is the same", "file", w.current.path)
		}
		return
	}
	if err == nil {
		err = w.use(c)
		w.changing = w.changing || err != nil
	}
	if err != nil {
		if asked || err.Error() != w.refused {
			w.o.Log.Error("the configuration was changed but can't be used; the one before stays in force", "file", w.current.path, "error", err)
		}
		w.refused = err.Error()
		return
	}
	w.current, w.refused = c, ""
	w.o.Log.Info("the configuration was changed", "file", c.path, "subscribers", len(c.Subscribers), "sources", len(c.Sources))
	for _, p := range c.Warnings {
		w.o.Log.Warn("a setting is hardly meant so", "file", c.path, "line", p.Line, "setting", p.Path, "problem", p.Message)
	}
}

// follow looks at what the file names now, also when it can't be used: a secret
// that was missing may come. What changed since it was read is seen by reading
// once more.
func (w *watcher) follow(c *Config, err error) {
	files := w.files
	if c != nil {
		files = c.files
	} else if p, ok := errors.AsType[*Problems](err); ok && len(p.files) > 0 {
		files = p.files
	}
	if !slices.Equal(files, w.files) {
		w.files = files
		w.seen, w.changing = w.look(), true
	}
}
