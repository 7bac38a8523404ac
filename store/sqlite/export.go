package sqlite

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/ncruces/go-sqlite3"

	"github.com/surehook/surehook"
	"github.com/surehook/surehook/internal/move"
	"github.com/surehook/surehook/store/internal/row"
)

// Source is a file that is moved into another store. Nobody else has it open.
type Source struct{ s *Store }

var _ move.Source = (*Source)(nil)

// OpenSource opens a file that is there, as Open does, also one that is being
// moved already.
func OpenSource(ctx context.Context, path string, opt Options) (*Source, error) {
	if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
		return nil, surehook.Errorf(surehook.NotFound, "there is no store in %s", filepath.Dir(path))
	}
	opt.source = true
	s, err := Open(ctx, path, opt)
	if err != nil {
		return nil, err
	}
	return &Source{s}, nil
}

// Close gives the file free.
func (x *Source) Close() error { return x.s.Close() }

// Mark implements move.Source.
func (x *Source) Mark(ctx context.Context) (*move.Mark, error) {
	note, err := x.s.Setting(ctx, move.Setting)
	switch {
	case surehook.CodeOf(err) == surehook.NotFound:
		return nil, nil
	case err != nil:
		return nil, err
	}
	m := &move.Mark{}
	if err := json.Unmarshal(note, m); err != nil {
		return nil, fmt.Errorf("settings: the note of a move can't be read; --abandon removes it: %w", err)
	}
	return m, nil
}

// SetMark implements move.Source.
func (x *Source) SetMark(_ context.Context, m *move.Mark) error {
	if m == nil {
		return x.s.change(func(c *conn) error {
			_, err := c.exec(`DELETE FROM settings WHERE name = ?`, move.Setting)
			return err
		})
	}
	note, err := json.Marshal(m)
	if err != nil {
		return err
	}
	_, err = x.s.PutSetting(context.Background(), move.Setting, note, true)
	return err
}

// notMoved refuses a file that is on its way into another store, or is there: its
// deliveries are made from there.
func notMoved(c *conn) error {
	note, err := setting(c, move.Setting)
	if surehook.CodeOf(err) == surehook.NotFound {
		return nil
	}
	if err != nil {
		return err
	}
	m := move.Mark{To: "another store"}
	_ = json.Unmarshal(note, &m) // a note that can't be read is one too
	return surehook.Errorf(surehook.Conflict, "this store was moved to %s, or is on the way: start there when surehook migrate-store has finished; "+
		"surehook migrate-store --abandon takes this one into use again", m.To)
}

// Tops implements move.Source.
func (x *Source) Tops(ctx context.Context) (id, config int64, err error) {
	err = x.s.snapshot(ctx, func(c *conn) error {
		if id, err = c.int64(`SELECT value FROM counters WHERE name = 'key'`); err == nil {
			config, err = c.int64(`SELECT value FROM counters WHERE name = 'config'`)
		}
		return err
	})
	return id, config, err
}

// Count implements move.Source.
func (x *Source) Count(ctx context.Context, t move.Table) (n int64, err error) {
	e := exports[t.Name]
	from, _, _ := strings.Cut(e.from, " LEFT JOIN ") // which adds no rows
	err = x.s.snapshot(ctx, func(c *conn) error {
		n, err = c.int64(`SELECT count(*) FROM ` + from + where(e.where))
		return err
	})
	return n, err
}

func where(cond string) string {
	if cond == "" {
		return ""
	}
	return ` WHERE ` + cond
}

// Read implements move.Source.
func (x *Source) Read(ctx context.Context, t move.Table, after move.Position, rows, size int) (out []move.Row, last move.Position, err error) {
	sql, args, err := exportSQL(t, after)
	if err != nil {
		return nil, nil, err
	}
	err = x.s.snapshot(ctx, func(c *conn) error {
		out = out[:0]
		left := size
		err := c.each(sql, append(args, rows), func(st *sqlite3.Stmt) error {
			if left <= 0 {
				return errEnough
			}
			if last, err = position(st, t); err != nil {
				return err
			}
			r, err := exportRow(st, t)
			if err != nil {
				return damaged("the row with %s is damaged: %s", rowName(st, t), err)
			}
			out, left = append(out, r), left-r.Size()
			return nil
		})
		if errors.Is(err, errEnough) {
			err = nil
		}
		return err
	})
	return out, last, err
}

func exportRow(st *sqlite3.Stmt, t move.Table) (move.Row, error) {
	r := make(move.Row, len(t.Columns))
	for i, col := range t.Columns {
		v, err := value(st, i, col.Kind)
		if err != nil {
			return nil, fmt.Errorf("%s %w", col.Name, err)
		}
		r[i] = v
	}
	e := exports[t.Name]
	if e.make == nil {
		return r, nil
	}
	at := func(column string) int {
		return slices.IndexFunc(t.Columns, func(c move.Column) bool { return c.Name == column })
	}
	v, err := e.make(func(column string) any { return r[at(column)] })
	r[at(e.made)] = v
	return r, err
}

