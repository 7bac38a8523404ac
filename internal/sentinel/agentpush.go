package sentinel

import (
	"context"
	"errors"
)

// AgentPush stands for the provider agentpush, which specs may name and which can't
// be had here: asking for it is refused with the reason.
type AgentPush struct{}

var _ Provider = AgentPush{}

var errAgentPush = errors.New("agentpush is AgentProto's own push service, which Surehook has no connection to")

// Slug implements Provider.
func (AgentPush) Slug() string { return "agentpush" }

// Readiness implements Provider.
func (AgentPush) Readiness(context.Context) Readiness {
	return Readiness{Reason: errAgentPush.Error(), Setup: []string{"Use the provider " + DefaultProvider + ", which needs no set-up, or local-gh."}}
}

// DefaultTypes implements Provider.
func (AgentPush) DefaultTypes(subject string) []string { return DefaultTypes(subject) }

// Handle implements Provider.
func (AgentPush) Handle(Watch) (string, error) { return "", errAgentPush }

// CreateWatch implements Provider.
func (AgentPush) CreateWatch(context.Context, Watch) error { return errAgentPush }

// CancelWatch implements Provider.
func (AgentPush) CancelWatch(context.Context, string) error { return nil }

// Poll implements Provider.
func (AgentPush) Poll(context.Context, string) (int, error) { return 0, errAgentPush }
