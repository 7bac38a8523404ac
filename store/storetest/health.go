package storetest

import (
	"sync"
	"time"

	"github.com/surehook/surehook"
)

var healthTests = map[string]func(*env){
	"Health/failures in a row are counted":            healthCounts,
	"Health/failures before the last success don't":   healthOrder,
	"Health/our own refusals don't":                   healthOurs,
	"Health/a burst doesn't disable (F-05)":           healthBurst,
	"Health/failing long enough disables":             healthOver,
	"Health/gone disables at once, where it may":      healthGone,
	"Health/one winner, one event":                    healthWinner,
	"Health/an old version changes nothing":           healthVersion,
	"Health/a disabled endpoint isn't disabled again": healthDisabled,
	"Health/the store says that it can be written":    func(e *env) { e.ok(e.s.Health(e.ctx)) },
}

// fail records failures of fresh deliveries.
func (e *env) fail(ep *surehook.Endpoint, rule surehook.HealthRule, n int) surehook.Recorded {
	e.Helper()
	var batch []surehook.Outcome
	for range n {
		o := e.outcome(e.publish(true, ep)[0], surehook.Bury)
		o.Version = e.reload(ep).Version
		batch = append(batch, o)
	}
	return e.recordWith(rule, batch...)
}

func healthCounts(e *env) {
	ep := e.endpoint()
	first := e.clock.Now()
	e.fail(ep, surehook.HealthRule{}, 2)
	e.clock.Advance(time.Minute)
	e.fail(ep, surehook.HealthRule{}, 1)
	h := e.reload(ep).Health
	e.same("failures", h.ConsecutiveFailures, 3)
	e.same("since", h.FirstFailureAt, ms(first))
	e.same("last", h.LastFailureAt, ms(e.clock.Now().Add(12_345*time.Microsecond)))
	e.clock.Advance(time.Minute)
	e.record(e.outcome(e.publish(true, ep)[0], surehook.Finish))
	h = e.reload(ep).Health
	e.same("failures after a success", h.ConsecutiveFailures, 0)
	e.same("run", h.FirstFailureAt, time.Time{})
	e.same("success", h.LastSuccessAt, ms(e.clock.Now().Add(12_345*time.Microsecond)))
	e.same("version", e.reload(ep).Version, int64(1))
}

func healthOrder(e *env) {
	ep := e.endpoint()
	slow := e.outcome(e.publish(true, ep)[0], surehook.Again)
	e.clock.Advance(time.Second)
	e.record(e.outcome(e.publish(true, ep)[0], surehook.Finish))
	e.record(slow)
	e.same("failures", e.reload(ep).Health.ConsecutiveFailures, 0)
}

func healthOurs(e *env) {
	ep := e.endpoint()
	o := e.outcome(e.publish(true, ep)[0], surehook.Bury)
	o.Attempt.Code = surehook.SecretUnavailable
	e.recordWith(surehook.HealthRule{After: 1}, o)
	after := e.reload(ep)
	e.same("failures", after.Health.ConsecutiveFailures, 0)
	e.same("enabled", after.Enabled, true)
}

func healthBurst(e *env) {
	ep := e.endpoint()
	rule := surehook.HealthRule{After: 100, Over: 24 * time.Hour}
	for range 10 {
		e.same("disabled", len(e.fail(ep, rule, 100).Disabled), 0)
		e.clock.Advance(6 * time.Second)
	}
	e.clock.Advance(48 * time.Hour)
	e.record(e.outcome(e.publish(true, ep)[0], surehook.Finish))
	e.same("enabled", e.reload(ep).Enabled, true)
}

