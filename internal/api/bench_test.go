package api_test

import (
	"bytes"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// discard is a response writer that keeps the status alone, so that the
// benchmark measures the handler and not a recorder.
type discard struct {
	h      http.Header
	status int
}

func (d *discard) Header() http.Header         { return d.h }
func (d *discard) WriteHeader(status int)      { d.status = status }
func (d *discard) Write(b []byte) (int, error) { return len(b), nil }

// oneKB is an event with 1 KB of data.
func oneKB() []byte {
	return []byte(`{"type":"order.paid","tenant_id":"acme","data":{"note":"` + strings.Repeat("x", 1000) + `","n":12345678901234567890}}`)
}

// BenchmarkPublish is POST /v1/events from the handler to the commit, with as
// many callers at once as group commit lives on, and nobody subscribed.
func BenchmarkPublish(b *testing.B) {
	s := open(b)
	body := oneKB()
	b.ReportAllocs()
	b.SetBytes(int64(len(body)))
	b.SetParallelism(64)
	b.RunParallel(func(pb *testing.PB) {
		w := &discard{h: http.Header{}}
		for pb.Next() {
			clear(w.h)
			r := httptest.NewRequestWithContext(b.Context(), "POST", "/v1/events", bytes.NewReader(body))
			r.Header.Set("Authorization", "Bearer "+adminKey)
			r.Header.Set("Content-Type", "application/json")
			s.h.ServeHTTP(w, r)
			if w.status != http.StatusAccepted {
				b.Errorf("answered %d", w.status)
				return
			}
		}
	})
}

// BenchmarkRefused is the same handler up to the last check before the store: an
// event that the engine refuses. What it costs is the API's own part.
func BenchmarkRefused(b *testing.B) {
	s := open(b)
	body := bytes.Replace(oneKB(), []byte(`"order.paid"`), []byte(`"order."`), 1)
	w := &discard{h: http.Header{}}
	r := httptest.NewRequestWithContext(b.Context(), "POST", "/v1/events", nil)
	r.Header.Set("Authorization", "Bearer "+adminKey)
	r.Header.Set("Content-Type", "application/json")
	r.ContentLength = int64(len(body))
	b.ReportAllocs()
	for b.Loop() {
		clear(w.h)
		r.Body = io.NopCloser(bytes.NewReader(body))
		s.h.ServeHTTP(w, r)
		if w.status != http.StatusBadRequest {
			b.Fatalf("answered %d", w.status)
		}
	}
}
