package engine

import (
	"context"
	"crypto/hmac"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/surehook/surehook"
	"github.com/surehook/surehook/internal/dispatch"
	"github.com/surehook/surehook/profile"
	"github.com/surehook/surehook/signing"
)

// Sentinel is a sentinel to be created. Match and Until are required, and a URL with
// its Secret, or a Session.
type Sentinel struct {
	ID              string // sen_…, of NewID; "": a new one
	Tenant, Partner string // whose it is; both empty: the platform's
	Principal       string // who asks: challenges that passed are remembered for it
	Match           []surehook.Clause
	Until           surehook.Until
	Group, Label    string
	Provider, Watch string
	Plan            int64 // of the watch, by the store's PlanWatch; 0: there is none

	URL    string // of the callback, which is challenged first
	Secret string // whsec_…
	Limits surehook.Limits

	Session string // that pulls its events
	Urgency surehook.Urgency
}

// CheckSentinel refuses what CreateSentinel would. It may take as long: the callback
// is challenged, and what passes isn't again for 10 minutes. s.ID is made, if it is
// empty.
func (e *Engine) CheckSentinel(ctx context.Context, s *Sentinel) error {
	_, err := e.newSentinel(ctx, s)
	return err
}

// CreateSentinel stores a sentinel, with an endpoint of its own, and events match it
// from then on. A callback that doesn't pass its challenge is refused with a
// *ChallengeError.
func (e *Engine) CreateSentinel(ctx context.Context, s Sentinel, by Actor) (*surehook.Endpoint, error) {
	ep, err := e.newSentinel(ctx, &s)
	if err != nil {
		return nil, err
	}
	if s.Session == "" {
		secret, err := signing.ParseSecret(s.Secret)
		if err != nil {
			return nil, err // it was parsed for the challenge
		}
		if ep.Secrets.Current, err = e.keys.Seal(dispatch.SecretTable, dispatch.CurrentColumn, ep.ID, secret.Bytes()); err != nil {
			return nil, err
		}
	}
	return e.storeSentinel(ctx, ep, by)
}

// newSentinel checks everything that can be before it is stored.
func (e *Engine) newSentinel(ctx context.Context, s *Sentinel) (*surehook.Endpoint, error) {
	if s.ID == "" {
		s.ID = e.NewID("sen")
	}
	w := Webhook{Tenant: s.Tenant, Partner: s.Partner, URL: s.URL, Secret: s.Secret, Profile: profile.Sentinel.Name, Limits: s.Limits,
		Pull: s.Session != "", Session: s.Session, Urgency: string(s.Urgency)}
	ep := e.endpoint(s.ID, w)
	ep.Sentinel = &surehook.Sentinel{ID: s.ID, Match: s.Match, Until: s.Until, Status: surehook.SentinelActive, Provider: s.Provider, Watch: s.Watch, Plan: s.Plan,
		Group: s.Group, Label: s.Label, Session: s.Session, Principal: s.Principal}
	if err := e.checkSentinel(ep); err != nil {
		return nil, err
	}
	if s.Session != "" {
		return ep, e.checkPulled(ctx, ep, w)
	}
	return ep, e.verify(ctx, s.Principal, ep, s.Secret)
}

func (e *Engine) storeSentinel(ctx context.Context, ep *surehook.Endpoint, by Actor) (*surehook.Endpoint, error) {
	// Counting in the store would cost each one the more the more there are; this may
	// let in a few more than the bound, where several nodes make them at once.
	if most := e.opt.MaxSentinels; most > 0 && e.index.Watches(ep) >= most {
		return nil, surehook.Errorf(surehook.LimitReached, "the limit of %d sentinels is reached: remove some", most)
	}
	e.changes.RLock()
	err := e.store.CreateEndpoint(ctx, ep, 0, e.audit(by, "sentinel.create", ep.ID, ep.Tenant, ""))
	e.changes.RUnlock()
	if err != nil {
		return nil, err
	}
	e.refreshed()
	if ep.Sentinel.Until.Kind == surehook.UntilAt {
		signal(e.ended) // it may be the next to end
	}
	return ep, nil
}

