package app

import (
	"context"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/surehook/surehook"
	"github.com/surehook/surehook/engine"
	"github.com/surehook/surehook/internal/config"
	"github.com/surehook/surehook/internal/receivertest"
	relayconfig "github.com/surehook/surehook/internal/relay/config"
)

type loopback struct{}

func (loopback) LookupNetIP(context.Context, string, string) ([]netip.Addr, error) {
	return []netip.Addr{netip.MustParseAddr("127.0.0.1")}, nil
}

// public_addresses_only holds where it matters, at the sending: a public name that
// leads inside isn't even connected to. Without it the same file is.
func TestRelayPublicAddressesOnly(t *testing.T) {
	// The receiver speaks no TLS: it says so, or waits for more.
	for only, want := range map[string][]surehook.Code{"true": {surehook.SSRFBlocked}, "false": {surehook.Timeout, surehook.TLS}} {
		r := receivertest.New(t, nil)
		dir := t.TempDir()
		log := filepath.Join(dir, "access.log")
		if err := os.WriteFile(log, []byte(`INF {"action":"block","would_block_rules":[]}`+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		addr := netip.MustParseAddrPort(r.URL[len("http://"):])
		file, err := relayconfig.Parse("r.yaml", []byte("sources: [{type: log_tail, path: "+log+", from_beginning: true}]\nrelay: {public_addresses_only: "+only+
			"}\nsubscribers: [{id: siem, url: 'https://siem.example.com:"+addr.String()[len("127.0.0.1:"):]+"/', secret_env: S, timeout_ms: 500}]\n"), func(string) (string, bool) { return "s", true })
		if err != nil {
			t.Fatal(err)
		}
		cfg := config.Default()
		cfg.Listen, cfg.Data = "127.0.0.1:0", filepath.Join(dir, "data")
		tries := make(chan engine.Try, 100)
		a, err := Start(t.Context(), cfg, Options{Observe: func(t engine.Try) {
			select {
			case tries <- t:
			default:
			}
		}, Engine: func(o *engine.Options) { o.Resolver = loopback{} }, Relay: &Relay{Config: file, Env: func(string) (string, bool) { return "s", true }}})
		if err != nil {
			t.Fatal(err)
		}
		if try := <-tries; !slices.Contains(want, try.Attempt.Code) || try.Decision != surehook.Again {
			t.Errorf("public_addresses_only %s: %s, %v, want %s, to be tried again", only, try.Attempt.Code, try.Decision, want)
		}
		if n := r.Opened(); (only == "true") != (n == 0) {
			t.Errorf("public_addresses_only %s: %d connections to an address inside", only, n)
		}
		if err := a.Stop(t.Context()); err != nil {
			t.Error(err)
		}
	}
}
