package app

import (
	"context"
	"errors"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/surehook/surehook/internal/config"
)

// errCut is why a drain ended early.
var errCut = errors.New("a second signal")

// Run serves until a signal or a failure, then drains within the grace. A
// second signal cancels what is in flight at once, a third one kills.
func Run(ctx context.Context, cfg config.Config, opt Options, started func(*App)) error {
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	defer signal.Stop(signals)
	starting, cancel := context.WithCancel(ctx)
	defer cancel()
	stopEarly := make(chan struct{})
	go func() { // a signal while a large file is being checked ends the start
		defer close(stopEarly)
		select {
		case s := <-signals:
			signals <- s // for the wait below
			cancel()
		case <-starting.Done():
		}
	}()
	a, err := Start(starting, cfg, opt)
	cancel()
	<-stopEarly
	if err != nil {
		if len(signals) > 0 && ctx.Err() == nil {
			return nil // it was told to stop, and has nothing to drain
		}
		return err
	}
	if started != nil {
		started(a)
	}
	var failure error
	select {
	case s := <-signals:
		a.log.Info("draining", "signal", s.String(), "grace", cfg.ShutdownGrace.String())
	case failure = <-a.Failed():
		a.log.Error("stopping", "error", failure)
	case <-ctx.Done():
	}
	return errors.Join(failure, drain(a, cfg.ShutdownGrace, signals)) //nolint:contextcheck // the drain begins when ctx has ended
}

// drain stops the app; signals cut the drain short.
func drain(a *App, grace time.Duration, signals chan os.Signal) error {
	ctx, cancel := context.WithTimeout(context.Background(), grace)
	defer cancel()
	ctx, cut := context.WithCancelCause(ctx)
	defer cut(nil)
	done := make(chan struct{})
	defer close(done)
	go func() {
		select {
		case <-signals:
			signal.Stop(signals) // the next one is the system's to handle
			cut(errCut)
		case <-done:
		}
	}()
	err := a.Stop(ctx)
	if err != nil && ctx.Err() != nil && errors.Is(err, context.Cause(ctx)) {
		return nil // it was cut, as asked for
	}
	return err
}
