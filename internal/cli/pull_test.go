package cli

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/surehook/surehook/client"
	"github.com/surehook/surehook/internal/pgserver"
)

// publishOn publishes events until that fails: killed in the middle, whether the
// last one was stored isn't known.
func publishOn(ctx context.Context, api *client.Client, prefix string, accepted func(id string)) {
	for i := 0; ; i++ {
		id := fmt.Sprint(prefix, i)
		if _, err := api.Publish(ctx, client.Event{ID: id, Type: "a", Data: []byte(`1`)}); err != nil {
			return
		}
		accepted(id)
	}
}

// A server that is killed while events come in and go out of an inbox loses none, and
// a cursor goes on where it was.
func TestAKilledServerLosesNothingOfAnInbox(t *testing.T) {
	t.Run("SQLite", func(t *testing.T) { killedInbox(t) })
	t.Run("PostgreSQL", func(t *testing.T) { killedInbox(t, "--database", pgserver.Database(t)) })
}

func killedInbox(t *testing.T, args ...string) {
	const rounds, each = 3, 60
	data, key := t.TempDir(), "pull-admin-key-0123456789"
	env := []string{"SUREHOOK_ADMIN_KEY=" + key}
	var hook, cursor string
	accepted, seen := map[string]bool{}, map[string]int{}
	for round := range rounds {
		s := serve(t, data, env, args...)
		api, err := client.New(s.url, key)
		if err != nil {
			t.Fatal(err)
		}
		if round == 0 {
			w, err := api.CreateWebhook(t.Context(), client.WebhookInput{Target: "pull"})
			if err != nil {
				t.Fatal(err)
			}
			hook = w.ID
		}
		enough, gone := make(chan struct{}), make(chan struct{})
		go func() {
			defer close(gone)
			publishOn(t.Context(), api, fmt.Sprintf("evt_%d_", round), func(id string) {
				if accepted[id] = true; id == fmt.Sprintf("evt_%d_%d", round, each) {
					close(enough)
				}
			})
		}()
		for n := 0; n < each/2; { // read and acknowledge some, while more come in
			p, err := api.Pull(t.Context(), client.WebhookInbox(hook), client.PullInput{Cursor: cursor, Limit: 7, Wait: 10 * time.Second})
			if err != nil {
				t.Fatal(err)
			}
			for _, it := range p.Items {
				seen[it.ID]++
			}
			n, cursor = n+len(p.Items), p.Next
		}
		<-enough
		if err := s.cmd.Process.Signal(syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		<-s.ended
		_ = s.cmd.Wait()
		<-gone
	}
	s := serve(t, data, env, args...)
	api, err := client.New(s.url, key)
	if err != nil {
		t.Fatal(err)
	}
	for more := true; more; {
		p, err := api.Pull(t.Context(), client.WebhookInbox(hook), client.PullInput{Cursor: cursor})
		if err != nil {
			t.Fatal(err)
		}
		for _, it := range p.Items {
			seen[it.ID]++
		}
		cursor, more = p.Next, len(p.Items) > 0
	}
	for id := range accepted {
		if seen[id] == 0 {
			t.Errorf("%s was accepted, and never pulled", id)
		}
	}
	if code, _ := s.stop(syscall.SIGTERM); code != 0 {
		t.Errorf("exit code %d", code)
	}
}

// A reader that waits doesn't hold up a stop.
func TestAStopEndsWaits(t *testing.T) {
	key := "pull-admin-key-0123456789"
	s := serve(t, t.TempDir(), []string{"SUREHOOK_ADMIN_KEY=" + key})
	api, err := client.New(s.url, key)
	if err != nil {
		t.Fatal(err)
	}
	w, err := api.CreateWebhook(t.Context(), client.WebhookInput{Target: "pull"})
	if err != nil {
		t.Fatal(err)
	}
	got := make(chan error, 1)
	go func() {
		_, err := api.Pull(t.Context(), client.WebhookInbox(w.ID), client.PullInput{Wait: time.Minute})
		got <- err
	}()
	for waiting := false; !waiting; {
		res, err := http.Get(s.url + "/metrics")
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(res.Body)
		if _ = res.Body.Close(); err != nil {
			t.Fatal(err)
		}
		waiting = strings.Contains(string(text), "surehook_pull_readers 1")
	}
	code, took := s.stop(syscall.SIGTERM)
	if err := <-got; err != nil || code != 0 || took > 2*time.Second {
		t.Errorf("exit code %d after %v; the reader got %v", code, took, err)
	}
}
