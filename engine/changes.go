package engine

import (
	"encoding/json"
	"reflect"

	"github.com/surehook/surehook"
)

// changes says for the audit log which settings an update changed, by their names in
// the API, and where that left the endpoint. Values may be secret: they aren't told.
func changes(was, is *surehook.Endpoint) string {
	out := struct {
		Changed []string `json:"changed"`
		Enabled *bool    `json:"enabled,omitempty"`
		Reason  string   `json:"reason,omitempty"`
		Paused  *bool    `json:"paused,omitempty"`
	}{Changed: []string{}}
	wasLimits, isLimits := was.Limits, is.Limits
	wasLimits.Paused, isLimits.Paused = false, false
	for _, c := range []struct {
		name    string
		was, is any
	}{
		{"url", was.URL, is.URL}, {"description", was.Description, is.Description}, {"event_types", was.EventTypes, is.EventTypes}, {"subjects", was.Subjects, is.Subjects},
		{"identity_ids", was.Identities, is.Identities}, {"profile", was.Profile, is.Profile}, {"envelope", was.Envelope, is.Envelope}, {"signature", was.Signature, is.Signature},
		{"headers", was.Headers, is.Headers}, {"limits", wasLimits, isLimits}, {"ordering", was.Ordered, is.Ordered}, {"secret", was.Secrets.Current, is.Secrets.Current},
		{"enabled", was.Enabled, is.Enabled}, {"paused", was.Limits.Paused, is.Limits.Paused},
	} {
		if !reflect.DeepEqual(c.was, c.is) {
			out.Changed = append(out.Changed, c.name)
		}
	}
	if was.Enabled != is.Enabled {
		out.Enabled, out.Reason = &is.Enabled, is.DisabledReason
	}
	if was.Limits.Paused != is.Limits.Paused {
		out.Paused = &is.Limits.Paused
	}
	b, err := json.Marshal(out)
	if err != nil {
		return ""
	}
	return string(b)
}
