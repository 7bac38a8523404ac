package cli

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/surehook/surehook/internal/pgserver"
	"github.com/surehook/surehook/internal/receivertest"
)

// relayBed is a relay's surroundings: its file, its log, and the secrets.
type relayBed struct {
	t       *testing.T
	dir     string
	environ []string
	store   []string // flags
	lines   int
	*server
}

const (
	relayToken  = "planted-relay-token-0123456789"
	relaySecret = "planted-relay-secret"
)

func newRelayBed(t *testing.T, store ...string) *relayBed {
	t.Helper()
	b := &relayBed{t: t, dir: t.TempDir(), store: store, environ: []string{"WOLF_SECRET=" + relaySecret, "WOLF_NEW=" + relaySecret + "-new", "WOLF_TOKEN=" + relayToken}}
	b.append() // the log is there
	return b
}

// file writes the relay's configuration: subscribers as lines of YAML.
func (b *relayBed) file(subscribers ...string) {
	b.t.Helper()
	text := "sources:\n  - {type: log_tail, path: " + filepath.Join(b.dir, "access.log") + ", from_beginning: true}\n" +
		"enrichments:\n  - {type: lookup, on_label: tenant, table: {acme: {plan: gold}}}\n" +
		"relay: {instance_id: relay-1, admin_token_env: WOLF_TOKEN}\nsubscribers:\n"
	for _, s := range subscribers {
		text += "  - {" + s + ", retry: {max_attempts: 4, base_delay_ms: 20, max_delay_ms: 100}}\n"
	}
	if err := os.WriteFile(b.config()+".new", []byte(text), 0o600); err != nil {
		b.t.Fatal(err)
	}
	if err := os.Rename(b.config()+".new", b.config()); err != nil {
		b.t.Fatal(err)
	}
}

func (b *relayBed) config() string { return filepath.Join(b.dir, "relay.yaml") }

// append writes lines to the log.
func (b *relayBed) append(lines ...string) {
	b.t.Helper()
	f, err := os.OpenFile(filepath.Join(b.dir, "access.log"), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		b.t.Fatal(err)
	}
	for _, l := range lines {
		if _, err := io.WriteString(f, l+"\n"); err != nil {
			b.t.Fatal(err)
		}
	}
	if err := f.Close(); err != nil {
		b.t.Fatal(err)
	}
}

// object is the n-th audit event, with bytes that a serialiser would change.
func object(n int, severity string) string {
	return fmt.Sprintf(`{ "n":%d,"host":"a<b>&","query":"id=%%27\u0027 ü","action":"block","blocked_rule":"injection/sqli","blocked_severity":%q,"would_block_rules":[],"score":1.50,"labels":{"tenant":"acme"}}`, n, severity)
}

// audit writes n audit lines among others, and tells their objects.
func (b *relayBed) audit(n int, severity string) []string {
	b.t.Helper()
	var lines, objects []string
	for range n {
		b.lines++
		o := object(b.lines, severity)
		objects = append(objects, o)
		lines = append(lines, "2026-05-25T17:30:02Z INF something else", "2026-05-25T17:30:02Z \x1b[32mINF\x1b[0m "+o+" entryPointName=web middlewareName=strict-waf@file routerName=strict@file")
	}
	b.append(lines...)
	return objects
}

func (b *relayBed) start() {
	b.t.Helper()
	b.server = spawn(b.t, b.environ, append([]string{"relay", "--config", b.config(), "--listen", "127.0.0.1:0", "--data", filepath.Join(b.dir, "data")}, b.store...)...)
}

// reload has the relay read its file, and waits until it has.
func (b *relayBed) reload() {
	b.t.Helper()
	const read = "the configuration was " // changed, or the same
	before := strings.Count(b.output.String(), read)
	if err := b.cmd.Process.Signal(syscall.SIGHUP); err != nil {
		b.t.Fatal(err)
	}
	b.output.wait(b.t, read, before)
}

func (b *relayBed) end() {
	b.t.Helper()
	if code, _ := b.stop(syscall.SIGTERM); code != 0 {
		b.t.Fatalf("exit code %d\n%s", code, &b.output)
	}
	if strings.Contains(b.output.String(), relaySecret) || strings.Contains(b.output.String(), relayToken) {
		b.t.Error("the log holds a secret")
	}
}

// get asks the admin routes.
func (b *relayBed) get(path, token string) (int, string) {
	b.t.Helper()
	req, err := http.NewRequestWithContext(b.t.Context(), http.MethodGet, b.url+path, nil)
	if err != nil {
		b.t.Fatal(err)
	}
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		b.t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		b.t.Fatal(err)
	}
	return resp.StatusCode, string(body)
}

