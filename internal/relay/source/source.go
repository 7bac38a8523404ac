// Package source reads the logs: standard input, and files that grow, are rotated
// and come back.
//
// Guarantee, for files: every line is given, in its file's order, and a line that
// was given before a crash but not committed is given again, under the same id.
// That holds across rotations, by renaming and by copying, also of several while
// nobody read, as long as the old files are there. What a copying rotation cuts off
// between its copy and its cut is lost to everybody. What was read from standard
// input but not committed is lost with the process: nobody can read it again.
package source

import (
	"context"
	cryptorand "crypto/rand"
	"io"
	"log/slog"
	"os"
	"time"

	"github.com/surehook/surehook/internal/relay/audit"
	"github.com/surehook/surehook/internal/relay/config"
)

// Source gives lines, in batches. One goroutine calls Next; Committed may be
// called from another, once for each batch in their order.
type Source interface {
	ID() string
	// Next waits for lines. Its error is io.EOF when there will never be another,
	// ctx's when that ends; any other is final too, and a file that is missing or can't
	// be read for now is none: that is logged and tried again.
	Next(ctx context.Context) (*Batch, error)
	// Committed moves the bookmark past a batch: its events are in the store. A
	// batch without events counts too. That it fails is no reason to stop: the worst
	// that follows are events offered again under their ids.
	Committed(ctx context.Context, b *Batch) error
	// Close keeps the bookmark as it is and lets go of the files. It comes after the
	// last Next and the last Committed.
	Close(ctx context.Context) error
	// Stuck says why nothing can be read for now, or what is read can't be given; nil:
	// all is well, also while a file isn't there yet. Anybody may call it.
	Stuck() error
}

// Batch is some lines and the audit events among them.
type Batch struct {
	Events []audit.Event // with id, source and time

	Lines     int // all of them
	NotAudit  int // lines of something else
	Malformed int // meant to be audit lines, but cut or broken
	TooLong   int // longer than MaxLine, skipped

	held int   // bytes of the events' JSON
	file int64 // the generation of the file that the lines come from
	at   mark  // where the last of them ended
}

// MaxLine is how long a line may be, in bytes without its end.
const MaxLine = 1 << 20

// States keeps a source's state from run to run: a few hundred bytes under the
// source's id. The store's settings do.
type States interface {
	// Load gives nil for what was never saved.
	Load(ctx context.Context, id string) ([]byte, error)
	Save(ctx context.Context, id string, state []byte) error
}

// Options of Open. States is required for files.
type Options struct {
	States  States
	Log     *slog.Logger     // nothing is logged
	Now     func() time.Time // time.Now
	Entropy io.Reader        // of ids; crypto/rand
	Stdin   io.Reader        // os.Stdin
}

// Open makes a source. It opens no file yet: that is for Next, which waits for
// one that isn't there.
func Open(c config.Source, o Options) Source {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Entropy == nil {
		o.Entropy = cryptorand.Reader
	}
	if o.Stdin == nil {
		o.Stdin = os.Stdin
	}
	o.Log = o.Log.With("source", c.ID())
	if c.Type == config.Stdin {
		return newStdin(c, o)
	}
	return newTail(c, o)
}
