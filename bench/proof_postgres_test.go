package main

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/surehook/surehook/internal/pgserver"
)

// cluster is node processes on one database, and what was published to them.
type cluster struct {
	t      *testing.T
	nodes  []*server
	ledger *ledger
	work   sync.WaitGroup

	mu       sync.Mutex
	accepted map[string]bool
	refused  atomic.Int64 // answers 503
}

// newCluster starts n nodes with a short lease, and makes the endpoints.
func newCluster(t *testing.T, n int, dsn string, args ...string) *cluster {
	t.Helper()
	c := &cluster{t: t, accepted: map[string]bool{}}
	l, url := newLedger(t)
	c.ledger = l
	for range n {
		c.nodes = append(c.nodes, newProcess(t, dsn, args...))
	}
	for _, s := range c.nodes { // all at once, on an empty database
		s.launch()
	}
	for _, s := range c.nodes {
		s.until(http.StatusOK, 30*time.Second)
	}
	c.nodes[n-1].hooks(url)
	return c
}

func newProcess(t *testing.T, dsn string, args ...string) *server {
	t.Helper()
	s := newServer(t)
	s.args = append([]string{"--database-lease", "10s"}, args...)
	s.env = []string{"SUREHOOK_MASTER_KEY=" + base64.StdEncoding.EncodeToString(bytes.Repeat([]byte{7}, 32)), "SUREHOOK_DATABASE=" + dsn}
	return s
}

// publish posts events to all nodes in turn until the returned function is
// called. What was answered 2xx is noted; a refusal must be one that asks to try
// again, and is tried again with the same id, mostly at another node.
func (c *cluster) publish(round int) (stop func()) {
	ctx, cancel := context.WithCancel(c.t.Context())
	for w := range proofPublishers {
		c.work.Go(func() {
			for n := 0; ctx.Err() == nil; n++ {
				c.publishOne(ctx, fmt.Sprintf("p-%d-%d-%d", round, w, n))
				<-time.After(2 * time.Millisecond)
			}
		})
	}
	stop = func() {
		cancel()
		c.work.Wait()
	}
	c.t.Cleanup(stop)
	return stop
}

func (c *cluster) publishOne(ctx context.Context, id string) {
	for try := rand.IntN(len(c.nodes)); ctx.Err() == nil; try++ {
		status, err := c.post(ctx, c.nodes[try%len(c.nodes)], id)
		switch {
		case err != nil: // the node was killed
			<-time.After(10 * time.Millisecond)
		case status/100 == 2:
			c.mu.Lock()
			c.accepted[id] = true
			c.mu.Unlock()
			return
		case status == http.StatusServiceUnavailable:
			c.refused.Add(1)
			<-time.After(20 * time.Millisecond)
		default:
			return
		}
	}
}

// post gives the status of one try. What isn't a yes must say when to come back.
func (c *cluster) post(ctx context.Context, s *server, id string) (int, error) {
	body, err := json.Marshal(map[string]any{"id": id, "type": "proof.cluster", "data": map[string]string{"id": id}})
	if err != nil {
		return 0, err
	}
	req, err := http.NewRequestWithContext(context.WithoutCancel(ctx), http.MethodPost, "http://"+s.addr+"/v1/events", bytes.NewReader(body))
	if err != nil {
		return 0, err
	}
	req.Header.Set("Authorization", "Bearer "+proofKey)
	req.Header.Set("Content-Type", "application/json")
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, err
	}
	defer res.Body.Close()
	said, err := io.ReadAll(res.Body)
	if err != nil {
		return 0, err
	}
	if res.StatusCode/100 != 2 && (res.StatusCode != http.StatusServiceUnavailable || res.Header.Get("Retry-After") == "") {
		c.t.Errorf("a publisher was answered %d, Retry-After %q: %s", res.StatusCode, res.Header.Get("Retry-After"), said)
	}
	return res.StatusCode, nil
}

// settle waits until all that was accepted has arrived, and bounds what arrived
// twice by what can have been in flight at that many faults.
func (c *cluster) settle(faults, least int) {
	c.t.Helper()
	start := time.Now()
	c.ledger.settle(c.t, c.accepted)
	dup := c.ledger.duplicates()
	c.t.Logf("%d faults, %d events accepted, %d refusals, 0 lost, %d duplicate requests, settled in %v", faults, len(c.accepted), c.refused.Load(), dup,
		time.Since(start).Round(time.Millisecond))
	if len(c.accepted) < least {
		c.t.Errorf("only %d events were accepted: the proof shows little", len(c.accepted))
	}
	if most := faults * (8*proofEndpoints + 1024); dup > most {
		c.t.Errorf("%d duplicates, more than the %d that can have been in flight", dup, most)
	}
}

