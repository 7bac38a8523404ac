package sqlite

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"sync"
	"time"

	"github.com/ncruces/go-sqlite3"

	"github.com/surehook/surehook"
	"github.com/surehook/surehook/internal/accept"
)

const txLimit = 5 * time.Second

// Tx is a transaction of the application's, in the store's own file: its tables
// and its events change together or not at all. It is used by one goroutine, and
// ends with the function that it was given to.
//
// The application's tables have names that begin with app_, so that no later
// version of Surehook needs the same ones. It may read all others.
type Tx struct {
	s     *Store
	limit time.Duration

	begun chan struct{} // closed when it may be used
	ended chan error    // what the application's function came to

	mu     sync.Mutex
	ctx    context.Context
	c      *conn
	open   map[*sqlite3.Stmt]bool
	broken error // why it can't be committed any more
	added  bool
}

// Tx runs f in a transaction and waits for its commit. An error of f undoes all,
// and is given as it is; so does a panic. Everybody who writes waits meanwhile:
// f must be quick, and must use nothing of the store and the engine but tx. When
// it isn't done after Options.TxLimit, or when ctx ends, all is undone, and f's
// next step is refused.
func (s *Store) Tx(ctx context.Context, f func(tx *Tx) error) error {
	if err := s.space.check(); err != nil {
		return err
	}
	if ctx.Err() != nil {
		return unavailable("the transaction was cancelled before it began", ctx.Err())
	}
	tx := &Tx{s: s, ctx: ctx, limit: s.opt.TxLimit, begun: make(chan struct{}), ended: make(chan error, 1), open: make(map[*sqlite3.Stmt]bool)}
	if tx.limit <= 0 {
		tx.limit = txLimit
	}
	j := &job{run: tx.run, solo: true, bare: true, done: make(chan error, 1)}
	select {
	case s.w.jobs <- j:
	case <-s.w.gone:
		return errClosed
	case <-ctx.Done():
		return unavailable("the store is busy writing", ctx.Err())
	}
	select {
	case <-tx.begun:
	case err := <-j.done: // it couldn't be begun
		return wrap(err)
	}
	returned := false
	defer func() {
		if !returned { // f panicked, or ended its goroutine
			tx.ended <- errors.New("the transaction's function didn't return")
			<-j.done //nolint:errcheck // just that
		}
	}()
	err := f(tx)
	returned = true
	tx.ended <- err
	done := <-j.done
	switch {
	case err != nil:
		return err
	case done != nil:
		return wrap(done)
	}
	if tx.added {
		s.tell(surehook.Change{Outbox: true})
	}
	return nil
}

// run is the writer's side: it lends its connection for as long as that is
// allowed. The writer's goroutine does nothing else meanwhile.
func (tx *Tx) run(c *conn) error {
	ctx, cancel := context.WithTimeout(tx.ctx, tx.limit)
	defer cancel()
	tx.mu.Lock()
	tx.c, tx.ctx = c, ctx
	tx.mu.Unlock()
	close(tx.begun)
	var err, late error
	select {
	case err = <-tx.ended:
	case <-ctx.Done():
	}
	if err == nil && ctx.Err() != nil { // also when both came at once
		late = tx.late()
		err = late
	}
	tx.mu.Lock() // a statement that runs is interrupted by ctx
	defer tx.mu.Unlock()
	for st := range tx.open {
		_ = st.Close() // nobody reads on
	}
	clear(tx.open)
	if err == nil {
		err = tx.broken
	}
	if err == nil && c.altered {
		err = checkTables(c)
	}
	c.altered = false
	if tx.broken == nil {
		if tx.broken = late; late == nil {
			tx.broken = errOver
		}
	}
	return err
}

var errOver = surehook.Errorf(surehook.Conflict, "the transaction is over")

// late tells why the transaction was ended early.
func (tx *Tx) late() error {
	if errors.Is(tx.ctx.Err(), context.Canceled) {
		return unavailable("the transaction was cancelled, and undone", context.Canceled)
	}
	return unavailable(fmt.Sprintf("the transaction took longer than %v, and was undone: others wait for it", tx.limit), context.DeadlineExceeded)
}

