package config

import (
	"net/netip"
	"strings"
	"time"

	"github.com/surehook/surehook/internal/egress"
	"github.com/surehook/surehook/internal/relay/audit"
)

// private is what enrichments may reach unless the file says otherwise: where a
// catalogue of one's own stands. The link-local range, in which clouds keep
// their credentials, isn't there.
var private = []string{"127.0.0.0/8", "::1/128", "10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "100.64.0.0/10", "fc00::/7"}

func (r *reader) enrichment(v value) Enrichment {
	switch kind(v, Lookup, HTTP) {
	case Lookup:
		get := v.fields("type", "on_label", "table")
		return Enrichment{Type: Lookup, OnLabel: label(v, get("on_label")), Table: table(v, get("table"))}
	case HTTP:
		get := v.fields("type", "on_label", "url", "timeout_ms", "cache_ttl_s", "cache_capacity", "allow_networks")
		e := Enrichment{Type: HTTP, OnLabel: label(v, get("on_label")), URL: get("url").required(v),
			Timeout: ms(get("timeout_ms").number(1, 60_000, 500)), CacheTTL: time.Duration(get("cache_ttl_s").number(0, 7*86_400, 300)) * time.Second,
			CacheCapacity: get("cache_capacity").number(1, 1_000_000, 1024), AllowNetworks: networks(get("allow_networks"))}
		if e.URL != "" {
			checkTemplate(get("url"), e)
		}
		return e
	}
	return Enrichment{}
}

func label(parent, v value) string {
	s := v.required(parent)
	if s != "" {
		if err := audit.CheckLabel(s, ""); err != nil {
			v.fault("%s", err)
		}
	}
	return s
}

func table(parent, v value) map[string]map[string]string {
	if !v.given() {
		parent.d.fault(parent.node, v.path, "is required")
		return nil
	}
	if !v.mapping() {
		return nil
	}
	out := map[string]map[string]string{}
	for key, val := range v.pairs() {
		row := place(v.d, val, join(v.path, key.Value))
		labels := row.texts()
		for _, k := range sortedKeys(labels) {
			if err := audit.CheckLabel(k, labels[k]); err != nil {
				row.fault("%s: %s", k, err)
			}
		}
		out[key.Value] = labels
	}
	return out
}

// checkTemplate refuses a URL in which the value could choose the host, or that
// the guard refuses.
func checkTemplate(v value, e Enrichment) {
	filled := strings.ReplaceAll(e.URL, Placeholder, "x")
	if filled == e.URL {
		v.fault("must hold %s, where the label's value goes", Placeholder)
		return
	}
	_, rest, _ := strings.Cut(e.URL, "://")
	if host := strings.IndexAny(rest, "/?#"); host < 0 || strings.Contains(rest[:host], Placeholder) {
		v.fault("may hold %s in its path and query alone", Placeholder)
		return
	}
	if _, err := egress.NewGuard(e.AllowNetworks, nil).ParseURL(filled); err != nil {
		v.fault("%s", refusal(err))
	}
}

// Placeholder stands in an enrichment's URL for the label's value.
const Placeholder = "{value}"

func networks(v value) []netip.Prefix {
	given := private
	if v.given() {
		given = nil
		for _, e := range v.list() {
			s := e.text()
			if _, err := netip.ParsePrefix(s); err != nil {
				e.fault("must be a network like 10.0.0.0/8")
				continue
			}
			given = append(given, s)
		}
	}
	out := make([]netip.Prefix, len(given))
	for i, s := range given {
		out[i] = netip.MustParsePrefix(s)
	}
	return out
}
