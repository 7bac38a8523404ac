package api

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/surehook/surehook"
)

// sessionKey marks requests that a session makes, within this process alone: its
// value can't come from outside.
type sessionKey struct{}

// As gives the API as a session sees it: with its key's rights, or those of one
// tenant's portal, and the key that stands for it. It fails with Unauthorized once
// the API key that the session was opened with is revoked, or its rule is gone.
func (h *Handler) As(ctx context.Context, s *surehook.Session) (http.Handler, *surehook.APIKey, error) {
	if len(s.KeyHash) != sha256.Size {
		return nil, nil, errKey
	}
	key, err := h.stands(ctx, s)
	if err != nil {
		return nil, nil, err
	}
	switch s.Kind {
	case surehook.SessionConsole:
	case surehook.SessionPortal, surehook.SessionLink:
		if s.Tenant == "" {
			return nil, nil, errKey
		}
		key = &surehook.APIKey{ID: s.ID, Name: "portal", Tenant: s.Tenant, Permissions: s.Permissions}
	default:
		return nil, nil, errKey
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), sessionKey{}, key)))
	}), key, nil
}

// stands gives what a session stands on: an API key, or a rule of who may sign in.
func (h *Handler) stands(ctx context.Context, s *surehook.Session) (*surehook.APIKey, error) {
	for _, rule := range h.opt.Rules {
		if bytes.Equal(rule.Hash, s.KeyHash) {
			key := *rule
			key.ID, key.Name = s.Subject, strings.TrimPrefix(s.Subject, "oidc:")
			return &key, nil
		}
	}
	return h.keys.findHash(ctx, [sha256.Size]byte(s.KeyHash))
}

// NewToken makes a session's token, and its hash.
func NewToken() (token string, hash []byte) {
	var b [32]byte
	rand.Read(b[:])
	token = base64.RawURLEncoding.EncodeToString(b[:])
	sum := sha256.Sum256([]byte(token))
	return token, sum[:]
}

func (s *server) sessions() {
	route(s, op{method: "POST", path: "/v1/portal-links", id: "createPortalLink", tag: "Portal", perm: surehook.PermAdmin, platform: true, status: http.StatusCreated,
		summary: "Make a link into a tenant's portal", about: "It works once, and is in this answer alone. Who follows it sees that tenant's endpoints, events and attempts, within the permissions, " +
			"for eight hours at most and one without a request; revoking the key that made the link ends it at once."}, s.createPortalLink)
}

// PortalLinkInput asks for a link.
type PortalLinkInput struct {
	TenantID    string   `json:"tenant_id" minLength:"1" maxLength:"200"`
	ExpiresIn   int      `json:"expires_in,omitempty" minimum:"10" maximum:"86400" default:"300" doc:"Seconds in which the link must be followed"`
	Permissions []string `json:"permissions,omitempty" maxItems:"50" doc:"read, webhooks:manage, and what event types require; read when absent"`
}

type portalLinkIn struct{ Body PortalLinkInput }

type portalLinkOut struct {
	Body struct {
		URL       string `json:"url" doc:"Shown this once; without a host where the server wasn't told its own (public-url)"`
		ExpiresAt stamp  `json:"expires_at"`
	}
}

// portalPermissions are those that a portal can have beside those that event types
// require.
var portalPermissions = []string{surehook.PermRead, surehook.PermWebhooksManage}

func (s *server) createPortalLink(ctx context.Context, c *call, in *portalLinkIn) (*portalLinkOut, error) {
	b := &in.Body
	if !tenantName.MatchString(b.TenantID) {
		return nil, surehook.Invalid("tenant_id", "must be at most 200 printable ASCII characters without spaces")
	}
	perms := []string{surehook.PermRead}
	if b.Permissions != nil {
		perms = slices.Compact(slices.Sorted(slices.Values(b.Permissions)))
	}
	for i, p := range b.Permissions {
		if !slices.Contains(portalPermissions, p) && (!permission(p) || slices.Contains(permissions, p)) {
			return nil, surehook.Invalid(fmt.Sprintf("permissions[%d]", i), "must be read or webhooks:manage, or one that an event type requires, such as mail:read")
		}
	}
	if !slices.Contains(perms, surehook.PermRead) {
		return nil, surehook.Invalid("permissions", "needs read: a portal is looked at")
	}
	now := s.now()
	token, hash := NewToken()
	link := &surehook.Session{ID: s.e.NewID("ses"), Kind: surehook.SessionLink, Hash: hash, KeyHash: c.key.Hash, Tenant: b.TenantID, Permissions: perms,
		CreatedAt: now, UsedAt: now, ExpiresAt: now.Add(time.Duration(b.ExpiresIn) * time.Second)}
	a := s.audit(c, "portal_link.create", link.ID, "")
	a.Tenant = b.TenantID
	if err := s.store.OpenSession(ctx, link, nil, a); err != nil {
		return nil, err
	}
	out := &portalLinkOut{}
	out.Body.URL, out.Body.ExpiresAt = s.opt.Portal+"?token="+token, stamp(link.ExpiresAt)
	return out, nil
}
