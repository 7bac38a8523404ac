// Package move brings everything that one store holds into another one.
//
// Guarantee: the target is in use only when both hold the same, by count and by
// checksum; until then it says that it isn't finished, and so does the source
// that it mustn't change. A move that was cut off at any point goes on where it
// was: a batch of rows and the note of how far it got are one transaction.
package move

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/surehook/surehook"
)

// Setting is where a store notes that it takes part in a move. It is itself not
// moved.
const Setting = "migrate_store"

const (
	batchRows  = 1000
	batchBytes = 8 << 20
)

// Position says which row of a table was the last: the JSON array of what the
// source orders it by. Nil is before the first.
type Position = json.RawMessage

// Mark is the note in a source.
type Mark struct {
	ID string `json:"id"` // of this move
	To string `json:"to"` // the target, for people
}

// State is the note in a target.
type State struct {
	Source   string    `json:"source"` // the ID of the source's mark
	Table    string    `json:"table,omitempty"`
	After    Position  `json:"after,omitempty"` // the last row of Table that is there
	Rows     int64     `json:"rows"`            // that are there
	Started  time.Time `json:"started"`
	Finished time.Time `json:"finished,omitzero"`
}

// Unfinished tells whether what a target has under Setting is the note of a move
// that isn't over.
func Unfinished(note []byte) bool {
	var st State
	return json.Unmarshal(note, &st) != nil || st.Finished.IsZero()
}

// Source is a store that is left. Nobody else may change it meanwhile.
type Source interface {
	// Mark reads the source's note; nil: none.
	Mark(ctx context.Context) (*Mark, error)
	// SetMark writes the note; nil takes it away.
	SetMark(ctx context.Context, m *Mark) error
	Count(ctx context.Context, t Table) (int64, error)
	// Read gives rows behind a position, in a fixed order and with the keys that
	// they have in the target, and the position of the last one. At least one row,
	// unless there is none.
	Read(ctx context.Context, t Table, after Position, rows, bytes int) ([]Row, Position, error)
	// Tops gives the highest id that was ever given out, and the configuration's
	// version.
	Tops(ctx context.Context) (id, config int64, err error)
}

// Target is a store that is filled.
type Target interface {
	Name() string // for people; without a password
	State(ctx context.Context) (*State, error)
	// Begin writes the first note, and refuses a target that holds anything.
	Begin(ctx context.Context, st *State) error
	// Write stores rows and the note that follows old, in one transaction.
	Write(ctx context.Context, t Table, rows []Row, old, next *State) error
	Each(ctx context.Context, t Table, f func(Row) error) error
	// Finish makes sure that no id up to this one is given out again and that
	// nodes read everything, and writes the last note.
	Finish(ctx context.Context, id, config int64, old, next *State) error
}

// Progress hears how far a move is: first at the start of a step, without a table.
type Progress func(step, table string, done, total int64)

// TableReport is one table on both sides.
type TableReport struct {
	Table    string `json:"table"`
	Rows     int64  `json:"rows"`
	Checksum string `json:"checksum"`
	There    int64  `json:"target_rows"`
	SumThere string `json:"target_checksum"`
	Equal    bool   `json:"equal"`
}

// Report is what Run did.
type Report struct {
	Resumed bool          `json:"resumed"` // an earlier call had begun it
	Already bool          `json:"already"` // an earlier call had finished it; nothing was done
	Rows    int64         `json:"rows"`
	Tables  []TableReport `json:"tables"`
}

// run is one call of Run.
type run struct {
	src      Source
	dst      Target
	progress Progress
	st       *State
	total    int64
}

// Run moves everything, or goes on with that. With an error the report has what
// was compared so far.
func Run(ctx context.Context, src Source, dst Target, progress Progress) (Report, error) {
	if progress == nil {
		progress = func(string, string, int64, int64) {}
	}
	r := &run{src: src, dst: dst, progress: progress}
	var out Report
	resumed, err := r.begin(ctx)
	out.Resumed = resumed
	switch {
	case err != nil:
		return out, err
	case !r.st.Finished.IsZero():
		out.Already, out.Rows, out.Tables = true, r.st.Rows, []TableReport{}
		return out, nil
	}
	for _, t := range Tables {
		n, err := src.Count(ctx, t)
		if err != nil {
			return out, within(t, err)
		}
		r.total += n
	}
	progress("moving", "", r.st.Rows, r.total)
	err = r.copy(ctx)
	if out.Rows = r.st.Rows; err != nil {
		return out, err
	}
	progress("comparing", "", 0, r.total)
	if out.Tables, err = r.compare(ctx); err != nil {
		return out, err
	}
	id, config, err := src.Tops(ctx)
	if err != nil {
		return out, err
	}
	next := *r.st
	next.Table, next.After, next.Finished = "", nil, time.Now().UTC()
	return out, dst.Finish(ctx, id, config, r.st, &next)
}

