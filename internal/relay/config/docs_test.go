package config

import (
	"os"
	"regexp"
	"strings"
	"testing"
)

// The file in the documentation can be used as it stands, and what it calls a
// default is one.
func TestTheDocumentedFile(t *testing.T) {
	page, err := os.ReadFile("../../../docs/relay.md")
	if err != nil {
		t.Fatal(err)
	}
	m := regexp.MustCompile("(?s)```yaml\n(.*?)```").FindSubmatch(page)
	if m == nil {
		t.Fatal("docs/relay.md has no file")
	}
	c, err := Parse("relay.yaml", m[1], env("SIEM_SECRET", "s", "RELAY_TOKEN", "t"))
	if err != nil {
		t.Fatal(err)
	}
	if len(c.Warnings) > 0 {
		t.Error(c.Warnings)
	}
	var lines []string
	for line := range strings.Lines(string(m[1])) {
		if !regexp.MustCompile(`^ *(retry|max_attempts|base_delay_ms|max_delay_ms|timeout_ms|cache_ttl_s|cache_capacity|enabled|schemas|public_addresses_only):`).MatchString(line) {
			lines = append(lines, line)
		}
	}
	least, err := Parse("relay.yaml", []byte(strings.Join(lines, "")), env("SIEM_SECRET", "s", "RELAY_TOKEN", "t"))
	if err != nil {
		t.Fatal(err)
	}
	a, b := c.Subscribers[0], least.Subscribers[0]
	if a.Retry != b.Retry || a.Timeout != b.Timeout || a.Enabled != b.Enabled || len(a.Schemas) != 1 || a.Schemas[0] != b.Schemas[0] || c.Relay.PublicOnly != least.Relay.PublicOnly {
		t.Errorf("the file says %+v, and by default it is %+v", a, b)
	}
	if x, y := c.Enrichments[1], least.Enrichments[1]; x.Timeout != y.Timeout || x.CacheTTL != y.CacheTTL || x.CacheCapacity != y.CacheCapacity {
		t.Errorf("the file says %+v, and by default it is %+v", x, y)
	}
}