const (
	maxClauses = 50
	maxTypes   = 50
	maxSubject = 256
	maxTypeLen = 128
	maxLabel   = 200
)

func (e *Engine) checkSentinel(ep *surehook.Endpoint) error {
	n := ep.Sentinel
	switch {
	case len(n.Match) == 0:
		return surehook.Invalid("match", "must hold at least one clause")
	case len(n.Match) > maxClauses:
		return invalidf("match", "holds more than %d clauses", maxClauses)
	case n.Until.Kind == surehook.UntilAt && !n.Until.At.After(e.now()):
		return surehook.Invalid("until.ms", "is over already")
	case n.Until.Kind == surehook.UntilCount && n.Until.Count < 1:
		return surehook.Invalid("until.n", "must be at least 1")
	}
	if err := checkSentinelText(n); err != nil {
		return err
	}
	switch n.Until.Kind {
	case surehook.UntilTerminal, surehook.UntilAt, surehook.UntilCount, surehook.UntilNever:
	default:
		return surehook.Invalid("until.kind", "must be subject_terminal, at, count or never")
	}
	for i, c := range n.Match {
		if err := checkClause(i, c); err != nil {
			return err
		}
	}
	return checkLimits(ep.Limits)
}

func invalidf(path, format string, args ...any) error {
	return surehook.Invalid(path, fmt.Sprintf(format, args...))
}

func clausePath(i int, field string) string { return fmt.Sprintf("match[%d].%s", i, field) }

// printable tells texts without control characters.
func printable(s string) bool {
	return utf8.ValidString(s) && !strings.ContainsFunc(s, unicode.IsControl)
}

func typeGlob(s string) bool {
	return !strings.ContainsFunc(s, func(r rune) bool {
		return !('a' <= r && r <= 'z' || 'A' <= r && r <= 'Z' || '0' <= r && r <= '9' || strings.ContainsRune("._-*", r))
	})
}

func checkClause(i int, c surehook.Clause) error {
	switch {
	case c.Subject == "" || len(c.Subject) > maxSubject || !printable(c.Subject):
		return invalidf(clausePath(i, "subject"), "must be 1 to %d bytes of text", maxSubject)
	case len(c.Types) > maxTypes:
		return invalidf(clausePath(i, "types"), "holds more than %d", maxTypes)
	}
	for _, glob := range c.Types {
		if glob == "" || len(glob) > maxTypeLen || !typeGlob(glob) {
			return invalidf(clausePath(i, "types"), "must be types, of at most %d letters, digits and - _ . , in which * stands for any text", maxTypeLen)
		}
	}
	return nil
}

// RemoveSentinel ends a sentinel for good: its secret goes, its watch is cancelled,
// and what waits for it ends as dead letters with sentinel_removed.
func (e *Engine) RemoveSentinel(ctx context.Context, id string, by Actor) error {
	ep, err := e.sentinel(ctx, id)
	if err != nil {
		return err
	}
	e.changes.RLock()
	err = e.store.DeleteEndpoint(ctx, id, e.audit(by, "sentinel.remove", id, ep.Tenant, ""))
	e.changes.RUnlock()
	if err != nil {
		return err
	}
	e.refreshed()
	return nil
}

// ChangeSentinel changes what may be changed of a sentinel by f: its status, but
// that an ended one stays so, its group, label, watch and last error.
func (e *Engine) ChangeSentinel(ctx context.Context, id string, f func(*surehook.Sentinel) error, action string, by Actor) (*surehook.Endpoint, error) {
	return e.change(ctx, id, func(ep *surehook.Endpoint) error {
		if ep.Sentinel == nil {
			return errNoSentinel
		}
		was := ep.Sentinel.Status
		if err := f(ep.Sentinel); err != nil {
			return err
		}
		if was == surehook.SentinelExpired && ep.Sentinel.Status != was {
			return surehook.Errorf(surehook.Conflict, "the sentinel has ended (%s); create another one", ep.Sentinel.Ended)
		}
		ep.UpdatedAt = e.now()
		return checkSentinelText(ep.Sentinel)
	}, e.audit(by, action, id, "", ""))
}

