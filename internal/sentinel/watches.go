package sentinel

import (
	"context"
	"fmt"
	"time"

	"github.com/surehook/surehook"
)

const (
	cancelEvery = 5 * time.Second
	cancelLimit = 30 * time.Second // of one cancelling
	cancelStep  = 100
	cancelWait  = time.Second // after the first that failed, doubled each time
	cancelMost  = 10 * time.Minute
)

// Start goes on with the watches that there are, and cancels those of sentinels that
// ended, until Stop.
func (s *Service) Start(ctx context.Context) error {
	if err := s.resume(ctx); err != nil {
		return err
	}
	run, cancel := context.WithCancel(context.WithoutCancel(ctx))
	s.cancel = cancel
	s.done.Go(func() { s.loop(run) })
	return nil
}

// Stop ends the cancelling; what is left is done after the next start.
func (s *Service) Stop(context.Context) error {
	if s.cancel != nil {
		s.cancel()
		s.done.Wait()
	}
	return nil
}

func (s *Service) ring() {
	select {
	case s.over <- struct{}{}:
	default:
	}
}

func (s *Service) loop(ctx context.Context) {
	tick := time.NewTicker(cancelEvery)
	defer tick.Stop()
	for {
		if n, err := s.cancelWatches(ctx); err != nil && ctx.Err() == nil {
			s.log.Warn("watches that ended couldn't be cancelled; trying again", "error", err)
		} else if n == cancelStep {
			continue
		}
		select {
		case <-ctx.Done():
			return
		case <-s.over:
		case <-tick.C:
		}
	}
}

// cancelWatches cancels what is due. Those of a provider that isn't there any more
// have nobody left to know of them.
func (s *Service) cancelWatches(ctx context.Context) (int, error) {
	due, err := s.store.Cancels(ctx, cancelStep)
	if err != nil {
		return 0, err
	}
	for _, w := range due {
		err := s.cancelOne(ctx, w)
		switch {
		case ctx.Err() != nil:
			return 0, ctx.Err()
		case err != nil:
			wait := min(cancelWait<<min(w.Tries, 20), cancelMost)
			s.log.Warn("a watch couldn't be cancelled; trying again", "provider", w.Provider, "times", w.Tries+1, "retry_in", wait, "error", err)
			err = s.store.PutOffCancel(ctx, w, wait)
		default:
			err = s.store.Cancelled(ctx, w.Key)
		}
		if err != nil {
			return 0, err
		}
	}
	return len(due), nil
}

func (s *Service) cancelOne(ctx context.Context, w surehook.WatchCancel) error {
	p, err := s.providers.ByName(w.Provider)
	if err != nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, cancelLimit)
	defer cancel()
	return p.CancelWatch(ctx, w.Watch)
}

// resume tells the providers that must hear of them of the watches that there are.
func (s *Service) resume(ctx context.Context) error {
	for _, p := range s.providers.all {
		r, ok := p.(Resumer)
		if !ok {
			continue
		}
		var watches []Watch
		for page := (surehook.Page{Limit: 1000}); ; {
			eps, err := s.store.ListEndpoints(ctx, surehook.EndpointFilter{Kind: surehook.SentinelsOnly, Provider: p.Slug()}, page)
			if err != nil {
				return err
			}
			for _, ep := range eps {
				if n := ep.Sentinel; n.Watch != "" {
					watches = append(watches, Watch{Sentinel: ep.ID, Subjects: subjectsOf(n.Match), Tenant: ep.Tenant, Partner: ep.Partner, Handle: n.Watch})
				}
			}
			if len(eps) < page.Limit {
				break
			}
			page.Cursor = eps[len(eps)-1].Key
		}
		if err := r.Resume(ctx, watches); err != nil {
			return fmt.Errorf("provider %s: %w", p.Slug(), err)
		}
	}
	return nil
}
