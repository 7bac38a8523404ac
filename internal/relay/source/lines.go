package source

import (
	"bytes"
	"time"

	"github.com/surehook/surehook/internal/relay/audit"
)

const (
	batchEvents = 256     // as many as the store likes in one transaction
	batchBytes  = 1 << 20 // of the events' objects, about
	batchLines  = 8 << 20 // bytes looked through for one batch, about
)

// collector sorts lines into a batch.
type collector struct {
	parser *audit.Parser
	source string
	now    time.Time
	id     func(line []byte, offset int64) string // of a line's event
	batch  *Batch
	seen   int // bytes of lines
	event  audit.Event
}

func newCollector(p *audit.Parser, source string, now time.Time, id func([]byte, int64) string) *collector {
	return &collector{parser: p, source: source, now: now, id: id, batch: &Batch{}}
}

func (c *collector) full() bool {
	return len(c.batch.Events) >= batchEvents || c.batch.held >= batchBytes || c.seen >= batchLines
}

// line takes a line, without its newline, that begins at an offset.
func (c *collector) line(line []byte, offset int64) {
	c.seen += len(line) + 1
	line = bytes.TrimSuffix(line, []byte("\r"))
	if len(line) > MaxLine {
		c.tooLong()
		return
	}
	c.batch.Lines++
	switch c.parser.Parse(line, &c.event) {
	case audit.Audit:
		ev := c.event
		ev.ID, ev.Source, ev.Received = c.id(line, offset), c.source, c.now
		c.batch.Events = append(c.batch.Events, ev)
		c.batch.held += len(ev.JSON)
	case audit.Malformed:
		c.batch.Malformed++
	default:
		c.batch.NotAudit++
	}
}

// tooLong counts a line that isn't looked at.
func (c *collector) tooLong() {
	c.batch.Lines++
	c.batch.TooLong++
}
