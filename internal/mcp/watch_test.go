package mcp

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"testing"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/surehook/surehook/client"
)

// The whole life of a watch, as an agent sees it.
func TestWatch(t *testing.T) {
	both(t, func(t *testing.T, s *site, as func(string) *sdk.ClientSession) {
		s.open(t, "s2")
		cs := as(s.key)
		var made, second client.Sentinel
		if text := call(t, cs, "sentinel_watch", map[string]any{"prUrl": "https://github.com/octocat/Hello-World/pull/7", "label": "my PR", "urgency": "interrupt"}, &made); text != "" {
			t.Fatal(text)
		}
		if made.Status != "active" || made.Provider != "webhook" || made.Target.SessionID != "s1" || made.Target.Urgency != "interrupt" || made.Until.Kind != "subject_terminal" || made.Label != "my PR" ||
			len(made.Match) != 1 || made.Match[0].Subject != "github:octocat/Hello-World#7" || len(made.Match[0].Types) != 6 {
			t.Errorf("%+v", made)
		}
		if text := call(t, cs, "sentinel_watch", map[string]any{"subject": "build:*", "sessionId": "s2", "types": []string{"build.done"}, "until": "never"}, &second); text != "" {
			t.Fatal(text)
		}
		if _, err := s.api.Publish(t.Context(), client.Event{Type: "build.done", Subjects: []string{"build:1"}, Data: json.RawMessage(`{"ok":true}`)}); err != nil {
			t.Fatal(err)
		}
		if got := s.pull(t, "s2"); len(got) != 1 || got[0].Type != "build.done" {
			t.Errorf("%+v", got)
		}

		var all listOutput
		if text := call(t, cs, "sentinel_list", map[string]any{}, &all); text != "" || len(all.Sentinels) != 2 || all.Sentinels[0].ID != second.ID || all.Sentinels[0].EventCount != 1 || all.More {
			t.Errorf("%s %+v", text, all)
		}
		for _, c := range []struct {
			args map[string]any
			want []string
			more bool
		}{
			{map[string]any{"limit": 1}, []string{second.ID}, true},
			{map[string]any{"sessionId": "s1"}, []string{made.ID}, false},
			{map[string]any{"status": "expired"}, nil, false},
			{map[string]any{"provider": "local-gh"}, nil, false},
		} {
			var got listOutput
			text := call(t, cs, "sentinel_list", c.args, &got)
			var ids []string
			for _, v := range got.Sentinels {
				ids = append(ids, v.ID)
			}
			if text != "" || !slices.Equal(ids, c.want) || got.More != c.more {
				t.Errorf("%v: %s %v", c.args, text, ids)
			}
		}

		var polled pollOutput
		if text := call(t, cs, "sentinel_poll_now", map[string]any{"id": made.ID}, &polled); text != "" || polled.Events != 0 || len(polled.Polled) != 1 {
			t.Errorf("%s %+v", text, polled)
		}
		if text := call(t, cs, "sentinel_poll_now", map[string]any{}, &polled); text != "" || len(polled.Polled) != 0 {
			t.Errorf("%s %+v", text, polled) // webhook doesn't look
		}

		var done doneOutput
		if text := call(t, cs, "sentinel_unwatch", map[string]any{"id": made.ID}, &done); text != "" || !done.OK || done.ID != made.ID {
			t.Errorf("%s %+v", text, done)
		}
		if text := call(t, cs, "sentinel_unwatch", map[string]any{"id": made.ID}, nil); !strings.HasPrefix(text, "not_found: ") {
			t.Error(text)
		}
	})
}

// The codes of what the server refuses come first.
func TestWatchRefuses(t *testing.T) {
	both(t, func(t *testing.T, s *site, as func(string) *sdk.ClientSession) {
		s.open(t, "over")
		if err := s.api.CloseSession(t.Context(), "over"); err != nil {
			t.Fatal(err)
		}
		cs := as(s.key)
		for _, c := range []struct {
			code string
			args map[string]any
		}{
			{"missing_subject", map[string]any{}},
			{"ambiguous_subject", map[string]any{"subject": "a", "prUrl": "https://github.com/o/r/pull/1"}},
			{"invalid_pr_url", map[string]any{"prUrl": "https://github.com/o/r/issues/1"}},
			{"invalid_pr_url", map[string]any{"prUrl": "https://evil.example.com/o/r/pull/1"}},
			{"unknown_provider", map[string]any{"subject": "a", "provider": "pigeon"}},
			{"provider_create_failed", map[string]any{"subject": "github:o/r#1", "provider": "local-gh"}}, // it is off here
			{"provider_create_failed", map[string]any{"subject": "a", "provider": "agentpush"}},
			{"session_not_alive", map[string]any{"subject": "a", "sessionId": "never-opened"}},
			{"session_not_alive", map[string]any{"subject": "a", "sessionId": "over"}},
			{"invalid_request", map[string]any{"subject": strings.Repeat("a", 257)}},
			{"invalid_request", map[string]any{"subject": "a", "types": []string{""}}},
		} {
			if text := call(t, cs, "sentinel_watch", c.args, nil); !strings.HasPrefix(text, c.code+": ") {
				t.Errorf("%s %v: %q", c.code, c.args, text)
			}
		}
		var all listOutput
		if text := call(t, cs, "sentinel_list", map[string]any{}, &all); text != "" || len(all.Sentinels) != 0 {
			t.Errorf("%s %+v", text, all)
		}
	})
}

