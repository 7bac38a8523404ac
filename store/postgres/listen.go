package postgres

import (
	"context"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/surehook/surehook"
)

const (
	listenRetry = time.Second
	listenCheck = 30 * time.Second // a silent connection is asked whether it is still there
	listenReply = 5 * time.Second  // and has this long to answer
	deafPoll    = 2 * time.Second  // between looks while notices don't arrive
	notifyMost  = 400              // endpoints that one notice names; past it: all
)

// watchers are who wants to hear of changes.
type watchers struct {
	mu     sync.Mutex
	f      func(surehook.Change)
	asleep atomic.Bool // the mark in the database, as this node last saw it
	deaf   atomic.Bool // it was said that notices don't arrive
}

func (w *watchers) tell(c surehook.Change) {
	w.mu.Lock()
	f := w.f
	w.mu.Unlock()
	if f != nil {
		f(c)
	}
}

// Watch implements surehook.Store.
func (s *Store) Watch(f func(surehook.Change)) {
	s.watch.mu.Lock()
	defer s.watch.mu.Unlock()
	s.watch.f = f
}

// listenLoop hears what other nodes and callers' transactions say. Notices may
// be lost with a connection, so after each new one everything is looked at; and
// the engine's own slow polls stand behind.
func (s *Store) listenLoop() {
	for s.ctx.Err() == nil {
		err := s.listen(s.ctx)
		if s.ctx.Err() != nil {
			return
		}
		s.log.Warn("notices can't be heard; polling until they can", "error", wrap(err))
		select {
		case <-s.ctx.Done():
		case <-time.After(listenRetry):
		}
	}
}

func (s *Store) listen(ctx context.Context) error {
	cfg := s.pool.Config().ConnConfig
	if s.opt.ListenDSN != "" {
		var err error
		if cfg, err = pgx.ParseConfig(s.opt.ListenDSN); err != nil {
			return unavailable("the address for notices can't be read", nil)
		}
	}
	conn, err := pgx.ConnectConfig(ctx, cfg)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }() // it only listens
	if _, err := conn.Exec(ctx, `LISTEN `+s.schema); err != nil {
		return err
	}
	if err := s.echo(ctx, conn); err != nil {
		return err
	}
	hears := false
	s.watch.tell(surehook.Change{Config: true, Outbox: true, Rows: true, Erased: true})
	for {
		quiet := s.opt.listenCheck
		if !hears {
			quiet = deafPoll
		}
		wait, cancel := context.WithTimeout(ctx, quiet)
		n, err := conn.WaitForNotification(wait)
		cancel()
		switch {
		case err == nil:
			hears = true
			s.heard(n)
		case ctx.Err() != nil:
			return ctx.Err()
		case wait.Err() != nil && !conn.IsClosed():
			if err := ping(ctx, conn); err != nil {
				return err
			}
			if !hears {
				s.poll()
			}
		default:
			return err
		}
	}
}

// ping asks whether the server is still there. One that was cut off says nothing
// at all, and the system would wait for it for a quarter of an hour.
func ping(ctx context.Context, conn *pgx.Conn) error {
	ctx, cancel := context.WithTimeout(ctx, listenReply)
	defer cancel()
	return conn.Ping(ctx)
}

// echo has a notice sent to this connection alone, by way of the pool. A pooler in
// transaction mode takes the LISTEN and passes nothing on: without a notice that
// must come, nobody would find out.
func (s *Store) echo(ctx context.Context, conn *pgx.Conn) error {
	channel := "surehook.echo." + strconv.FormatInt(s.Lease().Epoch, 36)
	if _, err := conn.Exec(ctx, `LISTEN `+pgx.Identifier{channel}.Sanitize()); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, readLimit)
	defer cancel()
	return s.do(ctx, `SELECT pg_notify($1, '')`, channel)
}

// poll stands in for notices that don't arrive.
func (s *Store) poll() {
	if !s.watch.deaf.Swap(true) {
		s.log.Warn("notices don't arrive, as behind a pooler in transaction mode: looking for changes every "+deafPoll.String()+
			" instead; give an address past the pooler for them", "setting", "database-listen")
	}
	s.watch.tell(surehook.Change{Config: true, Outbox: true, Rows: true, Erased: true})
}

// calls gathers the endpoints that other nodes are to look at: one notice for
// all that came within callEvery.
type calls struct {
	mu   sync.Mutex
	keys map[int64]bool
	ring chan struct{}
}

const (
	callEvery = 20 * time.Millisecond
	anyone    = 0 // stands for every endpoint
)

func (c *calls) add(endpoint int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.keys == nil {
		c.keys = make(map[int64]bool)
	}
	c.keys[endpoint] = true
	select {
	case c.ring <- struct{}{}:
	default:
	}
}

func (c *calls) take() map[int64]bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	keys := c.keys
	c.keys = nil
	return keys
}

// callLoop tells other nodes of rows that this one won't send. What it can't
// tell they find by themselves, within a minute.
func (s *Store) callLoop() {
	for {
		select {
		case <-s.ctx.Done():
			return
		case <-s.calls.ring:
		}
		keys := s.calls.take()
		if len(keys) == 0 {
			continue
		}
		if err := s.do(s.ctx, `SELECT pg_notify($1, $2)`, s.opt.Schema, rowsNotice(keys)); err != nil && s.ctx.Err() == nil {
			s.log.Warn("other nodes couldn't be told of rows; they find them within a minute", "error", wrap(err))
		}
		select {
		case <-s.ctx.Done():
		case <-time.After(callEvery):
		}
	}
}

// rowsNotice names the endpoints, or none when they are too many for a notice.
func rowsNotice(keys map[int64]bool) string {
	var b strings.Builder
	b.WriteString("rows")
	if len(keys) > notifyMost || keys[anyone] {
		return b.String()
	}
	for k := range keys {
		b.WriteString(" " + strconv.FormatInt(k, 36))
	}
	return b.String()
}

// heard takes a notice: "config", "erased", "outbox", or "rows" with the endpoints whose
// rows are due. An echo says nothing.
func (s *Store) heard(n *pgconn.Notification) {
	what, rest, _ := strings.Cut(n.Payload, " ")
	switch what {
	case "config":
		s.watch.tell(surehook.Change{Config: true})
	case "erased":
		s.watch.tell(surehook.Change{Erased: true})
	case "outbox":
		s.watch.tell(surehook.Change{Outbox: true})
	case "rows":
		c := surehook.Change{Rows: rest == ""}
		for f := range strings.FieldsSeq(rest) {
			if key, err := strconv.ParseInt(f, 36, 64); err == nil {
				c.Endpoints = append(c.Endpoints, key)
			}
		}
		s.watch.tell(c)
	}
}
