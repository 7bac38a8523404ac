package mcp

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/surehook/surehook/client"
	"github.com/surehook/surehook/internal/app"
	"github.com/surehook/surehook/internal/config"
)

// site is a real server, and what agents of one of its keys see.
type site struct {
	url, key string
	api      *client.Client
	log      *safe
}

// safe is a log that may be read while it is written.
type safe struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (s *safe) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

func (s *safe) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}

func newSite(t *testing.T, change func(*config.Config)) *site {
	t.Helper()
	cfg := config.Default()
	cfg.Listen, cfg.Data, cfg.GHCommand = "127.0.0.1:0", t.TempDir(), "off"
	if change != nil {
		change(&cfg)
	}
	a, err := app.Start(t.Context(), cfg, app.Options{Version: "test"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := a.Stop(context.WithoutCancel(t.Context())); err != nil {
			t.Error(err)
		}
	})
	s := &site{url: "http://" + a.Addr.String(), key: a.AdminKey, log: &safe{}}
	if s.api, err = client.New(s.url, s.key); err != nil {
		t.Fatal(err)
	}
	return s
}

func (s *site) options() Options {
	return Options{URL: s.url, Version: "test", Session: "s1", Logger: slog.New(slog.NewTextHandler(s.log, nil))}
}

// stdio is an agent over pipes.
func (s *site) stdio(t *testing.T, key string) *sdk.ClientSession {
	t.Helper()
	inR, inW := io.Pipe()
	outR, outW := io.Pipe()
	over := make(chan error, 1)
	go func() { over <- Stdio(t.Context(), s.options(), key, inR, outW) }()
	cs := connect(t, &sdk.IOTransport{Reader: outR, Writer: inW})
	t.Cleanup(func() {
		_ = cs.Close()
		if err := <-over; err != nil {
			t.Error(err)
		}
	})
	return cs
}

// http is an agent over streamable HTTP; its key goes with each request.
func (s *site) http(t *testing.T, key string) *sdk.ClientSession {
	t.Helper()
	cs := connect(t, &sdk.StreamableClientTransport{Endpoint: s.handler(t), HTTPClient: &http.Client{Transport: withKey(key)}})
	t.Cleanup(func() { _ = cs.Close() })
	return cs
}

func (s *site) handler(t *testing.T) string {
	t.Helper()
	h, err := Handler(s.options())
	if err != nil {
		t.Fatal(err)
	}
	srv := httptest.NewServer(h)
	t.Cleanup(srv.Close)
	return srv.URL
}

type withKey string

func (k withKey) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("Authorization", "Bearer "+string(k))
	return http.DefaultTransport.RoundTrip(r)
}

func connect(t *testing.T, over sdk.Transport) *sdk.ClientSession {
	t.Helper()
	cs, err := sdk.NewClient(&sdk.Implementation{Name: "agent", Version: "1"}, nil).Connect(t.Context(), over, nil)
	if err != nil {
		t.Fatal(err)
	}
	return cs
}

// both runs a test over each transport.
func both(t *testing.T, f func(t *testing.T, s *site, as func(key string) *sdk.ClientSession)) {
	t.Run("stdio", func(t *testing.T) {
		s := newSite(t, nil)
		f(t, s, func(key string) *sdk.ClientSession { return s.stdio(t, key) })
	})
	t.Run("http", func(t *testing.T) {
		s := newSite(t, nil)
		f(t, s, func(key string) *sdk.ClientSession { return s.http(t, key) })
	})
}

// call calls a tool; out gets what it answered, text why it failed.
func call(t *testing.T, cs *sdk.ClientSession, tool string, args, out any) (text string) {
	t.Helper()
	res, err := cs.CallTool(t.Context(), &sdk.CallToolParams{Name: tool, Arguments: args})
	if err != nil {
		return err.Error()
	}
	var said strings.Builder
	for _, c := range res.Content {
		if tc, ok := c.(*sdk.TextContent); ok {
			said.WriteString(tc.Text)
		}
	}
	if res.IsError {
		return said.String()
	}
	raw, err := json.Marshal(res.StructuredContent)
	if err != nil {
		t.Fatal(err)
	}
	// What isn't structured says the same, for agents that know texts alone.
	var a, b any
	if json.Unmarshal(raw, &a) != nil || json.Unmarshal([]byte(said.String()), &b) != nil {
		t.Errorf("%s: %s and %s", tool, raw, said.String())
	}
	if out != nil {
		if err := json.Unmarshal(raw, out); err != nil {
			t.Errorf("%s: %v: %s", tool, err, raw)
		}
	}
	return ""
}

