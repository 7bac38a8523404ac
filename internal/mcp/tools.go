package mcp

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"strings"

	"github.com/google/jsonschema-go/jsonschema"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/surehook/surehook/client"
)

type watchInput struct {
	Subject   string   `json:"subject,omitempty" jsonschema:"what to watch, e.g. github:octocat/hello-world#7; a trailing * is a prefix; give this or prUrl"`
	PRURL     string   `json:"prUrl,omitempty" jsonschema:"URL of a GitHub pull request, https://github.com/OWNER/REPO/pull/NUMBER; give this or subject"`
	SessionID string   `json:"sessionId,omitempty" jsonschema:"session that the events are for; the one that this MCP server was started with if left out"`
	Types     []string `json:"types,omitempty" jsonschema:"event types, * stands for any text; those that the provider has for the subject if left out"`
	Urgency   string   `json:"urgency,omitempty" jsonschema:"how the session should take an event"`
	Until     string   `json:"until,omitempty" jsonschema:"when the watch ends by itself: when its subject does (the default), or never"`
	Provider  string   `json:"provider,omitempty" jsonschema:"how the events come: webhook (the default) or local-gh; list_sentinel_adapters lists them"`
	Group     string   `json:"group,omitempty" jsonschema:"what the watch belongs to, for people"`
	Label     string   `json:"label,omitempty" jsonschema:"a name for people"`
}

type listInput struct {
	Session  string `json:"sessionId,omitempty" jsonschema:"only those of this session"`
	Status   string `json:"status,omitempty" jsonschema:"only those with this status"`
	Provider string `json:"provider,omitempty" jsonschema:"only those of this provider"`
	Group    string `json:"group,omitempty" jsonschema:"only those of this group"`
	Limit    int    `json:"limit,omitempty" jsonschema:"at most so many, newest first; 50 if left out"`
}

type listOutput struct {
	Sentinels []client.Sentinel `json:"sentinels"`
	More      bool              `json:"more" jsonschema:"there are more than were asked for"`
}

type idInput struct {
	ID string `json:"id" jsonschema:"the sentinel's id, sen_…"`
}

type doneOutput struct {
	OK bool   `json:"ok"`
	ID string `json:"id"`
}

type pollInput struct {
	ID string `json:"id,omitempty" jsonschema:"the sentinel's id; all active ones of the key whose provider looks for events, if left out"`
}

type pollOutput struct {
	Events int          `json:"events" jsonschema:"how many new events were found"`
	Polled []pollResult `json:"polled"`
}

type pollResult struct {
	ID     string `json:"id"`
	Events int    `json:"events"`
	Error  string `json:"error,omitempty"`
}

type noInput struct{}

type adaptersOutput struct {
	Adapters []client.SentinelProvider `json:"adapters"`
}

type setupInput struct {
	Provider string `json:"provider" jsonschema:"its name, as list_sentinel_adapters has it"`
}

const (
	listLimit  = 50
	mostListed = 500
	mostPolled = 50
)

var (
	urgencies = []any{"fyi", "next-turn", "steer", "interrupt"}
	untils    = []any{"subject_terminal", "never"}
	statuses  = []any{"active", "paused", "expired", "orphaned", "error"}
)

func (s *server) addTools(to *sdk.Server) {
	yes, no := true, false
	looks := &sdk.ToolAnnotations{ReadOnlyHint: true, IdempotentHint: true, OpenWorldHint: &no}
	tool(s, to, &sdk.Tool{Name: "sentinel_watch", Description: "Watch a pull request or another subject: matching events go to a session's inbox.",
		InputSchema: schema[watchInput](map[string][]any{"urgency": urgencies, "until": untils}, nil), Annotations: &sdk.ToolAnnotations{DestructiveHint: &no, OpenWorldHint: &yes}}, s.watch)
	tool(s, to, &sdk.Tool{Name: "sentinel_list", Description: "List the watches of this key, newest first, with what became of their events.",
		InputSchema: schema[listInput](map[string][]any{"status": statuses}, func(p map[string]*jsonschema.Schema) { p["limit"].Minimum, p["limit"].Maximum = at(1), at(mostListed) }), Annotations: looks}, s.list)
	tool(s, to, &sdk.Tool{Name: "sentinel_unwatch", Description: "End a watch for good. What still waits for it isn't delivered any more.",
		Annotations: &sdk.ToolAnnotations{DestructiveHint: &yes, IdempotentHint: true, OpenWorldHint: &no}}, s.unwatch)
	tool(s, to, &sdk.Tool{Name: "sentinel_poll_now", Description: "Look for events now rather than when it is time. Only providers that look for themselves (local-gh) do anything; webhook answers 0.",
		Annotations: &sdk.ToolAnnotations{DestructiveHint: &no, IdempotentHint: true, OpenWorldHint: &yes}}, s.pollNow)
	tool(s, to, &sdk.Tool{Name: "list_sentinel_adapters", Description: "List the providers that events can come by, and whether each is ready.", Annotations: looks}, s.adapters)
	tool(s, to, &sdk.Tool{Name: "setup_sentinel_provider", Description: "Tell whether a provider is ready, and what a person has to do to make it so. It changes nothing itself.",
		InputSchema: schema[setupInput](nil, nil), Annotations: looks}, s.setup)
}