// A key sees its own scope's watches, and may do what its permissions say.
func TestScopes(t *testing.T) {
	both(t, func(t *testing.T, s *site, as func(string) *sdk.ClientSession) {
		acme := s.newKey(t, "acme", "webhooks:manage", "read", "events:pull")
		other := s.newKey(t, "other", "webhooks:manage", "read", "events:pull")
		reader := s.newKey(t, "acme", "read")
		var made client.Sentinel
		if text := call(t, as(acme), "sentinel_watch", map[string]any{"subject": "a"}, &made); text != "" {
			t.Fatal(text)
		}
		for name, key := range map[string]string{"another tenant's": other} {
			var all listOutput
			cs := as(key)
			if text := call(t, cs, "sentinel_list", map[string]any{}, &all); text != "" || len(all.Sentinels) != 0 {
				t.Errorf("%s: %s %+v", name, text, all)
			}
			for _, tool := range []string{"sentinel_unwatch", "sentinel_poll_now"} {
				if text := call(t, cs, tool, map[string]any{"id": made.ID}, nil); !strings.HasPrefix(text, "not_found: ") {
					t.Errorf("%s, %s: %s", name, tool, text)
				}
			}
		}
		cs := as(reader)
		for tool, args := range map[string]map[string]any{"sentinel_watch": {"subject": "a"}, "sentinel_unwatch": {"id": made.ID}, "sentinel_poll_now": {"id": made.ID}} {
			if text := call(t, cs, tool, args, nil); !strings.HasPrefix(text, "permission_denied: ") {
				t.Errorf("%s: %s", tool, text)
			}
		}
		var all listOutput
		if text := call(t, cs, "sentinel_list", map[string]any{}, &all); text != "" || len(all.Sentinels) != 1 {
			t.Errorf("%s %+v", text, all)
		}
		// The operator's account at GitHub isn't a tenant's.
		if text := call(t, as(acme), "sentinel_watch", map[string]any{"subject": "github:o/r#1", "provider": "local-gh"}, nil); !strings.HasPrefix(text, "provider_create_failed: ") || !strings.Contains(text, "platform keys alone") {
			t.Error(text)
		}
	})
}

func TestAdapters(t *testing.T) {
	both(t, func(t *testing.T, s *site, as func(string) *sdk.ClientSession) {
		cs := as(s.key)
		var got adaptersOutput
		if text := call(t, cs, "list_sentinel_adapters", map[string]any{}, &got); text != "" || len(got.Adapters) != 3 {
			t.Fatalf("%s %+v", text, got)
		}
		for _, a := range got.Adapters {
			if a.Default != (a.Slug == "webhook") || a.Ready != a.Default || a.Ready != (a.Reason == "") || len(a.Setup) == 0 {
				t.Errorf("%+v", a)
			}
			var one client.SentinelProvider
			if text := call(t, cs, "setup_sentinel_provider", map[string]any{"provider": a.Slug}, &one); text != "" || one.Slug != a.Slug || one.Ready != a.Ready {
				t.Errorf("%s %+v", text, one)
			}
		}
		if text := call(t, cs, "setup_sentinel_provider", map[string]any{"provider": "pigeon"}, nil); text == "" {
			t.Error("a provider that isn't there")
		}
	})
}

func (s *site) open(t *testing.T, session string) {
	t.Helper()
	if _, err := s.api.OpenSession(t.Context(), session, false); err != nil {
		t.Fatal(err)
	}
}

func (s *site) pull(t *testing.T, session string) []client.Pulled {
	t.Helper()
	p, err := s.api.Pull(context.WithoutCancel(t.Context()), client.SessionInbox(session, ""), client.PullInput{})
	if err != nil {
		t.Fatal(err)
	}
	return p.Items
}

func (s *site) newKey(t *testing.T, tenant string, permissions ...string) string {
	t.Helper()
	k, err := s.api.CreateKey(t.Context(), client.KeyInput{Name: "agent", TenantID: tenant, Permissions: permissions})
	if err != nil {
		t.Fatal(err)
	}
	return k.Key
}