func TestTools(t *testing.T) {
	both(t, func(t *testing.T, s *site, as func(string) *sdk.ClientSession) {
		cs := as(s.key)
		got, err := cs.ListTools(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		var names []string
		for _, tl := range got.Tools {
			names = append(names, tl.Name)
			if tl.Description == "" || tl.InputSchema == nil || tl.OutputSchema == nil || tl.Annotations == nil {
				t.Errorf("%+v", tl)
			}
		}
		slices.Sort(names)
		if want := []string{"list_sentinel_adapters", "sentinel_list", "sentinel_poll_now", "sentinel_unwatch", "sentinel_watch", "setup_sentinel_provider"}; !slices.Equal(names, want) {
			t.Error(names)
		}
		if in := cs.InitializeResult(); in.ServerInfo.Name != "surehook" || in.Instructions == "" {
			t.Errorf("%+v", in)
		}
	})
}

// What an agent sends is judged before anything is asked of the server.
func TestHostileArguments(t *testing.T) {
	both(t, func(t *testing.T, s *site, as func(string) *sdk.ClientSession) {
		cs := as(s.key)
		for _, c := range []struct {
			tool string
			args any
			want string
		}{
			{"sentinel_watch", map[string]any{"subject": 7}, "subject"},
			{"sentinel_watch", map[string]any{"subject": "a", "urgency": "now"}, "urgency"},
			{"sentinel_watch", map[string]any{"subject": "a", "until": "count"}, "until"},
			{"sentinel_watch", map[string]any{"subject": "a", "target": map[string]any{"kind": "webhook", "url": "https://example.com"}}, "target"},
			{"sentinel_watch", []any{1}, ""},
			{"sentinel_unwatch", map[string]any{}, "id"},
			{"sentinel_unwatch", map[string]any{"id": "../../v1/webhooks/whk_1"}, "invalid_request"},
			{"sentinel_unwatch", map[string]any{"id": "sen_1/../x"}, "invalid_request"},
			{"sentinel_unwatch", map[string]any{"id": "sen_"}, "invalid_request"},
			{"sentinel_unwatch", map[string]any{"id": "sen_" + strings.Repeat("A", 200)}, "invalid_request"},
			{"sentinel_poll_now", map[string]any{"id": "whk_1"}, "invalid_request"},
			{"sentinel_list", map[string]any{"limit": 0.5}, "limit"},
			{"sentinel_list", map[string]any{"limit": 501}, "limit"},
			{"sentinel_list", map[string]any{"status": "?"}, "status"},
			{"setup_sentinel_provider", map[string]any{"provider": " "}, "unknown_provider"},
			{"setup_sentinel_provider", map[string]any{"provider": 1}, "provider"},
			{"list_sentinel_adapters", map[string]any{"x": 1}, "x"},
			{"no_such_tool", map[string]any{}, "no_such_tool"},
		} {
			if text := call(t, cs, c.tool, c.args, nil); text == "" || !strings.Contains(text, c.want) {
				t.Errorf("%s %v: %q", c.tool, c.args, text)
			}
		}
	})
}

// An agent without a key, or with one that the server doesn't know, gets nothing; no
// key is ever said back or logged.
func TestKeys(t *testing.T) {
	const wrong = "shk_planted_and_unknown_key"
	both(t, func(t *testing.T, s *site, as func(string) *sdk.ClientSession) {
		if text := call(t, as(wrong), "sentinel_list", map[string]any{}, nil); !strings.HasPrefix(text, "unauthorized: ") || strings.Contains(text, "planted") {
			t.Errorf("%q", text)
		}
		if log := s.log.String(); strings.Contains(log, "planted") || !strings.Contains(log, "sentinel_list") {
			t.Error(log)
		}
	})
	s := newSite(t, nil)
	url := s.handler(t)
	for name, auth := range map[string][]string{"none": nil, "basic": {"Basic x"}, "empty": {"Bearer "}, "two": {"Bearer a", "Bearer b"}, "long": {"Bearer " + strings.Repeat("a", 600)}, "blank": {"Bearer a b"}} {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, strings.NewReader(`{"jsonrpc":"2.0","id":1,"method":"tools/list"}`))
		if err != nil {
			t.Fatal(err)
		}
		req.Header["Authorization"] = auth
		req.Header.Set("Content-Type", "application/json")
		req.Header.Set("Accept", "application/json, text/event-stream")
		res, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		if _ = res.Body.Close(); res.StatusCode != http.StatusUnauthorized || res.Header.Get("WWW-Authenticate") == "" {
			t.Errorf("%s: %d", name, res.StatusCode)
		}
	}
	if err := Stdio(t.Context(), s.options(), "", io.NopCloser(strings.NewReader("")), nil); err == nil {
		t.Error("without a key an agent is served")
	}
}

