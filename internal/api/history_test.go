package api_test

import (
	"context"
	"fmt"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/surehook/surehook"
	"github.com/surehook/surehook/engine"
	"github.com/surehook/surehook/internal/receivertest"
)

// slowly counts for a while, whatever there is to count.
type slowly struct{ surehook.Store }

func (s slowly) Stats(ctx context.Context, f surehook.StatsFilter, since, until time.Time, step time.Duration) ([]surehook.StatsBucket, error) {
	<-time.After(3 * time.Millisecond)
	return s.Store.Stats(ctx, f, since, until, step)
}

// Who doesn't wait for all gets the newest steps, and more at each time of asking,
// until it is the same as who waits gets.
func TestStatsInTime(t *testing.T) {
	s := open(t, func(o *engine.Options) { o.Store = slowly{o.Store} })
	_, hook, _, _ := dead(s)
	until := time.Now().Truncate(time.Minute).Add(time.Minute).UTC()
	window := url.Values{"since": {until.Add(-time.Hour).Format(time.RFC3339)}, "until": {until.Format(time.RFC3339)}, "step_s": {"60"}}
	for _, path := range []string{"/v1/stats", "/v1/webhooks/" + hook + "/stats"} {
		times, items := 0, 0
		for from := ""; from != window.Get("since"); times++ {
			a := s.admin("GET", path+"?"+window.Encode()+"&wait_ms=4", "")
			n := len(a.field("items").([]any))
			if from = strings.Replace(a.field("from").(string), ".000Z", "Z", 1); n <= items || times > 100 {
				t.Fatalf("after %d times: %d items from %s", times, n, from)
			}
			items = n
		}
		if times < 3 || items != 60 {
			t.Errorf("%s: %d items at %d times of asking", path, items, times)
		}
		whole, bit := s.admin("GET", path+"?"+window.Encode(), ""), s.admin("GET", path+"?"+window.Encode()+"&wait_ms=4", "")
		if string(whole.Raw) != string(bit.Raw) || !strings.Contains(string(whole.Raw), `"dead":1`) {
			t.Errorf("%s\n%s", whole.Raw, bit.Raw)
		}
	}
	s.admin("GET", "/v1/stats?wait_ms=5&since=2026-01-01T00:00:01Z&until=2026-01-01T02:00:00Z", "").refused(400, surehook.InvalidRequest, "wait_ms")
}

// What was done to an endpoint, by people and by the server, is told to whoever sees
// the endpoint; whose keys the others are isn't.
func TestHistory(t *testing.T) {
	onBoth(t, func(t *testing.T, s *site) {
		gone := receivertest.New(t, func(int, receivertest.Request) receivertest.Answer { return receivertest.Answer{Status: 410} })
		hook := s.hook(fmt.Sprintf(`{"url":"%s/in?token=x","tenant_id":"acme"}`, gone.URL))
		path := "/v1/webhooks/" + hook
		s.admin("PATCH", path, `{"paused":true,"limits":{"attempts":3}}`)
		own := s.key("acme", "read", "webhooks:manage")
		s.do(own, "PATCH", path, `{"paused":false}`)
		s.admin("POST", path+"/rotate-secret", `{"overlap_hours":1}`)
		s.publish(`{"type":"a","tenant_id":"acme","data":1}`)
		s.until("it is disabled", func() bool { return s.admin("GET", path, "").field("enabled") == false })
		s.admin("PATCH", path, `{"url":"http://127.0.0.1:9/other?token=y"}`)
		told := func(key string) (out []string) {
			var l struct {
				Items []struct {
					Action, Actor string
					Details       any
				}
			}
			a := s.do(key, "GET", path+"/history", "")
			a.into(&l)
			if strings.Contains(string(a.Raw), "token") || strings.Contains(string(a.Raw), "whsec") {
				t.Errorf("a secret: %s", a.Raw)
			}
			for _, i := range l.Items {
				out = append(out, fmt.Sprintf("%t %s %v", i.Actor != "", i.Action, i.Details))
			}
			return out
		}
		mine := told(own)
		want := []string{"false webhook.update map[changed:[url]]", "true webhook.disable map[event_id:", "false webhook.rotate_secret map[overlap_hours:1]",
			"true webhook.update map[changed:[paused] paused:false]", "false webhook.update map[changed:[limits paused] paused:true]", "false webhook.create <nil>"}
		if len(mine) != len(want) || len(told(adminKey)) != len(want) {
			t.Fatalf("%q", mine)
		}
		for i := range want {
			if !strings.HasPrefix(mine[i], want[i]) {
				t.Errorf("%q, not %q", mine[i], want[i])
			}
		}
		if !strings.Contains(mine[1], "reason:gone") {
			t.Error(mine[1])
		}
		s.do(s.key("globex", "read"), "GET", path+"/history", "").refused(404, surehook.NotFound, "")
	})
}
