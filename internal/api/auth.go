package api

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base32"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode"

	"golang.org/x/sync/singleflight"

	"github.com/surehook/surehook"
	"github.com/surehook/surehook/engine"
)

// permissions is every permission, in the order in which they are shown.
var permissions = []string{surehook.PermEventsWrite, surehook.PermEventsPull, surehook.PermWebhooksManage, surehook.PermRead, surehook.PermAdmin}

// call is who asks, and under which request.
type call struct {
	key       *surehook.APIKey
	partnerOf func(tenant string) string
	requestID string
	head      http.Header // the answer's
}

func (c *call) may(perm string) bool { return slices.Contains(c.key.Permissions, perm) }

// tenant is the one that the key is bound to; empty for a partner's and a platform
// key.
func (c *call) tenant() string { return c.key.Tenant }

// partner is the one that the key is bound to; empty for a tenant's and a platform
// key.
func (c *call) partner() string {
	if c.key.Tenant != "" {
		return ""
	}
	return c.key.Partner
}

func (c *call) platform() bool { return c.tenant() == "" && c.partner() == "" }

func (c *call) actor() engine.Actor {
	return engine.Actor{ID: c.key.ID, RequestID: c.requestID}
}

// sees reports whether a tenant exists for this caller.
func (c *call) sees(tenant string) bool {
	if p := c.partner(); p != "" {
		return tenant != "" && c.partnerOf(tenant) == p
	}
	return c.tenant() == "" || c.tenant() == tenant
}

// seesEndpoint reports whether an endpoint does: a partner's keys see its own, and
// those of its tenants.
func (c *call) seesEndpoint(ep *surehook.Endpoint) bool {
	if p := c.partner(); p != "" && ep.Tenant == "" {
		return ep.Partner == p
	}
	return c.sees(ep.Tenant)
}

// viewer is the caller as the store's listings know it.
func (c *call) viewer() surehook.Viewer {
	return surehook.Viewer{Tenant: c.tenant(), Partner: c.partner()}
}

// seesEvent reports whether an event does. Its partner was settled when it was
// accepted.
func (c *call) seesEvent(ev *surehook.Event) bool {
	if p := c.partner(); p != "" {
		return ev.Partner == p
	}
	return c.sees(ev.Tenant)
}

// scope gives the tenant that a request is about: the key's own, or the one it
// names; none for all that the key sees. Another's is refused in the same words
// whether it exists or not.
func (c *call) scope(given string) (string, error) {
	switch {
	case given == "":
		return c.tenant(), nil
	case !c.sees(given):
		return "", &denied{required: surehook.PermAdmin, scope: "platform"}
	}
	return given, nil
}

type callKey struct{}

func callOf(ctx context.Context) *call {
	c, _ := ctx.Value(callKey{}).(*call)
	return c
}

const (
	maxKeyAge  = 5 * time.Second // how long a revoked key may go on elsewhere
	maxCached  = 4096
	maxKeyText = 512
)

// keyCache keeps looked-up keys for a few seconds.
type keyCache struct {
	store surehook.Keys
	now   func() time.Time
	age   time.Duration
	once  singleflight.Group
	uses  keyUses

	mu      sync.RWMutex
	entries map[[32]byte]cachedKey
	round   int // goes up with each forgetting, so that no older look-up comes back
}

type cachedKey struct {
	key *surehook.APIKey
	at  time.Time
}

func newKeyCache(store surehook.Keys, now func() time.Time, log *slog.Logger) *keyCache {
	return &keyCache{store: store, now: now, age: maxKeyAge, entries: make(map[[32]byte]cachedKey),
		uses: keyUses{store: store, log: log, every: keyUseEvery}}
}

var errKey = surehook.Errorf(surehook.Unauthorized, "the API key is missing, unknown or revoked; send Authorization: Bearer KEY")

// find gives the key of a bearer token.
func (k *keyCache) find(ctx context.Context, token string) (*surehook.APIKey, error) {
	if token == "" || len(token) > maxKeyText {
		return nil, errKey
	}
	return k.findHash(ctx, sha256.Sum256([]byte(token)))
}

// findHash gives a key by its hash.
func (k *keyCache) findHash(ctx context.Context, sum [32]byte) (*surehook.APIKey, error) {
	k.mu.RLock()
	e, ok := k.entries[sum]
	k.mu.RUnlock()
	now := k.now()
	if ok && now.Sub(e.at) < k.age {
		k.uses.saw(e.key.Key, now)
		return e.key, nil
	}
	found, err, _ := k.once.Do(string(sum[:]), func() (any, error) {
		// One caller's end must not fail the others that wait for the same key.
		return k.load(context.WithoutCancel(ctx), sum)
	})
	if err != nil {
		return nil, err
	}
	key := found.(*surehook.APIKey)
	k.uses.saw(key.Key, now)
	return key, nil
}