// exportSQL reads the columns of t, and after them what the rows are ordered by.
func exportSQL(t move.Table, after move.Position) (string, []any, error) {
	e, ok := exports[t.Name]
	if !ok {
		return "", nil, errors.New("nobody knows how to read it")
	}
	cols := make([]string, 0, len(t.Columns)+len(e.order))
	for _, c := range t.Columns {
		expr := e.as[c.Name]
		if expr == "" {
			expr = "x." + c.Name
		}
		cols = append(cols, expr)
	}
	cols = append(cols, e.order...)
	order := strings.Join(e.order, ", ")
	cond, args := e.where, []any(nil)
	if after != nil {
		var err error
		if args, err = positionArgs(after); err != nil || len(args) != len(e.order) {
			return "", nil, errors.Join(errors.New("the note of how far the move got can't be read"), err)
		}
		if cond != "" {
			cond += " AND "
		}
		cond += "(" + order + ") > (?" + strings.Repeat(", ?", len(args)-1) + ")"
	}
	return `SELECT ` + strings.Join(cols, ", ") + ` FROM ` + e.from + where(cond) + ` ORDER BY ` + order + ` LIMIT ?`, args, nil
}

// position is what a row is ordered by.
func position(st *sqlite3.Stmt, t move.Table) (move.Position, error) {
	var vs []any
	for i := len(t.Columns); i < st.ColumnCount(); i++ {
		switch st.ColumnType(i) {
		case sqlite3.INTEGER:
			vs = append(vs, st.ColumnInt64(i))
		case sqlite3.TEXT:
			vs = append(vs, st.ColumnText(i))
		default:
			return nil, damaged("a row is damaged: what names it is %s", typeName(st.ColumnType(i)))
		}
	}
	return json.Marshal(vs)
}

// rowName is position for people.
func rowName(st *sqlite3.Stmt, t move.Table) string {
	var parts []string
	for i, column := range exports[t.Name].order {
		parts = append(parts, strings.TrimPrefix(column, "x.")+" "+st.ColumnText(len(t.Columns)+i))
	}
	return strings.Join(parts, ", ")
}

func positionArgs(p move.Position) ([]any, error) {
	d := json.NewDecoder(bytes.NewReader(p))
	d.UseNumber()
	var vs []any
	if err := d.Decode(&vs); err != nil {
		return nil, err
	}
	for i, v := range vs {
		if n, ok := v.(json.Number); ok {
			k, err := n.Int64()
			if err != nil {
				return nil, err
			}
			vs[i] = k
		}
	}
	return vs, nil
}

// damaged is an error about a row that can't be moved as it is.
func damaged(format string, args ...any) error {
	return surehook.Errorf(surehook.Conflict, format+"; mend or delete it with the sqlite3 tool, or restore a backup, and call again", args...)
}

func typeName(t sqlite3.Datatype) string {
	switch t {
	case sqlite3.INTEGER:
		return "a number"
	case sqlite3.FLOAT:
		return "a fraction"
	case sqlite3.TEXT:
		return "a text"
	case sqlite3.BLOB:
		return "bytes"
	}
	return "empty"
}

// wants is the type that SQLite gives a kind of column.
func wants(k move.Kind) sqlite3.Datatype {
	switch k {
	case move.Text, move.Said, move.List, move.Headers, move.Limits:
		return sqlite3.TEXT
	case move.Bytes, move.MayBytes, move.UUID:
		return sqlite3.BLOB
	}
	return sqlite3.INTEGER
}

var errNoEvent = errors.New("can't be told, since the event is gone")

// value reads a column, and refuses what isn't of its kind: SQLite itself stores
// anything anywhere.
func value(st *sqlite3.Stmt, i int, k move.Kind) (any, error) {
	got := st.ColumnType(i)
	switch {
	case got == sqlite3.NULL && (k == move.MayInt || k == move.MayBytes):
		return nil, nil
	case got == sqlite3.NULL && k == move.Key:
		return nil, errNoEvent
	case got != wants(k):
		return nil, fmt.Errorf("is %s", typeName(got))
	}
	switch wants(k) {
	case sqlite3.INTEGER:
		return number(st.ColumnInt64(i), k)
	case sqlite3.TEXT:
		return text(st.ColumnText(i), k)
	}
	b := st.ColumnBlob(i, nil)
	if b == nil {
		b = []byte{}
	}
	if k == move.UUID {
		if len(b) != 16 {
			return nil, fmt.Errorf("has %d bytes, not 16", len(b))
		}
		return [16]byte(b), nil
	}
	return b, nil
}

func number(v int64, k move.Kind) (any, error) {
	low, high := int64(math.MinInt64), int64(math.MaxInt64)
	switch k {
	case move.Bool:
		low, high = 0, 1
	case move.Int32:
		low, high = math.MinInt32, math.MaxInt32
	case move.Int16:
		low, high = math.MinInt16, math.MaxInt16
	case move.Key:
		low = 0
	case move.Moment:
		low, high = 0, move.LastMoment
	}
	switch {
	case v < low || v > high:
		return nil, fmt.Errorf("is %d, out of its range", v)
	case k == move.Bool:
		return v == 1, nil
	}
	return v, nil
}

func text(s string, k move.Kind) (any, error) {
	var err error
	switch k {
	case move.Said:
		return strings.ReplaceAll(strings.ToValidUTF8(s, "\uFFFD"), "\x00", "\uFFFD"), nil
	case move.List:
		_, err = row.ParseList(s)
	case move.Headers:
		_, err = row.ParseHeaders(s)
	case move.Limits:
		_, err = row.ParseLimits(s)
	}
	switch {
	case err != nil:
		return nil, errors.New("isn't the JSON that belongs there") // the parser's error may hold some of it
	case !utf8.ValidString(s) || slices.Contains([]byte(s), 0):
		return nil, errors.New("has U+0000 in it, or isn't UTF-8")
	}
	return s, nil
}