// end stops the nodes in order, which must leave nothing behind.
func (c *cluster) end() {
	c.t.Helper()
	for _, s := range c.nodes {
		if code := s.term(); code != 0 {
			c.t.Errorf("exit code %d after SIGTERM\n%s", code, s.log.String())
		}
	}
}

// The promise over many nodes: kill -9 of any of them at any moment.
func TestProofPostgresCrash(t *testing.T) {
	c := newCluster(t, 2, pgserver.Database(t))
	n := rounds(3, 25)
	for round := range n {
		stop := c.publish(round)
		s := c.nodes[rand.IntN(2)]
		<-time.After(time.Duration(50+rand.IntN(600)) * time.Millisecond)
		s.kill()
		<-time.After(time.Duration(rand.IntN(300)) * time.Millisecond)
		s.start()
		stop()
	}
	c.settle(n, 100*n)
	c.end()
}

// O-07: the database goes in each of the ways that it can: publishers hear no false
// yes, /readyz tells the truth, and the nodes come back by themselves.
func TestProofPostgresRestart(t *testing.T) {
	pg := startServer(t, pgserver.Config{})
	c := newCluster(t, 2, pg.DSN("postgres"))
	ways := []func() error{
		func() error { return pg.Stop(pgserver.Fast) },
		func() error { return pg.Stop(pgserver.Immediate) },
		pg.Kill,
	}
	n := rounds(len(ways), 10*len(ways))
	for round := range n {
		stop := c.publish(round)
		<-time.After(time.Duration(200+rand.IntN(400)) * time.Millisecond)
		if err := ways[round%len(ways)](); err != nil {
			t.Fatal(err)
		}
		for _, s := range c.nodes {
			s.until(http.StatusServiceUnavailable, 8*time.Second)
		}
		before := c.refused.Load()
		<-time.After(500 * time.Millisecond)
		if c.refused.Load() == before {
			t.Error("nobody was refused without a database")
		}
		if err := pg.Restart(t.Context()); err != nil {
			t.Fatal(err)
		}
		for _, s := range c.nodes {
			s.until(http.StatusOK, 10*time.Second)
		}
		<-time.After(300 * time.Millisecond)
		stop()
	}
	c.settle(2*n, 100*n)
	c.end()
}

// startServer starts a PostgreSQL server that may be stopped and killed.
func startServer(t *testing.T, cfg pgserver.Config) *pgserver.Server {
	t.Helper()
	if err := pgserver.Install(t.Context()); err != nil {
		t.Fatal(err)
	}
	s, err := pgserver.Start(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// Behind a pooler in transaction mode, with notices over a direct connection and
// without any.
func TestProofPostgresPooler(t *testing.T) {
	for name, args := range map[string]func(dsn string) []string{
		"Direct notices": func(dsn string) []string { return []string{"--database-listen", dsn} },
		"Polling":        func(string) []string { return nil },
	} {
		t.Run(name, func(t *testing.T) {
			dsn := pgserver.Database(t)
			c := newCluster(t, 2, pgserver.Pooler(t, dsn), args(dsn)...)
			n := rounds(1, 10)
			for round := range n {
				stop := c.publish(round)
				<-time.After(time.Duration(300+rand.IntN(300)) * time.Millisecond)
				s := c.nodes[rand.IntN(2)]
				s.kill()
				s.start()
				stop()
			}
			c.settle(n, 100*n)
			c.end()
		})
	}
}

// The primary is lost, and its synchronous standby takes over: all that was
// accepted is there.
func TestProofPostgresFailover(t *testing.T) {
	for range rounds(1, 5) {
		primary := startServer(t, pgserver.Config{Settings: map[string]string{"fsync": "off"}})
		standby, err := primary.Standby(t.Context(), pgserver.Config{})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := standby.Close(); err != nil {
				t.Error(err)
			}
		})
		if err := primary.SetSettings(t.Context(), map[string]string{"synchronous_standby_names": standby.Name()}); err != nil {
			t.Fatal(err)
		}
		c := newCluster(t, 2, fmt.Sprintf("postgres://postgres@127.0.0.1:%d,127.0.0.1:%d/postgres?sslmode=disable&target_session_attrs=read-write", primary.Port(), standby.Port()))
		stop := c.publish(0)
		<-time.After(time.Duration(500+rand.IntN(500)) * time.Millisecond)
		if err := primary.Kill(); err != nil {
			t.Fatal(err)
		}
		for _, s := range c.nodes {
			s.until(http.StatusServiceUnavailable, 8*time.Second)
		}
		if err := standby.Promote(t.Context()); err != nil {
			t.Fatal(err)
		}
		for _, s := range c.nodes {
			s.until(http.StatusOK, 10*time.Second)
		}
		<-time.After(500 * time.Millisecond)
		stop()
		c.settle(2, 100)
		c.end()
	}
}
