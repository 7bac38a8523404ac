// Package mcp offers sentinels to agents, as six tools of the Model Context
// Protocol. It talks to a server through client/ alone, so an agent can do nothing
// that its API key may not.
//
// Guarantee: a key is that of the request and of nobody else, and no tool's answer,
// error or log line holds one; what an agent sends is judged by the schema of its
// tool and then by the server; of standard output nothing is used but for the
// protocol.
package mcp

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/surehook/surehook/client"
)

// Options of an MCP server.
type Options struct {
	URL     string // of the Surehook server
	Version string
	Session string // that events are for when a tool's arguments name none
	Logger  *slog.Logger
}

const (
	maxMessage = 1 << 20 // bytes of a message
	maxKey     = 512
	callLimit  = 90 * time.Second // of one tool's call; a challenge and a look through gh fit in
)

const instructions = `Watch pull requests and other subjects through Surehook: sentinel_watch starts a watch whose events wait in a session's inbox until they are pulled from
GET /v1/sessions/{sessionId}/events of the server; sentinel_unwatch ends it. A watch ends by itself when its subject does, unless until is never.`

// server is the tools with what they need.
type server struct {
	opt Options
	api func(*sdk.CallToolRequest) (*client.Client, error)
}

// newServer makes the six tools.
func newServer(opt Options, api func(*sdk.CallToolRequest) (*client.Client, error)) *sdk.Server {
	if opt.Logger == nil {
		opt.Logger = slog.New(slog.DiscardHandler)
	}
	s := &server{opt: opt, api: api}
	out := sdk.NewServer(&sdk.Implementation{Name: "surehook", Title: "Surehook sentinels", Version: opt.Version}, &sdk.ServerOptions{Instructions: instructions, Logger: opt.Logger,
		Capabilities: &sdk.ServerCapabilities{Tools: &sdk.ToolCapabilities{}}})
	s.addTools(out)
	return out
}

// Stdio serves one agent, whose key is key, until in ends.
func Stdio(ctx context.Context, opt Options, key string, in io.ReadCloser, out io.WriteCloser) error {
	api, err := client.New(opt.URL, key)
	if err != nil {
		return err
	}
	srv := newServer(opt, func(*sdk.CallToolRequest) (*client.Client, error) { return api, nil })
	err = srv.Run(ctx, &sdk.IOTransport{Reader: in, Writer: out, MaxLineLength: maxMessage})
	if errors.Is(err, io.EOF) || ctx.Err() != nil {
		return nil //nolint:nilerr // the agent has gone, or we were told to
	}
	return err
}

// Handler serves any number of agents over streamable HTTP. Each request brings its
// own API key, as Authorization: Bearer KEY; nothing is remembered between requests.
func Handler(opt Options) (http.Handler, error) {
	if _, err := client.New(opt.URL, "-"); err != nil {
		return nil, err
	}
	srv := newServer(opt, func(r *sdk.CallToolRequest) (*client.Client, error) {
		if r.Extra == nil {
			return nil, errNoKey
		}
		key := bearer(r.Extra.Header)
		if key == "" {
			return nil, errNoKey
		}
		return client.New(opt.URL, key)
	})
	// A page in a browser that a name leads here has no key to send, so which Host it
	// names doesn't matter; a proxy in front may keep its own.
	h := sdk.NewStreamableHTTPHandler(func(*http.Request) *sdk.Server { return srv }, &sdk.StreamableHTTPOptions{Stateless: true, JSONResponse: true, MaxRequestBodyBytes: maxMessage,
		DisableLocalhostProtection: true, PropagateRequestCancellation: true})
	guarded := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Cache-Control", "no-store")
		w.Header().Set("X-Content-Type-Options", "nosniff")
		if bearer(r.Header) == "" {
			w.Header().Set("WWW-Authenticate", `Bearer realm="surehook"`)
			http.Error(w, errNoKey.Error(), http.StatusUnauthorized)
			return
		}
		h.ServeHTTP(w, r)
	})
	return http.NewCrossOriginProtection().Handler(guarded), nil
}

var errNoKey = errors.New("unauthorized: send a Surehook API key as Authorization: Bearer KEY")

// bearer reads the key of a request; "": there is none that could be one.
func bearer(h http.Header) string {
	v := h.Values("Authorization")
	if len(v) != 1 {
		return ""
	}
	scheme, key, _ := strings.Cut(v[0], " ")
	key = strings.TrimSpace(key)
	if !strings.EqualFold(scheme, "Bearer") || len(key) > maxKey || strings.ContainsFunc(key, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return ""
	}
	return key
}

// explain makes an error of the server's one for an agent: the code first.
func explain(err error) error {
	p, ok := errors.AsType[*client.Problem](err)
	switch {
	case err == nil:
		return nil
	case ok && p.Code != "":
		text := p.Code + ": " + p.Error()
		for _, f := range p.Errors {
			if !strings.Contains(text, f.Message) {
				text += "; " + f.Path + ": " + f.Message
			}
		}
		return errors.New(text)
	case ok:
		return errors.New("unexpected_answer: " + p.Error())
	case errors.Is(err, context.DeadlineExceeded):
		return errors.New("timeout: the Surehook server didn't answer in time; it may have been done: look with sentinel_list")
	}
	if _, ok := errors.AsType[*client.ReachError](err); ok {
		return errors.New("unreachable: " + err.Error() + "; is SUREHOOK_URL its address?")
	}
	return err
}
