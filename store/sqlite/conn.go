package sqlite

import (
	"fmt"
	"time"

	"github.com/ncruces/go-sqlite3"

	"github.com/surehook/surehook/store/internal/row"
)

// busyTimeout is how long a lock of another process is waited for.
const busyTimeout = 5 * time.Second

// conn is one connection with its prepared statements. It belongs to one
// goroutine at a time.
type conn struct {
	*sqlite3.Conn
	stmts map[string]*sqlite3.Stmt
	hots  map[string]*hot

	foreign bool // the statement at hand is the application's
	altered bool // such a one has made or changed a table
}

// open opens a connection to the file. The writer's is read-write; readers
// can't change anything.
func open(path string, readOnly bool, cacheKiB int, sync Sync) (*conn, error) {
	flags := sqlite3.OPEN_READWRITE | sqlite3.OPEN_CREATE
	if readOnly {
		flags = sqlite3.OPEN_READONLY
	}
	c, err := sqlite3.OpenFlags(path, flags)
	if err != nil {
		return nil, err
	}
	pragmas := fmt.Sprintf(`PRAGMA busy_timeout = %d; PRAGMA cache_size = -%d; PRAGMA temp_store = MEMORY;`, busyTimeout.Milliseconds(), cacheKiB)
	if !readOnly {
		// The page size only takes hold in an empty file, before WAL.
		pragmas += fmt.Sprintf(`PRAGMA page_size = 16384; PRAGMA journal_mode = WAL; PRAGMA synchronous = %s;
			PRAGMA secure_delete = ON; -- so that what is erased is in no free page, wherever it was before
			PRAGMA journal_size_limit = %d;`, sync, walKeep)
	}
	out := &conn{Conn: c, stmts: make(map[string]*sqlite3.Stmt), hots: make(map[string]*hot)}
	if err := c.Exec(pragmas); err != nil {
		return nil, fmt.Errorf("preparing the connection: %w", closing(out, err))
	}
	if !readOnly {
		if err := c.SetAuthorizer(out.authorize); err != nil {
			return nil, closing(out, err)
		}
	}
	return out, nil
}

// closing closes c because of err, which stays the error that matters.
func closing(c *conn, err error) error {
	_ = c.close()
	return err
}

// close finalises the statements and closes the connection.
func (c *conn) close() error {
	for _, s := range c.stmts {
		_ = s.Close() // repeats the statement's last error, which its user has seen
	}
	return c.Conn.Close()
}

// stmt gives the prepared statement for sql, ready to be bound.
func (c *conn) stmt(sql string) (*sqlite3.Stmt, error) {
	if s, ok := c.stmts[sql]; ok {
		return s, nil
	}
	s, _, err := c.PrepareFlags(sql, sqlite3.PREPARE_PERSISTENT)
	if err != nil {
		return nil, fmt.Errorf("preparing %q: %w", head(sql), err)
	}
	c.stmts[sql] = s
	return s, nil
}

// head is enough of a statement to recognise it. Statements hold no values.
func head(sql string) string {
	if len(sql) > 60 {
		return sql[:60] + "…"
	}
	return sql
}

// exec runs a statement and gives the number of rows that it changed.
func (c *conn) exec(sql string, args ...any) (int64, error) {
	s, err := c.stmt(sql)
	if err != nil {
		return 0, err
	}
	if err := bind(s, args); err != nil {
		return 0, err
	}
	if err := s.Exec(); err != nil {
		return 0, err
	}
	return c.Changes(), nil
}

// savepoint runs f so that its error undoes f alone. An error that every other
// use of the file would meet too comes back as err.
func (c *conn) savepoint(f func() error) (refused, err error) {
	if _, err := c.exec(`SAVEPOINT alone`); err != nil {
		return nil, err
	}
	if refused = f(); refused != nil {
		if storeIsGone(refused) {
			return nil, refused
		}
		if _, err := c.exec(`ROLLBACK TO alone`); err != nil {
			return nil, err
		}
	}
	_, err = c.exec(`RELEASE alone`)
	return refused, err
}

// each runs a query and calls row for every row; the statement must not be
// run again meanwhile.
func (c *conn) each(sql string, args []any, row func(*sqlite3.Stmt) error) error {
	s, err := c.stmt(sql)
	if err != nil {
		return err
	}
	if err := bind(s, args); err != nil {
		return err
	}
	for s.Step() {
		if err := row(s); err != nil {
			_ = s.Reset() // repeats nothing new: the row's error is the one that matters
			return err
		}
	}
	err = s.Err()
	if rerr := s.Reset(); err == nil {
		err = rerr
	}
	return err
}

// one runs a query for its first row and tells whether there was one.
func (c *conn) one(sql string, args []any, row func(*sqlite3.Stmt) error) (bool, error) {
	found := false
	err := c.each(sql, args, func(s *sqlite3.Stmt) error {
		if found {
			return nil
		}
		found = true
		return row(s)
	})
	return found, err
}

// int64 runs a query for one number; 0 without a row.
func (c *conn) int64(sql string, args ...any) (int64, error) {
	var n int64
	_, err := c.one(sql, args, func(s *sqlite3.Stmt) error {
		n = s.ColumnInt64(0)
		return nil
	})
	return n, err
}

func bind(s *sqlite3.Stmt, args []any) error {
	for i, a := range args {
		var err error
		switch v := a.(type) {
		case int64:
			err = s.BindInt64(i+1, v)
		case int:
			err = s.BindInt64(i+1, int64(v))
		case string:
			err = s.BindText(i+1, v)
		case []byte:
			if v == nil {
				err = s.BindNull(i + 1)
			} else {
				err = s.BindBlob(i+1, v)
			}
		case bool:
			err = s.BindBool(i+1, v)
		case time.Time:
			err = s.BindInt64(i+1, millis(v))
		case time.Duration:
			err = s.BindInt64(i+1, v.Milliseconds())
		case []string:
			err = s.BindText(i+1, row.List(v))
		case nil:
			err = s.BindNull(i + 1)
		default:
			err = fmt.Errorf("sqlite: can't bind a %T", a)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// millis is how times are stored; the zero time is 0.
func millis(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixMilli()
}

// at is millis backwards.
func at(ms int64) time.Time {
	if ms == 0 {
		return time.Time{}
	}
	return time.UnixMilli(ms).UTC()
}

// unlist reads a list of strings.
func unlist(raw []byte) ([]string, error) { return row.ParseList(raw) }

// micros reads a duration.
func micros(st *sqlite3.Stmt, i int) time.Duration {
	return time.Duration(st.ColumnInt64(i)) * time.Microsecond
}