func checkSentinelText(n *surehook.Sentinel) error {
	switch {
	case len(n.Group) > maxLabel || !printable(n.Group):
		return invalidf("group", "must be at most %d bytes of text", maxLabel)
	case len(n.Label) > maxLabel || !printable(n.Label):
		return invalidf("label", "must be at most %d bytes of text", maxLabel)
	}
	return nil
}

// ChangeSentinelSecret gives a sentinel's callback another secret, once it has passed
// a challenge with it. The old one signs beside it for 10 minutes. The secret that it
// has already changes nothing.
func (e *Engine) ChangeSentinelSecret(ctx context.Context, principal, id, secret string, by Actor) (*surehook.Endpoint, error) {
	ep, err := e.sentinel(ctx, id)
	switch {
	case err != nil:
		return nil, err
	case ep.Pulled():
		return nil, surehook.Errorf(surehook.Conflict, "the sentinel's events are pulled: it has no secret")
	case ep.Sentinel.Status == surehook.SentinelExpired:
		return nil, surehook.Errorf(surehook.Conflict, "the sentinel has ended (%s); create another one", ep.Sentinel.Ended)
	}
	if s, err := signing.ParseSecret(secret); err == nil && e.hasSecret(ep, s.Bytes()) {
		return ep, nil
	}
	if err := e.verify(ctx, principal, ep, secret); err != nil {
		return nil, err
	}
	changed, _, err := e.rotate(ctx, id, secret, profile.Sentinel.OverlapDefault, by)
	if errors.Is(err, errHasSecret) {
		return e.sentinel(ctx, id)
	}
	return changed, err
}

// errHasSecret ends a rotation to the secret that the endpoint has by now: a repeated
// request would have it take the old one's place, which is still to sign.
var errHasSecret = errors.New("the endpoint has this secret")

func (e *Engine) hasSecret(ep *surehook.Endpoint, secret []byte) bool {
	raw, err := e.keys.Open(dispatch.SecretTable, dispatch.CurrentColumn, ep.ID, ep.Secrets.Current)
	return err == nil && hmac.Equal(raw, secret)
}

var errOfSentinel = surehook.Errorf(surehook.Conflict, "this is a sentinel's endpoint: change or remove the sentinel, at /sentinels/{id}")

var errNoSentinel = surehook.Errorf(surehook.NotFound, "no such sentinel")

// sentinel reads a sentinel's endpoint.
func (e *Engine) sentinel(ctx context.Context, id string) (*surehook.Endpoint, error) {
	ep, err := e.store.Endpoint(ctx, id)
	if surehook.CodeOf(err) == surehook.NotFound || err == nil && ep.Sentinel == nil {
		return nil, errNoSentinel
	}
	return ep, err
}

// SentinelCounts counts sentinels by their status, as this node knows them: what ended
// within the last seconds may count as before.
func (e *Engine) SentinelCounts() map[surehook.SentinelStatus]int { return e.index.Sentinels() }

// sight says, of the targets that are sentinels', what the event is to them. What
// only ends one needs no place in a lane.
func (e *Engine) sight(ev *surehook.Event, endpoints []*surehook.Endpoint, targets []surehook.Target) {
	terminal := sync.OnceValue(ev.Terminal)
	for i, ep := range endpoints {
		if ep.Sentinel == nil {
			continue
		}
		t := &targets[i]
		if t.Sighting, _ = ep.Sentinel.Sighting(ev, terminal); t.Sighting.Silent && t.Owned {
			e.disp.Cancel(targets[i : i+1])
			t.Owned = false
		}
	}
}

// watching parts endpoints with sentinels from others.
func (e *Engine) watching(keys []int64) (others, sentinels []int64) {
	for _, key := range keys {
		if ep := e.index.Endpoint(key); ep != nil && ep.Sentinel != nil {
			sentinels = append(sentinels, key)
		} else {
			others = append(others, key)
		}
	}
	return others, sentinels
}