// metric waits until a series has a value.
func (b *relayBed) metric(series string, want string) {
	b.t.Helper()
	limit := time.NewTimer(30 * time.Second)
	defer limit.Stop()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	line := regexp.MustCompile(`(?m)^` + regexp.QuoteMeta(series) + ` (\S+)$`)
	for got := ""; ; {
		_, body := b.get("/metrics", relayToken)
		if m := line.FindStringSubmatch(body); m != nil {
			if got = m[1]; got == want {
				return
			}
		}
		select {
		case <-tick.C:
		case <-limit.C:
			b.t.Fatalf("%s is %q, want %s", series, got, want)
		}
	}
}

// letters runs a dead-letters command against the relay.
func (b *relayBed) letters(args ...string) string {
	b.t.Helper()
	code, out, errs := run(b.t, []string{"SUREHOOK_KEY=" + relayToken, "SUREHOOK_URL=" + b.url}, "", append([]string{"dead-letters"}, args...)...)
	if code != 0 {
		b.t.Fatalf("dead-letters %v: exit code %d: %s", args, code, errs)
	}
	return out
}

// envelope is a request's body as a subscriber reads it.
type envelope struct {
	Schema     string            `json:"schema"`
	EventID    string            `json:"event_id"`
	DeliveryID string            `json:"delivery_id"`
	Attempt    int               `json:"attempt"`
	Labels     map[string]string `json:"labels"`
	Source     map[string]string `json:"source"`
	Event      json.RawMessage   `json:"event"`
}

// objects checks each request as the document says, and gives the events by id.
func (b *relayBed) objects(secret string, got []receivertest.Request) map[string]string {
	b.t.Helper()
	out := map[string]string{}
	deliveries := map[string]bool{}
	for _, r := range got {
		mac := hmac.New(sha256.New, []byte(secret))
		mac.Write([]byte(r.Get("X-PurpleWolf-Timestamp") + "."))
		mac.Write(r.Body)
		if r.Get("X-PurpleWolf-Signature") != "sha256="+hex.EncodeToString(mac.Sum(nil)) {
			b.t.Fatalf("a wrong signature: %q", r.Header)
		}
		var e envelope
		if err := json.Unmarshal(r.Body, &e); err != nil {
			b.t.Fatal(err)
		}
		if e.EventID != r.Get("X-PurpleWolf-Event-Id") || deliveries[e.DeliveryID] || fmt.Sprint(e.Labels) != "map[plan:gold tenant:acme]" || e.Schema != "purple-wolf.audit/v1" ||
			fmt.Sprint(e.Source) != "map[entry_point:web middleware:strict-waf relay_instance:relay-1 router:strict]" {
			b.t.Fatalf("%q\n%s", r.Header, r.Body)
		}
		deliveries[e.DeliveryID] = true
		object := string(e.Event)
		if was, ok := out[e.EventID]; ok && was != object {
			b.t.Fatalf("one id for two events: %s, %s", was, object)
		}
		out[e.EventID] = object
	}
	return out
}

// collect waits until n different events have come.
func (b *relayBed) collect(r *receivertest.Receiver, n int) map[string]string {
	b.t.Helper()
	for {
		reqs := r.Requests()
		if got := b.objects(relaySecret, reqs); len(got) >= n {
			return got
		}
		r.Wait(b.t, len(reqs)+1)
	}
}

// same checks that exactly these events came, each under one id.
func (b *relayBed) same(who string, got map[string]string, want []string) {
	b.t.Helper()
	var have []string
	for _, o := range got {
		have = append(have, o)
	}
	slices.Sort(have)
	want = slices.Sorted(slices.Values(want))
	if !slices.Equal(have, want) {
		b.t.Fatalf("%s has %d events, want %d", who, len(have), len(want))
	}
}

func stores(t *testing.T, f func(t *testing.T, b *relayBed)) {
	t.Run("sqlite", func(t *testing.T) { f(t, newRelayBed(t)) })
	t.Run("postgres", func(t *testing.T) {
		f(t, newRelayBed(t, "--database", pgserver.Database(t), "--database-lease", "10s"))
	})
}

