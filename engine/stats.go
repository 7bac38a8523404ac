package engine

import "github.com/surehook/surehook/internal/dispatch"

// Stats is where an engine's lanes stand at one moment.
type Stats = dispatch.Stats

// Stats looks at every lane. It is cheap enough for every scrape.
func (e *Engine) Stats() Stats { return e.disp.Stats() }