// use runs f on the connection, under the rules for the application's statements
// where they are such.
func (tx *Tx) use(foreign bool, f func(c *conn) error) error {
	tx.mu.Lock()
	defer tx.mu.Unlock()
	if tx.broken != nil {
		return tx.broken
	}
	c := tx.c
	c.foreign = foreign
	defer func() { c.foreign = false }()
	defer c.SetInterrupt(c.SetInterrupt(tx.ctx))
	err := f(c)
	switch {
	case errors.Is(err, sqlite3.INTERRUPT):
		tx.broken = tx.late()
		return tx.broken
	case c.GetAutocommit(): // by INSERT OR ROLLBACK and the like: what follows would be a transaction of its own
		tx.broken = surehook.Errorf(surehook.Conflict, "a statement rolled the transaction back").WithCause(err)
		return tx.broken
	case storeIsGone(err):
		tx.broken = err
	case errors.Is(err, sqlite3.AUTH):
		return surehook.Errorf(surehook.InvalidRequest, "the statement may not run here: it may make and change tables whose names begin with %s, "+
			"and may not begin or end transactions, set pragmas or attach files", appTable).WithCause(err)
	}
	return err
}

// Enqueue adds events, and gives their ids. They are accepted with the commit,
// and delivered from then on. All are added or none. An id that is there already,
// with the same content, is the same event.
func (tx *Tx) Enqueue(events ...surehook.Event) ([]string, error) {
	accepted, err := accept.Events(events, tx.s.now())
	if err != nil || len(accepted) == 0 {
		return nil, err
	}
	ids := make([]string, len(accepted))
	var refused error
	err = tx.use(false, func(c *conn) (err error) {
		refused, err = c.savepoint(func() error {
			for i, e := range accepted {
				h := e.ContentHash()
				var out surehook.Appended
				if err := tx.s.enqueue(c, e, h[:], &out); err != nil {
					return err
				}
				if out.Err != nil {
					return out.Err
				}
				ids[i] = e.ID
			}
			return nil
		})
		return err
	})
	switch {
	case err != nil:
		return nil, err
	case refused != nil:
		return nil, wrap(refused)
	}
	tx.added = true
	return ids, nil
}

// Exec runs one statement, or several without arguments, and gives the number of
// rows that the last one changed. Arguments are nil, bool, integers, floats,
// string, []byte and time.Time, which is stored as text in RFC 3339.
func (tx *Tx) Exec(sql string, args ...any) (int64, error) {
	var n int64
	err := tx.use(true, func(c *conn) error {
		for rest := sql; rest != ""; {
			st, tail, err := c.Prepare(rest)
			if err != nil {
				return err
			}
			rest = tail
			if st == nil { // a comment, or nothing
				continue
			}
			n = 0
			before := c.TotalChanges()
			err = bindApp(st, args)
			if err == nil {
				err = st.Exec()
			}
			if err := errors.Join(err, st.Close()); err != nil {
				return err
			}
			if c.TotalChanges() > before {
				n = c.Changes()
			}
		}
		return nil
	})
	return n, err
}

// Query runs one statement and gives its rows, each valid until the next.
//
//	for row, err := range tx.Query(`SELECT id FROM app_orders WHERE paid = ?`, false) {
//		if err != nil {
//			return err
//		}
//		if err := row.Scan(&id); err != nil { … }
//	}
func (tx *Tx) Query(sql string, args ...any) iter.Seq2[Row, error] {
	return func(yield func(Row, error) bool) {
		var st *sqlite3.Stmt
		err := tx.use(true, func(c *conn) (err error) {
			if st, _, err = c.Prepare(sql); err != nil || st == nil {
				return err
			}
			tx.open[st] = true
			return bindApp(st, args)
		})
		if st == nil && err == nil {
			return
		}
		defer tx.close(st)
		for err == nil {
			more := false
			err = tx.use(true, func(*conn) error {
				more = st.Step()
				return st.Err()
			})
			if err == nil && (!more || !yield(Row{tx, st}, nil)) {
				return
			}
		}
		yield(Row{}, err)
	}
}

// close ends a statement, unless that was done with the transaction.
func (tx *Tx) close(st *sqlite3.Stmt) {
	tx.mu.Lock()
	defer tx.mu.Unlock()
	if st != nil && tx.open[st] {
		delete(tx.open, st)
		_ = st.Close() // repeats the statement's last error, which its user has seen
	}
}