// sightLate goes on with the fan-out of an event that is stored, at sentinels.
func (e *Engine) sightLate(endpoints []int64, event int64) error {
	if len(endpoints) == 0 {
		return nil
	}
	ev, err := e.store.EventByKey(e.ctx, event)
	if surehook.CodeOf(err) == surehook.NotFound {
		return nil
	} else if err != nil {
		return err
	}
	terminal := sync.OnceValue(ev.Terminal)
	targets := make([]surehook.Target, 0, len(endpoints))
	for _, key := range endpoints {
		ep := e.index.Endpoint(key)
		if ep == nil || ep.Sentinel == nil {
			continue // removed meanwhile
		}
		if what, ok := ep.Sentinel.Sighting(ev, terminal); ok {
			targets = append(targets, surehook.Target{EndpointKey: key, Inbox: ep.Inbox, Sighting: what, Remote: true})
		}
	}
	out, err := e.store.Sight(e.ctx, ev, targets)
	if err != nil {
		return err
	}
	for _, d := range out.Deliveries {
		if d.ID != 0 {
			e.wake(d.EndpointKey)
		}
	}
	e.retire(out.Ended)
	return nil
}

// retire takes sentinels out of the matching that an event has ended.
func (e *Engine) retire(endpoints []int64) {
	if len(endpoints) > 0 {
		e.index.Retire(endpoints)
		signal(e.ended)
	}
}

// made counts the rows that were made.
func made(rows []surehook.Delivery) int {
	n := 0
	for _, d := range rows {
		if d.ID != 0 {
			n++
		}
	}
	return n
}

const (
	sentinelEvery = 5 * time.Second        // between two looks for sentinels whose time is over
	sentinelSoon  = 250 * time.Millisecond // after one has ended: many may end together
	sentinelStep  = 500
	reapStep      = 100 // each is audited
)

// sentinelLoop does what follows the end of sentinels: those whose time is over, and
// those that an event has ended, of which other nodes don't know yet.
func (e *Engine) sentinelLoop() {
	wait := time.NewTimer(1)
	defer wait.Stop()
	for {
		select {
		case <-e.ctx.Done():
			return
		case <-e.ended:
			wait.Reset(sentinelSoon)
			continue
		case <-wait.C:
		}
		n, more, err := e.store.EndSentinels(e.ctx, sentinelStep)
		if n > 0 {
			e.log.Info("sentinels ended", "sentinels", n, "status", "ended:expired")
			e.refreshed()
		}
		if lease := e.store.Lease(); err == nil && (len(lease.Nodes) == 0 || lease.Nodes[0] == lease.Epoch) { // one node
			var again bool
			again, err = e.reapSentinels()
			err = errors.Join(err, e.trimSentinels())
			more = more || again
		}
		if err != nil && e.ctx.Err() == nil {
			e.log.Warn("what follows the end of sentinels couldn't be done; trying again", "error", err)
		}
		if wait.Reset(sentinelEvery); more && err == nil {
			wait.Reset(1) // never 0: see lane.wake of internal/dispatch
		}
	}
}

// reapSentinels takes one step in the removal of those that ended long ago.
func (e *Engine) reapSentinels() (more bool, err error) {
	if e.opt.KeepSentinels < 0 {
		return false, nil
	}
	n, more, err := e.store.ReapSentinels(e.ctx, e.opt.KeepSentinels, reapStep, e.audit(Actor{}, "sentinel.reap", "", "", ""))
	if n > 0 {
		e.log.Info("sentinels that had ended were removed", "sentinels", n)
		e.refreshed()
	}
	return more, err
}

// trimSentinels keeps what waits for each sentinel's webhook within the bound, if there
// is one.
func (e *Engine) trimSentinels() error {
	if e.opt.SentinelQueue <= 0 {
		return nil
	}
	due, err := e.store.Due(e.ctx)
	for _, d := range due {
		ep := e.index.Endpoint(d.EndpointKey)
		if ep == nil || ep.Sentinel == nil || ep.Pulled() {
			continue
		}
		for more := true; more && err == nil; {
			var n int
			if n, more, err = e.store.TrimSentinel(e.ctx, ep.Key, e.opt.SentinelQueue, sentinelStep); n > 0 {
				e.log.Warn("more waited for a sentinel than may; the oldest are dead letters", "webhook_id", ep.ID, "events", n)
				if e.opt.Ended != nil {
					e.opt.Ended(surehook.SentinelFull, n)
				}
			}
		}
	}
	return err
}
