// Package source reads the logs: standard input, and files that grow, are rotated
// and come back.
//
// Guarantee, for files: every line that is written in full is given, and a line
// that was given before a crash but not committed is given again, under the same
// id. What a copying rotation cuts off before anybody could read it is lost to
// everybody.
package source

import (
	"context"

	"github.com/surehook/surehook/internal/relay/audit"
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
}

// Batch is some lines and the audit events among them.
type Batch struct {
	Events []audit.Event // with id, source and time

	Lines     int // all of them
	NotAudit  int // lines of something else
	Malformed int // meant to be audit lines, but cut or broken
	TooLong   int // longer than MaxLine, skipped

	file int64 // the generation of the file of the last line
	end  int64 // where that line ended
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
