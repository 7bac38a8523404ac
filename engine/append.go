package engine

import (
	"context"
	"errors"
	"slices"

	"github.com/surehook/surehook"
)

const (
	appendRows = 4096 // pending rows in one transaction, about
	calmAfter  = 3    // tries that met a changed configuration, until changes must wait
	giveUp     = 10
)

// append matches, reserves, stores and hands over the first of the events: as
// many as one transaction should take. outbox has the row that each event comes
// from, or is nil. wide has, by the event's place, what follows of those that have more
// endpoints than that; mostly it is nil.
func (e *Engine) append(ctx context.Context, events []*surehook.Event, outbox []surehook.OutboxEvent) (out []surehook.Appended, wide map[int]*wideJob, err error) {
	for try := 1; ; try++ {
		if err := ctx.Err(); err != nil {
			return nil, nil, err
		}
		out, wide, err := e.tryAppend(ctx, events, outbox, try > calmAfter)
		switch {
		case !errors.Is(err, surehook.ErrConfigChanged):
			return out, wide, err
		case try == giveUp:
			return nil, nil, surehook.Errorf(surehook.Unavailable, "endpoints change too fast to store events; try again").WithCause(err)
		}
		if err := e.reload(ctx); err != nil {
			return nil, nil, err
		}
	}
}

// tryAppend stores the events for the configuration as it is known. calm keeps
// this process's own changes of endpoints off meanwhile: a storm of them, one in
// each transaction, would turn every append away.
func (e *Engine) tryAppend(ctx context.Context, events []*surehook.Event, outbox []surehook.OutboxEvent, calm bool) ([]surehook.Appended, map[int]*wideJob, error) {
	if calm {
		e.changes.Lock()
		defer e.changes.Unlock()
		if err := e.reload(ctx); err != nil {
			return nil, nil, err
		}
	}
	version, rows := e.index.Version(), 0
	items := make([]surehook.Append, 0, len(events))
	var jobs map[int]*wideJob
	for i, ev := range events {
		e.settle(ev)
		matched, v := e.index.Match(ev)
		if outbox != nil && len(outbox[i].NotFor) > 0 {
			matched = without(matched, outbox[i].NotFor)
		}
		if rows > 0 && rows+len(matched) > appendRows {
			break
		}
		version = min(version, v)
		if most := e.store.MaxTargets(); len(matched) > most {
			if jobs == nil {
				jobs = make(map[int]*wideJob)
			}
			jobs[i] = e.wide.job(ev, matched[most:], e.now())
			matched = matched[:most]
		}
		rows += len(matched)
		item := surehook.Append{Event: ev, Targets: e.disp.Reserve(matched, len(ev.Data))}
		e.sight(ev, matched, item.Targets)
		if outbox != nil {
			item.Outbox = outbox[i].ID
		}
		items = append(items, item)
	}
	recalls := e.disp.Recalls()
	appended, err := e.write(ctx, version, items, jobs)
	if err != nil {
		e.takeBack(items, err)
		return nil, nil, err
	}
	e.handOff(items, appended, jobs, recalls)
	return appended, jobs, nil
}

// settle gives an event what is fixed when it is accepted: who sees it, the form of
// its bodies, and texts of a bounded length. A second time changes nothing.
func (e *Engine) settle(ev *surehook.Event) {
	if ev.About == "" { // else the endpoint's partner was asked
		ev.Partner = e.index.Partner(ev.Tenant)
	}
	ev.APIVersion = e.opt.APIVersion
	if cut := e.cut(ev); len(cut) < len(ev.Data) {
		ev.Given, ev.Data = ev.ContentHash(), cut // a repeat is told by what its caller gives
	}
}

// cut gives an event's data with long texts cut. A CloudEvent's are counted from
// the top of its own data.
func (e *Engine) cut(ev *surehook.Event) []byte {
	_, content, _, ok := surehook.SplitCloudEvent(ev.Data)
	if !ok {
		return e.texts.Cut(ev.Data)
	}
	cut := e.texts.Cut(content)
	if len(cut) == len(content) {
		return ev.Data
	}
	head := len(ev.Data) - 1 - len(content)
	return slices.Concat(ev.Data[:head], cut, ev.Data[len(ev.Data)-1:])
}

// write stores the items, and before them what is to follow of the wide ones.
func (e *Engine) write(ctx context.Context, version int64, items []surehook.Append, jobs map[int]*wideJob) ([]surehook.Appended, error) {
	if err := e.planWide(ctx, jobs); err != nil {
		return nil, err
	}
	appended, err := e.store.Append(ctx, version, items)
	if err != nil {
		e.settleWide(jobs, errors.Is(err, surehook.ErrConfigChanged))
	}
	return appended, err
}

// takeBack returns the lane places of an append that failed. Where it isn't
// known whether it did, the lanes look for the rows.
func (e *Engine) takeBack(items []surehook.Append, err error) {
	for i := range items {
		e.disp.Cancel(items[i].Targets)
		if surehook.CodeOf(err) == surehook.Unavailable {
			e.disp.Doubt(items[i].Targets)
		}
	}
}

func (e *Engine) handOff(items []surehook.Append, appended []surehook.Appended, jobs map[int]*wideJob, recalls int64) {
	for i := range items {
		if appended[i].Queued {
			signal(e.outbox)
		}
		if len(appended[i].Deliveries) == 0 {
			e.disp.Cancel(items[i].Targets) // a duplicate, queued, or refused
			continue
		}
		e.disp.HandOff(items[i].Event, items[i].Targets, appended[i].Deliveries, recalls)
		e.retire(appended[i].Ended)
	}
	e.tellReaders(items, appended)
	e.tell(items, appended, jobs)
	for i, job := range jobs {
		if len(appended[i].Deliveries) == 0 {
			e.endWide(job)
			delete(jobs, i)
			continue
		}
		e.runWide(job, items[i].Event.Key)
	}
}

// tell hands the events that were fanned out to whoever listens. One whose fan-out
// goes on in the background follows at its end.
func (e *Engine) tell(items []surehook.Append, appended []surehook.Appended, jobs map[int]*wideJob) {
	if e.handoff == nil {
		return
	}
	for i, a := range appended {
		switch job := jobs[i]; {
		case a.Err != nil || a.Duplicate || a.Queued:
		case job != nil:
			job.event = items[i].Event
		default:
			e.handoff.put(items[i].Event)
		}
	}
}

// without leaves out the endpoints with some keys.
func without(eps []*surehook.Endpoint, keys []int64) []*surehook.Endpoint {
	out := make([]*surehook.Endpoint, 0, len(eps))
	for _, ep := range eps {
		if !slices.Contains(keys, ep.Key) {
			out = append(out, ep)
		}
	}
	return out
}