func (k *keyCache) load(ctx context.Context, sum [32]byte) (*surehook.APIKey, error) {
	k.mu.RLock()
	round := k.round
	k.mu.RUnlock()
	at := k.now()
	key, err := k.store.KeyByHash(ctx, sum[:])
	switch {
	case surehook.CodeOf(err) == surehook.NotFound && err != nil:
		return nil, errKey
	case err != nil:
		return nil, err
	case subtle.ConstantTimeCompare(key.Hash, sum[:]) != 1 || !key.RevokedAt.IsZero():
		return nil, errKey
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.round == round {
		if len(k.entries) >= maxCached {
			clear(k.entries)
		}
		k.entries[sum] = cachedKey{key: key, at: at}
	}
	return key, nil
}

// forget empties the cache, after a key was revoked.
func (k *keyCache) forget() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.round++
	clear(k.entries)
}

// bearer reads the token of a request.
func bearer(r *http.Request) string {
	scheme, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	if !strings.EqualFold(scheme, "Bearer") {
		return ""
	}
	return strings.TrimSpace(token)
}

func (s *server) authenticate(r *http.Request, requestID string) (*call, error) {
	if s.opt.Operator != nil {
		if token := bearer(r); token == "" || !s.opt.Operator(token) {
			return nil, errOperator
		}
		return &call{key: &surehook.APIKey{ID: "operator", Permissions: permissions}, requestID: requestID}, nil
	}
	key, ok := r.Context().Value(sessionKey{}).(*surehook.APIKey)
	if !ok {
		var err error
		if key, err = s.keys.find(r.Context(), bearer(r)); err != nil {
			return nil, err
		}
	}
	return &call{key: key, partnerOf: s.e.Partner, requestID: requestID}, nil
}

var errOperator = surehook.Errorf(surehook.Unauthorized, "the token is missing or wrong; send Authorization: Bearer TOKEN")

// newKeyText makes a key: 32 random bytes.
func newKeyText() string {
	var b [32]byte
	rand.Read(b[:])
	return "shk_" + strings.ToLower(base32.StdEncoding.WithPadding(base32.NoPadding).EncodeToString(b[:]))
}

// newKey makes a platform key's row from its text.
func newKey(id, name, token string, perms []string, now time.Time) *surehook.APIKey {
	sum := sha256.Sum256([]byte(token))
	return &surehook.APIKey{ID: id, Name: name, Hash: sum[:], Hint: hint(token), Permissions: perms, CreatedAt: now}
}

func hint(token string) string {
	r := []rune(token)
	return string(r[max(len(r)-4, 0):])
}

const minKeyText = 16

// EnsureAdminKey makes the first admin key when the store has no keys yet: the
// given one, or a new one, which is shown this once. Later calls change nothing.
func EnsureAdminKey(ctx context.Context, e *engine.Engine, given string) (shown string, created bool, err error) {
	store := e.Store()
	keys, err := store.ListKeys(ctx, surehook.Page{Limit: 1})
	if err != nil || len(keys) > 0 {
		return "", false, err
	}
	token := given
	if given == "" {
		token = newKeyText()
		shown = token
	} else if err := checkKeyText(given); err != nil {
		return "", false, err
	}
	now := time.Now().UTC()
	if given == "" {
		if mine, err := first(ctx, store, now); err != nil || !mine {
			return "", false, err
		}
	}
	k := newKey(e.NewID("key"), "first admin key", token, slices.Clone(permissions), now)
	err = store.CreateKey(ctx, k, &surehook.AuditEntry{At: now, Actor: "system", Action: "key.create", Target: k.ID})
	switch {
	case surehook.CodeOf(err) == surehook.Conflict:
		return "", false, nil // another node, which was given the same, was first
	case err != nil:
		return "", false, err
	}
	return shown, true, nil
}

// firstSetting is who makes the first admin key: of nodes that start at once,
// one.
const firstSetting = "first_admin_key"

// first claims the making of the first admin key, for a minute: whoever claimed
// it before may have died on the way.
func first(ctx context.Context, store surehook.Settings, now time.Time) (bool, error) {
	mine := fmt.Sprintf("%d %s", now.Unix(), rand.Text())
	was, err := store.PutSetting(ctx, firstSetting, []byte(mine), false)
	if err != nil || string(was) == mine {
		return err == nil, err
	}
	var at int64
	if _, err := fmt.Sscan(string(was), &at); err == nil && now.Sub(time.Unix(at, 0)) < time.Minute {
		return false, nil
	}
	_, err = store.PutSetting(ctx, firstSetting, []byte(mine), true)
	return err == nil, err
}

func checkKeyText(token string) error {
	switch r := []rune(token); {
	case len(r) < minKeyText || len(token) > maxKeyText:
		return surehook.Errorf(surehook.InvalidRequest, "the admin key must have %d to %d characters", minKeyText, maxKeyText)
	case strings.ContainsFunc(token, func(r rune) bool { return !unicode.IsPrint(r) }), strings.TrimSpace(token) != token:
		return surehook.Errorf(surehook.InvalidRequest, "the admin key must be printable characters, without blanks at its ends")
	}
	return nil
}
