package engine

import "github.com/surehook/surehook"

// Alive tells whether events are taken and delivered: nil, or what is wrong.
func (e *Engine) Alive() error {
	e.gate.RLock()
	defer e.gate.RUnlock()
	switch {
	case e.stopped:
		return surehook.Errorf(surehook.Stopping, "the engine is stopping")
	case !e.started:
		return surehook.Errorf(surehook.Unavailable, "the engine isn't started")
	}
	return nil
}