// Whatever was read arrives exactly where the filters say, though the relay is
// killed twice, one subscriber never answers, and another fails at first.
func TestRelayLosesNothing(t *testing.T) {
	stores(t, func(t *testing.T, b *relayBed) {
		all := receivertest.New(t, nil)
		high := receivertest.New(t, func(n int, _ receivertest.Request) receivertest.Answer {
			return receivertest.Answer{Status: []int{500, 429, 408, 200}[min(n%5, 3)]}
		})
		hung := receivertest.New(t, func(int, receivertest.Request) receivertest.Answer { return receivertest.Answer{Hang: true} })
		b.file(`id: all, url: "`+all.URL+`/in", secret_env: WOLF_SECRET`,
			`id: high, url: "`+high.URL+`/in", secret_env: WOLF_SECRET, filter: {severity_min: high, blocked_rule_pattern: "injection/*"}`,
			`id: hung, url: "`+hung.URL+`/in", secret_env: WOLF_SECRET`,
			`id: none, url: "`+hung.URL+`/none", secret_env: WOLF_SECRET, filter: {labels: {tenant: other}}`)
		low, critical := b.audit(200, "low"), b.audit(100, "critical")
		for range 2 {
			b.start()
			all.Wait(t, len(all.Requests())+1)
			low, critical = append(low, b.audit(100, "low")...), append(critical, b.audit(50, "critical")...)
			all.Wait(t, len(all.Requests())+20)
			if err := b.cmd.Process.Kill(); err != nil {
				t.Fatal(err)
			}
			<-b.ended
			_ = b.cmd.Wait()
		}
		b.start()
		b.same("all", b.collect(all, len(low)+len(critical)), append(slices.Clone(low), critical...))
		b.same("high", b.collect(high, len(critical)), critical)
		for _, r := range hung.Requests() {
			if strings.Contains(r.Line, "/none") {
				t.Errorf("a filter let through what it shouldn't: %s", r.Body)
			}
		}
		b.end()
	})
}

// Subscribers come, change, pause, go and come back while the relay runs.
func TestRelayReload(t *testing.T) {
	stores(t, func(t *testing.T, b *relayBed) {
		one, two := receivertest.New(t, nil), receivertest.New(t, nil)
		first := `id: siem, url: "` + one.URL + `/in", secret_env: WOLF_SECRET`
		other := `id: other, url: "` + two.URL + `/other", secret_env: WOLF_SECRET`
		b.file(first)
		b.start()
		objects := b.audit(3, "low")
		b.same("siem", b.objects(relaySecret, one.Wait(t, 3)), objects)

		b.file(first, other) // added
		b.reload()
		later := b.audit(2, "low")
		b.same("other", b.objects(relaySecret, two.Wait(t, 2)), later)

		b.file(first+", enabled: false", other) // paused
		b.reload()
		waiting := b.audit(4, "low")
		two.Wait(t, 6)
		if n := len(one.Requests()); n != 5 {
			t.Fatalf("%d requests at a subscriber that was paused after 5", n)
		}

		b.file(`id: siem, url: "`+two.URL+`/new", secret_env: WOLF_NEW`, other) // changed, and back
		b.reload()
		got := map[string]bool{}
		for n := 7; len(got) < len(waiting); n++ {
			for _, r := range two.Wait(t, n) {
				if strings.Contains(r.Line, "/new") {
					got[r.Get("X-PurpleWolf-Event-Id")] = true
					b.objects(relaySecret+"-new", []receivertest.Request{r})
				}
			}
		}

		b.file(other) // gone
		b.reload()
		b.end()
		b.start() // and still gone after a restart
		n := len(two.Requests())
		b.audit(1, "low")
		two.Wait(t, n+1)
		b.file(`id: siem, url: "`+one.URL+`/in", secret_env: WOLF_SECRET`, other) // back again
		b.reload()
		n = len(one.Requests())
		b.audit(1, "low")
		one.Wait(t, n+1)
		b.end()
	})
}

// Dead letters are kept, listed, exported, replayed and discarded, behind the token.
func TestRelayDeadLetters(t *testing.T) {
	stores(t, func(t *testing.T, b *relayBed) {
		r := receivertest.New(t, func(int, receivertest.Request) receivertest.Answer { return receivertest.Answer{Status: 403} })
		b.file(`id: siem, url: "`+r.URL+`/in", secret_env: WOLF_SECRET`, `id: archive, url: "`+r.URL+`/in", secret_env: WOLF_SECRET, schemas: [1, 2]`)
		objects := b.audit(3, "low")
		b.start()
		b.metric(`pwrelay_deliveries_total{outcome="dlq",subscriber_id="siem"}`, "3")
		b.metric(`pwrelay_deliveries_total{outcome="dlq",subscriber_id="archive"}`, "6")
		b.metric(`pwrelay_deliveries_total{outcome="retry",subscriber_id="siem"}`, "0")
		b.metric(`pwrelay_dlq_depth{subscriber_id="siem"}`, "3")
		if n := len(r.Requests()); n != 9 {
			t.Errorf("%d requests: a 403 isn't tried again", n)
		}
		lines := strings.Split(strings.TrimSpace(b.letters("export", "--subscriber", "siem")), "\n")
		for i, line := range lines {
			var letter struct {
				Webhook string `json:"webhook_id"`
				Data    struct{ Event struct{ N int } }
			}
			if err := json.Unmarshal([]byte(line), &letter); err != nil || letter.Webhook != "siem" || letter.Data.Event.N < 1 || letter.Data.Event.N > 3 {
				t.Errorf("line %d: %s: %v", i, line, err)
			}
		}
		if len(lines) != 3 {
			t.Errorf("%d lines", len(lines))
		}
		if out := b.letters("list", "--subscriber", "archive@v2"); strings.Count(out, "ded_") != 3 {
			t.Error(out)
		}
		if out := b.letters("discard", "--subscriber", "archive@v2"); !strings.HasPrefix(out, "3 dead letters discarded") {
			t.Error(out)
		}
		r.Use(nil)
		if out := b.letters("replay", "--subscriber", "siem"); !strings.HasPrefix(out, "3 deliveries queued") {
			t.Error(out)
		}
		b.same("siem", b.objects(relaySecret, r.Wait(t, 12)[9:]), objects)
		if out := b.letters("list", "--subscriber", "siem", "--json"); out != "" {
			t.Error(out)
		}
		b.end()
	})
}