func at(f float64) *float64 { return &f }

// schema is a tool's input, with what Go's types don't say.
func schema[In any](enums map[string][]any, more func(map[string]*jsonschema.Schema)) *jsonschema.Schema {
	out, err := jsonschema.ForType(reflect.TypeFor[In](), &jsonschema.ForOptions{})
	if err != nil {
		panic(err) // of our own types
	}
	for name, values := range enums {
		out.Properties[name].Enum = values
	}
	if more != nil {
		more(out.Properties)
	}
	return out
}

// tool adds one; its errors become results that an agent can read.
func tool[In, Out any](s *server, to *sdk.Server, t *sdk.Tool, f func(context.Context, *client.Client, In) (Out, error)) {
	sdk.AddTool(to, t, func(ctx context.Context, r *sdk.CallToolRequest, in In) (*sdk.CallToolResult, Out, error) {
		ctx, cancel := context.WithTimeout(ctx, callLimit)
		defer cancel()
		api, err := s.api(r)
		var out Out
		if err == nil {
			out, err = f(ctx, api, in)
		}
		if err != nil {
			err = explain(err)
			s.opt.Logger.Info("a tool failed", "tool", t.Name, "error", err)
			var none Out
			return nil, none, err
		}
		return nil, out, nil
	})
}

func (s *server) watch(ctx context.Context, api *client.Client, in watchInput) (client.Sentinel, error) {
	if in.SessionID == "" && s.opt.Session != "" {
		in.SessionID = s.opt.Session
		// It is the agent's own: it lives from now on, pulled or not yet.
		if _, err := api.OpenSession(ctx, in.SessionID, false); err != nil {
			return client.Sentinel{}, err
		}
	}
	return api.Watch(ctx, client.SentinelInput(in))
}

func (s *server) list(ctx context.Context, api *client.Client, in listInput) (listOutput, error) {
	if in.Limit == 0 {
		in.Limit = listLimit
	}
	out := listOutput{Sentinels: []client.Sentinel{}}
	for v, err := range api.Sentinels(ctx, client.SentinelFilter{Page: client.Page{Limit: in.Limit + 1}, Session: in.Session, Status: in.Status, Provider: in.Provider, Group: in.Group}) {
		if err != nil {
			return out, err
		}
		if len(out.Sentinels) == in.Limit {
			out.More = true
			break
		}
		out.Sentinels = append(out.Sentinels, v)
	}
	return out, nil
}

func (s *server) unwatch(ctx context.Context, api *client.Client, in idInput) (doneOutput, error) {
	if err := sentinelID(in.ID); err != nil {
		return doneOutput{}, err
	}
	return doneOutput{OK: true, ID: in.ID}, api.DeleteSentinel(ctx, in.ID)
}

func (s *server) pollNow(ctx context.Context, api *client.Client, in pollInput) (pollOutput, error) {
	out := pollOutput{Polled: []pollResult{}}
	if in.ID != "" {
		if err := sentinelID(in.ID); err != nil {
			return out, err
		}
		p, err := api.PollSentinel(ctx, in.ID)
		out.Events, out.Polled = p.Events, append(out.Polled, pollResult{ID: in.ID, Events: p.Events})
		return out, err
	}
	for v, err := range api.Sentinels(ctx, client.SentinelFilter{}) {
		if err != nil {
			return out, err
		}
		if v.Provider == "webhook" || v.Status != "active" && v.Status != "error" {
			continue
		}
		if len(out.Polled) == mostPolled {
			return out, fmt.Errorf("too_many: there are more than %d; the first were polled, name the others by id", mostPolled)
		}
		r := pollResult{ID: v.ID}
		p, err := api.PollSentinel(ctx, v.ID)
		if r.Events = p.Events; err != nil {
			r.Error = explain(err).Error()
		}
		out.Events, out.Polled = out.Events+p.Events, append(out.Polled, r)
	}
	return out, nil
}

func (s *server) adapters(ctx context.Context, api *client.Client, _ noInput) (adaptersOutput, error) {
	all, err := api.SentinelProviders(ctx)
	return adaptersOutput{Adapters: all}, err
}

func (s *server) setup(ctx context.Context, api *client.Client, in setupInput) (client.SentinelProvider, error) {
	if strings.TrimSpace(in.Provider) == "" {
		return client.SentinelProvider{}, errors.New("unknown_provider: provider is required; list_sentinel_adapters lists them")
	}
	return api.SentinelProvider(ctx, in.Provider)
}

// sentinelID refuses what can't be an id before it becomes a part of a path.
func sentinelID(id string) error {
	if rest, ok := strings.CutPrefix(id, "sen_"); !ok || rest == "" || len(id) > 100 || strings.ContainsFunc(rest, func(r rune) bool {
		return (r < '0' || r > '9') && (r < 'A' || r > 'Z') && (r < 'a' || r > 'z')
	}) {
		return errors.New("invalid_request: id must be a sentinel's id, sen_ and letters and digits; sentinel_list shows them")
	}
	return nil
}
