package engine_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"sync"
	"testing"
	"time"

	"github.com/surehook/surehook"
	"github.com/surehook/surehook/engine"
)

const (
	orderOwners = 20
	orderEvents = 50 // of each owner
	orderTries  = 8
)

// orderReceiver fails now and then, and the first event of the first owner
// always. It notes what arrives in whatever order, and how.
type orderReceiver struct {
	mu     sync.Mutex
	flying [orderOwners]int
	tries  [orderOwners][orderEvents]int
	done   [orderOwners]int // events that succeeded or were given up
	wrong  []string
}

func (r *orderReceiver) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	var body struct{ Data struct{ Owner, N int } }
	raw, err := io.ReadAll(req.Body)
	if err == nil {
		err = json.Unmarshal(raw, &body)
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	owner, n := body.Data.Owner, body.Data.N
	r.begin(owner, n)
	time.Sleep(time.Duration(rand.IntN(3)) * time.Millisecond) //nolint:forbidigo // so that two at once would meet
	if !r.end(owner, n) {
		w.WriteHeader(http.StatusInternalServerError)
	}
}

func (r *orderReceiver) begin(owner, n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.tries[owner][n]++
	if r.flying[owner]++; r.flying[owner] > 1 {
		r.wrong = append(r.wrong, fmt.Sprintf("two at once of owner %d", owner))
	}
	if n != r.done[owner] {
		r.wrong = append(r.wrong, fmt.Sprintf("event %d of owner %d, while %d is next", n, owner, r.done[owner]))
	}
}

func (r *orderReceiver) end(owner, n int) (ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.flying[owner]--
	poison := owner == 0 && n == 0
	ok = !poison && rand.IntN(10) > 0
	if ok || poison && r.tries[owner][n] == orderTries {
		r.done[owner] = max(r.done[owner], n+1)
	}
	return ok
}

// publishInOrder publishes each owner's events one after the other, through
// whichever engine.
func publishInOrder(t *testing.T, engines []*engine.Engine) {
	t.Helper()
	var owners sync.WaitGroup
	for owner := range orderOwners {
		owners.Go(func() {
			for n := range orderEvents {
				_, err := engines[(owner+n)%len(engines)].Publish(t.Context(), surehook.Event{Type: "a", Owner: fmt.Sprintf("owner-%d", owner),
					Data: []byte(fmt.Sprintf(`{"owner":%d,"n":%d}`, owner, n))})
				if err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	owners.Wait()
}

func testOrder(t *testing.T, stores ...surehook.Store) {
	r := &orderReceiver{}
	server := httptest.NewServer(r)
	defer server.Close()
	var engines []*engine.Engine
	for _, store := range stores {
		e, err := engine.New(engine.Options{Store: store, MasterKeys: [][]byte{masterKey}, AllowNetworks: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}})
		if err != nil {
			t.Fatal(err)
		}
		if err := e.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		defer func() {
			ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
			defer cancel()
			if err := e.Stop(ctx); err != nil {
				t.Error(err)
			}
		}()
		engines = append(engines, e)
	}
	limits := surehook.Limits{Attempts: orderTries, Concurrency: 16}
	for range orderTries {
		limits.Waits = append(limits.Waits, 5*time.Millisecond)
	}
	ep, _, err := engines[0].CreateWebhook(t.Context(), engine.Webhook{URL: server.URL, Ordered: true, Limits: limits}, engine.Actor{})
	if err != nil {
		t.Fatal(err)
	}
	publishInOrder(t, engines)
	waitIdle(t, stores[0])
	r.mu.Lock()
	defer r.mu.Unlock()
	for i, what := range r.wrong {
		if t.Error(what); i == 10 {
			t.Fatalf("and %d more", len(r.wrong)-i)
		}
	}
	for owner, done := range r.done {
		if done != orderEvents {
			t.Errorf("owner %d: %d of %d events", owner, done, orderEvents)
		}
	}
	dead, err := stores[0].ListDeadLetters(t.Context(), surehook.DeadLetterFilter{Endpoint: ep.Key}, surehook.Page{Limit: 10})
	if err != nil || len(dead) != 1 || dead[0].Attempts != orderTries {
		t.Errorf("dead letters %+v, %v", dead, err)
	}
}

func waitIdle(t *testing.T, store surehook.Store) {
	t.Helper()
	for limit := time.Now().Add(90 * time.Second); ; time.Sleep(20 * time.Millisecond) { //nolint:forbidigo // nobody tells
		n, err := store.PendingCount(t.Context())
		switch {
		case err != nil:
			t.Fatal(err)
		case n == surehook.PendingCount{}:
			return
		case time.Now().After(limit):
			t.Fatalf("still pending: %+v", n)
		}
	}
}

// E-13: in order where the endpoint says so, many at once, with failures between.
func TestOrder(t *testing.T) {
	onBoth(t, func(t *testing.T, dsn string) { testOrder(t, openStore(t, dsn)) })
}

func TestOrderOverTwoNodes(t *testing.T) {
	dsn := database(t)
	testOrder(t, openStore(t, dsn), openStore(t, dsn))
}
