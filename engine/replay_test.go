package engine_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/surehook/surehook"
	"github.com/surehook/surehook/engine"
)

// vast is a store with events without end, none of which an endpoint wants.
type vast struct {
	surehook.Store
	slow  bool // a look takes for ever
	looks int
}

func (v *vast) Replayable(ctx context.Context, _ int64, _ surehook.ReplayFilter, after int64, limit int) ([]*surehook.Event, error) {
	v.looks++
	if v.slow {
		<-ctx.Done()
		return nil, surehook.Errorf(surehook.Unavailable, "the store is busy").WithCause(ctx.Err())
	}
	page := make([]*surehook.Event, limit)
	for i := range page {
		page[i] = &surehook.Event{Key: after + int64(i) + 1, Type: "other.type"}
	}
	return page, nil
}

// A window in which little matches costs a request no more than one in which
// much does.
func TestReplayLooksThroughSoMuch(t *testing.T) {
	v := &vast{}
	b := prepare(t)
	b.wrap = func(s surehook.Store) surehook.Store { v.Store = s; return v }
	b.open()
	ep, _, err := b.CreateWebhook(t.Context(), engine.Webhook{URL: "http://127.0.0.1:9/in", EventTypes: []string{"a.b"}}, engine.Actor{})
	if err != nil {
		t.Fatal(err)
	}
	window := engine.ReplayRequest{Since: time.Unix(1, 0)}
	for _, slow := range []bool{false, true} {
		v.looks, v.slow = 0, slow
		start := time.Now()
		_, err := b.Replay(t.Context(), ep.ID, window, engine.Actor{})
		if surehook.CodeOf(err) != surehook.InvalidRequest || !strings.Contains(err.Error(), "narrow it, or start a background replay") {
			t.Errorf("slow %t: %v", slow, err)
		}
		if took := time.Since(start); v.looks > 40 || took > 10*time.Second {
			t.Errorf("slow %t: %d looks in %v", slow, v.looks, took)
		}
	}
	// A caller who goes away is no wide window.
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := b.Replay(ctx, ep.ID, window, engine.Actor{}); err == nil || strings.Contains(err.Error(), "narrow") {
		t.Errorf("cancelled: %v", err)
	}
}
