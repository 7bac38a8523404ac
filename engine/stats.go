package engine

import "github.com/surehook/surehook/internal/dispatch"

// Stats is where an engine's lanes stand at one moment.
type Stats = dispatch.Stats

// Stats looks at every lane. It is cheap enough for every scrape.
func (e *Engine) Stats() Stats { return e.disp.Stats() }

// LaneStats is where one endpoint's lane stands.
type LaneStats = dispatch.LaneStats

// LaneStats looks at an endpoint's lane in this process; false: it has none.
func (e *Engine) LaneStats(endpoint int64) (LaneStats, bool) { return e.disp.LaneStats(endpoint) }