// begin finds out where the move stands. The source is marked before the target
// has anything, so that from the first row on it stays as it is; a target that
// refuses leaves no mark.
func (r *run) begin(ctx context.Context) (resumed bool, err error) {
	mark, err := r.src.Mark(ctx)
	if err != nil {
		return false, err
	}
	if r.st, err = r.dst.State(ctx); err != nil {
		return false, err
	}
	switch {
	case r.st != nil && (mark == nil || mark.ID != r.st.Source):
		return false, surehook.Errorf(surehook.Conflict, "the target holds what another move brought: give it the source of that one, or empty the target and start again")
	case r.st != nil:
		return true, nil
	case mark != nil && mark.To != r.dst.Name():
		return false, surehook.Errorf(surehook.Conflict, "this store was moved to %s, or is on the way: finish that, or call with --abandon first", mark.To)
	}
	fresh := mark == nil
	if fresh {
		mark = &Mark{ID: rand.Text(), To: r.dst.Name()}
		if err := r.src.SetMark(ctx, mark); err != nil {
			return false, err
		}
	}
	r.st = &State{Source: mark.ID, Started: time.Now().UTC()}
	if err := r.dst.Begin(ctx, r.st); err != nil {
		if fresh && surehook.CodeOf(err) == surehook.Conflict { // else it may have been begun all the same
			err = errors.Join(err, r.src.SetMark(context.WithoutCancel(ctx), nil))
		}
		return false, err
	}
	return false, nil
}

// copy brings the rows that aren't there yet.
func (r *run) copy(ctx context.Context) error {
	first := 0
	for i, t := range Tables {
		if t.Name == r.st.Table {
			first = i
		}
	}
	for _, t := range Tables[first:] {
		after := r.st.After
		if t.Name != r.st.Table {
			after = nil
		}
		for {
			if err := ctx.Err(); err != nil {
				return err
			}
			rows, last, err := r.src.Read(ctx, t, after, batchRows, batchBytes)
			if err != nil {
				return within(t, err)
			}
			if len(rows) == 0 {
				break
			}
			next := *r.st
			next.Table, next.After, next.Rows = t.Name, last, r.st.Rows+int64(len(rows))
			if err := r.dst.Write(ctx, t, rows, r.st, &next); err != nil {
				return within(t, fmt.Errorf("the rows up to %s: %w", last, err))
			}
			r.st, after = &next, last
			r.progress("moving", t.Name, r.st.Rows, r.total)
		}
	}
	return nil
}

// within names the table that an error is about.
func within(t Table, err error) error { return fmt.Errorf("%s: %w", t.Name, err) }

// compare reads everything again, on both sides.
func (r *run) compare(ctx context.Context) ([]TableReport, error) {
	var out []TableReport
	var done int64
	var differ []string
	for _, t := range Tables {
		here, there, err := r.sums(ctx, t, done)
		if err != nil {
			return out, within(t, err)
		}
		done += here.Rows
		same := here.Rows == there.Rows && here.Hash == there.Hash
		if !same {
			differ = append(differ, t.Name)
		}
		out = append(out, TableReport{Table: t.Name, Rows: here.Rows, Checksum: here.String(), There: there.Rows, SumThere: there.String(), Equal: same})
	}
	if differ != nil {
		return out, surehook.Errorf(surehook.Conflict, "the target doesn't hold the same as the source in %v: nothing was taken into use; empty the target and start again", differ)
	}
	return out, nil
}

// sums reads a table on both sides at once.
func (r *run) sums(ctx context.Context, t Table, done int64) (here, there Sum, err error) {
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	over := make(chan struct{})
	go func() {
		defer close(over)
		if err := r.dst.Each(ctx, t, there.Add); err != nil {
			stop(err)
		}
	}()
	if err := r.sumHere(ctx, t, &here, done); err != nil {
		stop(err)
	}
	<-over
	return here, there, context.Cause(ctx) // the first error, not the one that it led to
}

func (r *run) sumHere(ctx context.Context, t Table, sum *Sum, done int64) error {
	for after := Position(nil); ; {
		if err := ctx.Err(); err != nil {
			return err
		}
		rows, last, err := r.src.Read(ctx, t, after, batchRows, batchBytes)
		if err != nil || len(rows) == 0 {
			return err
		}
		for _, row := range rows {
			if err := sum.Add(row); err != nil {
				return err
			}
		}
		after = last
		r.progress("comparing", t.Name, done+sum.Rows, r.total)
	}
}
