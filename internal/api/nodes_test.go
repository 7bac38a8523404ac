package api_test

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/surehook/surehook/engine"
	"github.com/surehook/surehook/internal/api"
	"github.com/surehook/surehook/internal/pgserver"
	"github.com/surehook/surehook/store/postgres"
)

func TestMain(m *testing.M) { os.Exit(pgserver.Main(m)) }

// node is the API of one of several nodes on a database.
func node(t *testing.T, dsn string) http.Handler {
	t.Helper()
	store, err := postgres.Open(t.Context(), dsn, postgres.Options{})
	if err != nil {
		t.Fatal(err)
	}
	e, err := engine.New(engine.Options{Store: store, MasterKeys: [][]byte{bytes.Repeat([]byte{7}, 32)}, MaxWebhooks: -1})
	if err != nil {
		t.Fatal(err)
	}
	if err := e.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		if err := e.Stop(ctx); err != nil {
			t.Error(err)
		}
		if err := store.Close(); err != nil {
			t.Error(err)
		}
	})
	if _, _, err := api.EnsureAdminKey(t.Context(), e, adminKey); err != nil {
		t.Fatal(err)
	}
	return api.New(api.Options{Engine: e, Version: "test"})
}

// One request that reaches two nodes at the same time is done once, and both
// give its answer, secret included.
func TestAnIdempotencyKeyHoldsOverNodes(t *testing.T) {
	dsn := pgserver.Database(t)
	nodes := []http.Handler{node(t, dsn), node(t, dsn)}
	ask := func(h http.Handler, method, body, key string) (int, string) {
		r := httptest.NewRequest(method, "/v1/webhooks", strings.NewReader(body))
		r.Header.Set("Authorization", "Bearer "+adminKey)
		r.Header.Set("Content-Type", "application/json")
		if key != "" {
			r.Header.Set("Idempotency-Key", key)
		}
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		return w.Code, w.Body.String()
	}
	const rounds = 10
	for i := range rounds {
		var answers [4]string
		var wg sync.WaitGroup
		for n := range answers {
			wg.Go(func() {
				var status int
				if status, answers[n] = ask(nodes[n%2], "POST", fmt.Sprintf(`{"url":"https://hooks.acme.dev/%d"}`, i), fmt.Sprint("k", i)); status != http.StatusCreated {
					t.Errorf("%d %s", status, answers[n])
				}
			})
		}
		wg.Wait()
		for _, a := range answers[1:] {
			if a != answers[0] {
				t.Errorf("two answers:\n%s\n%s", answers[0], a)
			}
		}
	}
	if _, list := ask(nodes[0], "GET", "", ""); strings.Count(list, `"id"`) != rounds {
		t.Errorf("not %d webhooks: %s", rounds, list)
	}
}