// A server that isn't there is said to be, and nothing hangs.
func TestUnreachable(t *testing.T) {
	s := newSite(t, nil)
	s.url = "http://127.0.0.1:1"
	if text := call(t, s.stdio(t, s.key), "sentinel_list", map[string]any{}, nil); !strings.HasPrefix(text, "unreachable: ") || !strings.Contains(text, "SUREHOOK_URL") {
		t.Errorf("%q", text)
	}
	if _, err := Handler(Options{URL: "nonsense"}); err == nil {
		t.Error("a URL that is none is taken")
	}
}

// raw sends lines to a server over standard input, and gives what it prints.
func raw(t *testing.T, s *site, lines ...string) string {
	t.Helper()
	var out safe
	err := Stdio(t.Context(), s.options(), s.key, io.NopCloser(strings.NewReader(strings.Join(lines, "\n")+"\n")), nopCloser{&out})
	if err != nil {
		_, _ = s.log.Write([]byte(err.Error()))
	}
	return out.String()
}

type nopCloser struct{ io.Writer }

func (nopCloser) Close() error { return nil }

// Whatever comes in, standard output holds messages of the protocol alone.
func TestStandardOutputIsTheProtocolsAlone(t *testing.T) {
	s := newSite(t, nil)
	const hello = `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"a","version":"1"}}}`
	for _, lines := range [][]string{
		{hello},
		{"not JSON"},
		{hello, `{"jsonrpc":"2.0","id":2,"method":"no/such"}`},
		{hello, `{"jsonrpc":"2.0","method":"notifications/initialized"}`, `{"jsonrpc":"2.0","id":3,"method":"tools/call","params":{"name":"sentinel_list","arguments":"x"}}`},
		{hello, `[]`},
		{strings.Repeat("x", maxMessage+2)},
		{""},
	} {
		for line := range strings.Lines(raw(t, s, lines...)) {
			var m struct {
				JSONRPC string `json:"jsonrpc"`
			}
			if err := json.Unmarshal([]byte(line), &m); err != nil || m.JSONRPC != "2.0" {
				t.Errorf("%.80q: %q", lines, line)
			}
		}
	}
}

func TestHTTPIsBounded(t *testing.T) {
	s := newSite(t, nil)
	url := s.handler(t)
	for _, c := range []struct {
		name, method, body string
		header             map[string]string
		status             int
	}{
		{"large", "POST", `{"jsonrpc":"2.0","id":1,"method":"` + strings.Repeat("x", maxMessage) + `"}`, nil, 413},
		{"a form", "POST", "a=b", map[string]string{"Content-Type": "application/x-www-form-urlencoded"}, 415},
		{"a stream", "GET", "", map[string]string{"Accept": "text/event-stream"}, 405},
		{"a page elsewhere", "POST", `{}`, map[string]string{"Origin": "https://evil.example.com", "Sec-Fetch-Site": "cross-site"}, 403},
	} {
		req, err := http.NewRequestWithContext(t.Context(), c.method, url, strings.NewReader(c.body))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Authorization", "Bearer "+s.key)
		req.Header.Set("Content-Type", "application/json")
		req.Header.Set("Accept", "application/json, text/event-stream")
		for k, v := range c.header {
			req.Header.Set(k, v)
		}
		res, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		if _ = res.Body.Close(); res.StatusCode != c.status {
			t.Errorf("%s: %d", c.name, res.StatusCode)
		}
	}
}
