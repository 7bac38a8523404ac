package engine_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/surehook/surehook"
	"github.com/surehook/surehook/engine"
	"github.com/surehook/surehook/internal/dispatch"
	"github.com/surehook/surehook/internal/receivertest"
	"github.com/surehook/surehook/internal/seal"
)

// member starts an engine, one of those on its store, that ends with the test.
func member(t *testing.T, store surehook.Store, change ...func(*engine.Options)) *engine.Engine {
	t.Helper()
	opt := engine.Options{Store: store, MasterKeys: [][]byte{masterKey}, Logger: slog.New(slog.DiscardHandler),
		AllowNetworks: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}}
	for _, f := range change {
		f(&opt)
	}
	e, err := engine.New(opt)
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
	})
	return e
}

// A rotation seals the old secret anew, for its new column: as it stood it wouldn't
// open there, and neither opens elsewhere.
func TestRotationSealsForTheColumn(t *testing.T) {
	onBoth(t, func(t *testing.T, dsn string) {
		store := openStore(t, dsn)
		e := member(t, store)
		before, _, err := e.CreateWebhook(t.Context(), engine.Webhook{URL: "http://127.0.0.1:9/in"}, engine.Actor{})
		if err != nil {
			t.Fatal(err)
		}
		ring, err := seal.NewKeyring(rand.Reader, masterKey)
		if err != nil {
			t.Fatal(err)
		}
		read := func(column, sealed string) []byte {
			t.Helper()
			if !strings.HasPrefix(sealed, "pm1."+ring.Current()+".") {
				t.Errorf("%s holds %.30s", column, sealed)
			}
			raw, err := ring.Open(dispatch.SecretTable, column, before.ID, sealed)
			if err != nil {
				t.Errorf("%s: %v", column, err)
			}
			return raw
		}
		old := read("secret_enc", before.Secrets.Current)
		if _, _, err := e.RotateSecret(t.Context(), before.ID, 168*time.Hour, engine.Actor{}); err != nil {
			t.Fatal(err)
		}
		after, err := store.Endpoint(t.Context(), before.ID)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(read("prev_secret_enc", after.Secrets.Previous), old) || bytes.Equal(read("secret_enc", after.Secrets.Current), old) || len(old) != 32 {
			t.Error("the previous secret isn't the one from before, or the current one is")
		}
		if after.Secrets.Previous == before.Secrets.Current {
			t.Error("the ciphertext was copied")
		}
		for column, sealed := range map[string]string{"secret_enc": after.Secrets.Previous, "prev_secret_enc": after.Secrets.Current} {
			if _, err := ring.Open(dispatch.SecretTable, column, before.ID, sealed); !errors.Is(err, seal.ErrTampered) {
				t.Errorf("another column's opens as %s: %v", column, err)
			}
		}
		if left := time.Until(after.Secrets.PreviousUntil); left < 167*time.Hour || left > 168*time.Hour {
			t.Errorf("it overlaps for %s", left)
		}
		if _, _, err := e.RotateSecret(t.Context(), before.ID, 0, engine.Actor{}); err != nil {
			t.Fatal(err)
		}
		if last, err := store.Endpoint(t.Context(), before.ID); err != nil || last.Secrets.Previous != "" || !last.Secrets.PreviousUntil.IsZero() {
			t.Errorf("without an overlap %+v is left, %v", last.Secrets, err)
		}
	})
}

// What is published after a rotation is signed by the new secret alone, whichever
// node takes it and whichever sends it, while the endpoint is busy.
func TestRotationHoldsOnEveryNode(t *testing.T) {
	dsn := database(t)
	nodes := []*engine.Engine{member(t, openStore(t, dsn)), member(t, openStore(t, dsn))}
	r := receivertest.New(t, func(n int, _ receivertest.Request) receivertest.Answer {
		if n%7 == 0 { // so that some are claimed, by either node
			return receivertest.Answer{Status: 500}
		}
		return receivertest.Answer{}
	})
	waits := []time.Duration{time.Millisecond, 5 * time.Millisecond, 10 * time.Millisecond, 20 * time.Millisecond, 50 * time.Millisecond}
	ep, secret, err := nodes[0].CreateWebhook(t.Context(), engine.Webhook{URL: r.URL, Limits: surehook.Limits{Waits: waits, Attempts: 50, Concurrency: 16}}, engine.Actor{})
	if err != nil {
		t.Fatal(err)
	}
	const rounds, each = 4, 60
	secrets := []string{secret}
	for round := range rounds {
		var publishers sync.WaitGroup
		for i, e := range nodes {
			publishers.Go(func() {
				for k := range each {
					if _, err := e.Publish(t.Context(), surehook.Event{ID: fmt.Sprintf("r%d-%d-%d", round, i, k), Type: "a", Data: []byte("1")}); err != nil {
						t.Error(err)
					}
				}
			})
		}
		publishers.Wait()
		_, fresh, err := nodes[round%len(nodes)].RotateSecret(t.Context(), ep.ID, 0, engine.Actor{})
		if err != nil {
			t.Fatal(err)
		}
		secrets = append(secrets, fresh)
	}
	waitIdle(t, nodes[0].Store())
	requests := r.Requests()
	if len(requests) < rounds*len(nodes)*each {
		t.Fatalf("%d requests", len(requests))
	}
	for _, got := range requests {
		var round int
		if _, err := fmt.Sscanf(got.ID(), "r%d-", &round); err != nil {
			t.Fatal(err)
		}
		by := -1
		for i, secret := range secrets {
			if signature(t, secret, got) == got.Get("webhook-signature") {
				by = i
			}
		}
		if by < round {
			t.Errorf("%s, published after rotation %d, is signed by secret %d", got.ID(), round, by)
		}
	}
}

// deaf is a store whose notices get lost.
type deaf struct{ surehook.Store }

func (deaf) Watch(func(surehook.Change)) {}

// A retry that is claimed after a rotation elsewhere goes by the new secret, also
// on a node that heard nothing of it.
func TestRotationReachesADeafNode(t *testing.T) {
	dsn := database(t)
	front := member(t, openStore(t, dsn), func(o *engine.Options) { o.APIOnly = true })
	sender := member(t, deaf{openStore(t, dsn)})
	r := receivertest.New(t, always(receivertest.Answer{Status: 500}))
	ep, old, err := front.CreateWebhook(t.Context(), engine.Webhook{URL: r.URL, Limits: surehook.Limits{Waits: []time.Duration{700 * time.Millisecond}}}, engine.Actor{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := sender.Publish(t.Context(), surehook.Event{Type: "a", Data: []byte("1")}); err != nil {
		t.Fatal(err)
	}
	verify(t, old, r.Wait(t, 1)[0])
	_, fresh, err := front.RotateSecret(t.Context(), ep.ID, 0, engine.Actor{})
	if err != nil {
		t.Fatal(err)
	}
	verify(t, fresh, r.Wait(t, 2)[1])
}