func healthOver(e *env) {
	ep := e.endpoint()
	rule := surehook.HealthRule{After: 3, Over: 24 * time.Hour}
	e.fail(ep, rule, 1)
	e.clock.Advance(25 * time.Hour)
	e.same("too few", len(e.fail(ep, rule, 1).Disabled), 0)
	before := e.version()
	r := e.fail(ep, rule, 1)
	e.same("disabled", len(r.Disabled), 1)
	after := e.reload(ep)
	e.same("enabled", after.Enabled, false)
	e.same("reason", after.DisabledReason, surehook.ReasonFailing)
	e.same("version", after.Version, int64(2))
	e.same("as told", r.Disabled[0], after)
	log, err := e.s.AuditOf(e.ctx, ep.ID, surehook.Page{Limit: 2})
	e.ok(err)
	e.same("audited", []any{len(log), log[0].Action, log[0].Actor, log[0].Tenant}, []any{1, "webhook.disable", "system", ep.Tenant})
	changed, now, err := e.s.Changes(e.ctx, before)
	e.ok(err)
	if now <= before || len(changed) != 1 || changed[0].ID != ep.ID {
		e.Fatalf("changes after %d: %d endpoints, version %d", before, len(changed), now)
	}
}

func healthGone(e *env) {
	for _, gone := range []bool{true, false} {
		ep := e.endpoint()
		o := e.outcome(e.publish(true, ep)[0], surehook.Bury)
		o.Attempt.Code, o.Attempt.HTTPStatus = surehook.Status410, 410
		e.recordWith(surehook.HealthRule{Gone: gone}, o)
		after := e.reload(ep)
		e.same("enabled", after.Enabled, !gone)
		if gone {
			e.same("reason", after.DisabledReason, surehook.ReasonGone)
		}
	}
}

func healthWinner(e *env) {
	ep := e.endpoint()
	var mu sync.Mutex
	var told []string
	disabled := 0
	rule := surehook.HealthRule{Gone: true, Disabled: func(ep *surehook.Endpoint, reason string, trigger *surehook.Attempt) *surehook.Event {
		if reason != surehook.ReasonGone || trigger == nil || ep.Enabled {
			e.Errorf("told of %q, %v, enabled %v", reason, trigger, ep.Enabled)
		}
		return &surehook.Event{ID: "evt_off_" + trigger.ID, Type: surehook.TypeDisabled, About: ep.ID, OccurredAt: trigger.CreatedAt, Data: []byte(`{}`)}
	}}
	var outcomes []surehook.Outcome
	for range 16 {
		o := e.outcome(e.publish(true, ep)[0], surehook.Bury)
		o.Attempt.Code = surehook.Status410
		outcomes = append(outcomes, o)
	}
	var wg sync.WaitGroup
	for _, o := range outcomes {
		wg.Go(func() {
			r, err := e.s.Record(e.ctx, []surehook.Outcome{o}, map[int64]surehook.HealthRule{ep.Key: rule})
			mu.Lock()
			defer mu.Unlock()
			disabled += len(r.Disabled)
			if err != nil {
				e.Error(err)
			}
		})
	}
	wg.Wait()
	e.same("winners", disabled, 1)
	waiting, err := e.s.Outbox(e.ctx, 10)
	e.ok(err)
	for _, w := range waiting {
		told = append(told, w.Event.About)
	}
	e.same("told", told, []string{ep.ID})
}

func healthVersion(e *env) {
	ep := e.endpoint()
	o := e.outcome(e.publish(true, ep)[0], surehook.Bury)
	o.Attempt.Code = surehook.Status410
	_, err := e.s.UpdateEndpoint(e.ctx, ep.ID, func(ep *surehook.Endpoint) error { ep.URL = "https://example.org/"; return nil }, nil)
	e.ok(err)
	r := e.recordWith(surehook.HealthRule{Gone: true, After: 1}, o)
	e.same("disabled", len(r.Disabled), 0)
	after := e.reload(ep)
	e.same("enabled", after.Enabled, true)
	e.same("failures", after.Health.ConsecutiveFailures, 0)
	e.same("kept", len(e.attempts(o.Delivery)), 1)
}

func healthDisabled(e *env) {
	ep := e.endpoint()
	d := e.publish(true, ep)[0]
	e.fail(ep, surehook.HealthRule{After: 1}, 1)
	e.same("enabled", e.reload(ep).Enabled, false)
	o := e.outcome(d, surehook.Bury)
	o.Version = 2
	e.same("disabled again", len(e.recordWith(surehook.HealthRule{After: 1}, o).Disabled), 0)
	e.same("version", e.reload(ep).Version, int64(2))
}