// The admin routes answer as the original's do.
func TestRelayAdmin(t *testing.T) {
	b := newRelayBed(t)
	r := receivertest.New(t, nil)
	b.file(`id: siem, url: "` + r.URL + `/in", secret_env: WOLF_SECRET`)
	b.start()
	for _, c := range []struct {
		path, token string
		want        int
	}{
		{"/healthz", "", 200}, {"/readyz", "", 200}, {"/metrics", "", 401}, {"/version", "", 401}, {"/metrics", "wrong", 401}, {"/metrics", relayToken + " ", 200},
		{"/metrics", relayToken, 200}, {"/version", relayToken, 200}, {"/v1/dead-letters", "", 401}, {"/v1/dead-letters", "wrong", 401}, {"/v1/dead-letters", relayToken, 200},
		{"/v1/events", relayToken, 404}, {"/v1/webhooks", relayToken, 404}, {"/", "", 404}, {"/v1/dead-letters/ded_1", relayToken, 404},
	} {
		if code, body := b.get(c.path, c.token); code != c.want {
			t.Errorf("%s with %q: %d, want %d: %s", c.path, c.token, code, c.want, body)
		}
	}
	b.audit(2, "low")
	r.Wait(t, 2)
	log := filepath.Join(b.dir, "access.log")
	for series, want := range map[string]string{
		`pwrelay_ready`: "1", `pwrelay_source_lines_total{source_id="log_tail:` + log + `"}`: "4", `pwrelay_parsed_events_total{result="ok"}`: "2",
		`pwrelay_parsed_events_total{result="not_pw"}`: "2", `pwrelay_parsed_events_total{result="error"}`: "0", `pwrelay_subscribers_matched_total{subscriber_id="siem"}`: "2",
		`pwrelay_deliveries_total{outcome="delivered",subscriber_id="siem"}`: "2", `pwrelay_deliveries_total{outcome="dropped_queue_full",subscriber_id="siem"}`: "0",
		`pwrelay_deliveries_total{outcome="dropped_channel_closed",subscriber_id="siem"}`: "0", `pwrelay_delivery_latency_seconds_count{subscriber_id="siem"}`: "2",
		`pwrelay_dlq_depth{subscriber_id="siem"}`: "0", `pwrelay_enricher_calls_total{enricher="lookup",result="ok"}`: "2",
	} {
		b.metric(series, want)
	}
	b.end()
}

// Lines come by standard input as well; a file that is wrong starts nothing.
func TestRelayCommand(t *testing.T) {
	b := newRelayBed(t)
	bad := filepath.Join(b.dir, "bad.yaml")
	if err := os.WriteFile(bad, []byte("sources: [{type: stdin, nope: 1}]\nsubscribers: [{id: a, url: 'ftp://x', secret_env: NOT_SET}]\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{{"relay", "--config", bad, "--validate-only"}, {"relay", "--config", bad, "--data", filepath.Join(b.dir, "x")}} {
		code, out, errs := run(t, nil, "", args...)
		if code != exitUsage || out != "" || !strings.Contains(errs, "line 1: sources[0].nope") || !strings.Contains(errs, "subscribers[0].url") || !strings.Contains(errs, "secret_env") {
			t.Errorf("%v: %d %s%s", args, code, out, errs)
		}
	}
	if _, err := os.Stat(filepath.Join(b.dir, "x")); err == nil {
		t.Error("a file that is wrong made a data directory")
	}
	if code, _, errs := run(t, nil, "", "relay"); code != exitUsage || !strings.Contains(errs, "--config is missing") {
		t.Error(code, errs)
	}
	b.file(`id: siem, url: "http://127.0.0.1:9/in", secret_env: WOLF_SECRET`)
	if code, out, errs := run(t, b.environ, "", "relay", "--config", b.config(), "--validate-only"); code != 0 || !strings.Contains(out, "is valid: 1 source, 1 enrichment, 1 subscriber") {
		t.Error(code, out, errs)
	}
}
