package api_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/surehook/surehook/internal/receivertest"
)

// A callback has the challenge's 10 s for all of its answer, not for its head alone.
func TestSentinelSlowAnswer(t *testing.T) {
	onBoth(t, func(t *testing.T, s *site) {
		slow := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			body, _ := io.ReadAll(r.Body)
			a, _ := echo(receivertest.Request{Body: body})
			_ = http.NewResponseController(w).Flush()
			<-time.After(400 * time.Millisecond) // longer than other answers' bodies get
			_, _ = io.WriteString(w, a.Body)
		}))
		defer slow.Close()
		s.sentinel(webhookSpec(slow.URL, ``))
	})
}

// A change of the secret that is sent again while the first waits for the callback
// leaves the old secret signing beside the new one, as one change does.
func TestSentinelNewSecretTwice(t *testing.T) {
	onBoth(t, func(t *testing.T, s *site) {
		r := receivertest.New(t, callback(200))
		id := s.sentinel(webhookSpec(r.URL, ``))
		gate := make(chan struct{})
		r.Use(func(_ int, r receivertest.Request) receivertest.Answer {
			a, _ := echo(r)
			a.Gate = gate
			return a
		})
		var changes sync.WaitGroup
		for range 2 {
			changes.Go(func() {
				if a := s.admin("PATCH", "/sentinels/"+id, fmt.Sprintf(`{"secret":%q}`, otherSecret)); a.Status != 200 {
					t.Errorf("%d %s", a.Status, a.Raw)
				}
			})
		}
		r.Wait(t, 3)
		close(gate)
		changes.Wait()
		s.admin("POST", "/v1/webhooks/"+id+"/test", "")
		if last := r.Wait(t, 4)[3]; !signedWith(t, last, otherSecret) || !signedWith(t, last, sentinelSecret) {
			t.Errorf("%v", last.Header)
		}
		if log := s.admin("GET", "/v1/audit-log", ""); strings.Count(string(log.Raw), `"webhook.rotate_secret"`) != 1 {
			t.Errorf("one of two changes changed nothing: %s", log.Raw)
		}
	})
}
