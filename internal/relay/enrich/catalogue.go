package enrich

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/surehook/surehook"
	"github.com/surehook/surehook/internal/egress"
	"github.com/surehook/surehook/internal/relay/audit"
	"github.com/surehook/surehook/internal/relay/config"
)

const (
	maxAnswer   = 64 << 10
	atOnce      = 16              // questions of one batch
	restAfter   = 3               // failures in a row: then nothing is asked
	rest        = 5 * time.Second // for so long; and a value that failed isn't asked for again before
	patience    = 2               // timeouts that a batch waits at most
	cacheErrors = 4096            // values whose failure is remembered
)

// catalogue is asked for the labels of a value over HTTP.
type catalogue struct {
	e       config.Enrichment
	client  *egress.Client
	log     *slog.Logger
	now     func() time.Time
	agent   string
	known   *cache[map[string]string]
	refused *cache[struct{}]

	mu       sync.Mutex
	failures int // in a row
	resting  time.Time
}

func newCatalogue(e config.Enrichment, o Options) (*catalogue, error) {
	client, err := egress.New(egress.Config{AllowNetworks: e.AllowNetworks, Resolver: o.Resolver, DNSCache: egress.DefaultDNSCache, RootCAs: o.RootCAs,
		MaxConnsPerHost: atOnce, MaxIdlePerHost: atOnce, MaxResponseBody: maxAnswer})
	if err != nil {
		return nil, fmt.Errorf("an enrichment's client: %w", err)
	}
	return &catalogue{e: e, client: client, log: o.Log, now: o.Now, agent: o.Agent,
		known: newCache[map[string]string](e.CacheCapacity, e.CacheTTL, o.Now), refused: newCache[struct{}](cacheErrors, rest, o.Now)}, nil
}

func (c *catalogue) name() string { return config.HTTP }
func (c *catalogue) close()       { c.client.Close() }

// apply asks for each value once, a few at a time.
func (c *catalogue) apply(ctx context.Context, events []audit.Event, observe func(Result)) {
	answers := map[string]answer{}
	var ask []string
	for i := range events {
		value, ok := events[i].Labels[c.e.OnLabel]
		if _, have := answers[value]; !ok || have {
			continue
		}
		if labels, ok := c.known.get(value); ok {
			answers[value] = answer{labels, Cached}
			continue
		}
		answers[value] = answer{result: Failed}
		if _, failed := c.refused.get(value); !failed {
			ask = append(ask, value)
		}
	}
	c.askAll(ctx, ask, answers)
	for i := range events {
		if value, ok := events[i].Labels[c.e.OnLabel]; ok {
			add(&events[i], answers[value].labels)
			observe(answers[value].result)
		}
	}
}

type answer struct {
	labels map[string]string
	result Result
}

func (c *catalogue) askAll(ctx context.Context, values []string, answers map[string]answer) {
	if len(values) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, patience*c.e.Timeout)
	defer cancel()
	var mu sync.Mutex
	var asking sync.WaitGroup
	next := make(chan string)
	for range min(atOnce, len(values)) {
		asking.Go(func() {
			for value := range next {
				labels, err := c.ask(ctx, value)
				c.note(ctx, value, err)
				if err == nil {
					c.known.put(value, labels)
					mu.Lock()
					answers[value] = answer{labels, OK}
					mu.Unlock()
				}
			}
		})
	}
	for _, v := range values {
		if ctx.Err() != nil || c.rests() {
			break
		}
		next <- v
	}
	close(next)
	asking.Wait()
}

func (c *catalogue) rests() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now().Before(c.resting)
}

// note keeps the count of failures. What ended with ctx is nobody's failure.
func (c *catalogue) note(ctx context.Context, value string, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err == nil {
		c.failures = 0
		return
	}
	if ctx.Err() != nil && !errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return
	}
	c.refused.put(value, struct{}{})
	if c.failures++; c.failures >= restAfter && !c.now().Before(c.resting) {
		c.resting = c.now().Add(rest)
		c.log.Warn("an enrichment's catalogue fails; events go on without its labels, and it isn't asked for a while",
			"on_label", c.e.OnLabel, "host", c.host(), "error", err, "pause", rest)
	}
}

func (c *catalogue) host() string {
	if t, err := c.client.ParseURL(strings.ReplaceAll(c.e.URL, config.Placeholder, "x")); err == nil {
		return t.Host()
	}
	return ""
}

// ask makes one request. Its error holds the host at most.
func (c *catalogue) ask(ctx context.Context, value string) (map[string]string, error) {
	t, err := c.client.ParseURL(strings.ReplaceAll(c.e.URL, config.Placeholder, escape(value)))
	if err != nil {
		return nil, err
	}
	header := []egress.Field{{Name: "Accept", Value: "application/json"}}
	if c.agent != "" {
		header = append(header, egress.Field{Name: "User-Agent", Value: c.agent})
	}
	res := c.client.Do(ctx, &egress.Request{Target: t, Get: true, Answer: true, Header: header, Timeout: c.e.Timeout})
	switch {
	case res.Code != surehook.OK && res.Err != "":
		return nil, fmt.Errorf("%s: %s", res.Code, res.Err)
	case res.Code != surehook.OK || res.Status < 200 || res.Status > 299:
		return nil, fmt.Errorf("it answered %d", res.Status)
	case res.Truncated:
		return nil, fmt.Errorf("its answer is cut, or over %d bytes", maxAnswer)
	}
	var labels map[string]string
	if json.Unmarshal(res.Body, &labels) != nil || labels == nil {
		return nil, errors.New("its answer isn't a JSON object of texts")
	}
	return labels, nil
}

// escape leaves a value nothing by which it could be more than one piece of a path
// or of a query: a dot isn't left either.
func escape(s string) string {
	const hex = "0123456789ABCDEF"
	var b strings.Builder
	for i := range len(s) {
		switch c := s[i]; {
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9', c == '-', c == '_', c == '~':
			b.WriteByte(c)
		default:
			b.Write([]byte{'%', hex[c>>4], hex[c&15]})
		}
	}
	return b.String()
}
