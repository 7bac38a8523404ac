package cli

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/surehook/surehook/internal/receivertest"
)

// write puts a whole configuration in place.
func (b *relayBed) write(text string) {
	b.t.Helper()
	if err := os.WriteFile(b.config()+".new", []byte(text), 0o600); err != nil {
		b.t.Fatal(err)
	}
	if err := os.Rename(b.config()+".new", b.config()); err != nil {
		b.t.Fatal(err)
	}
}

// A catalogue adds its labels, is asked once for each value, and may fail.
func TestRelayAsksACatalogue(t *testing.T) {
	b := newRelayBed(t)
	asked := make(chan string, 10)
	catalogue := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked <- r.URL.EscapedPath()
		if r.URL.Path == "/tenants/gone" {
			w.WriteHeader(http.StatusNotFound)
			return
		}
		_, _ = fmt.Fprint(w, `{"owner":"payments","tenant":"not this one","Bad":"name"}`)
	}))
	defer catalogue.Close()
	r := receivertest.New(t, nil)
	b.write(`sources: [{type: log_tail, path: ` + filepath.Join(b.dir, "access.log") + `, from_beginning: true}]
enrichments: [{type: http, on_label: tenant, url: "` + catalogue.URL + `/tenants/{value}", timeout_ms: 20000}]
subscribers: [{id: siem, url: "` + r.URL + `/", secret_env: WOLF_SECRET, filter: {labels: {owner: payments}}}, {id: all, url: "` + r.URL + `/", secret_env: WOLF_SECRET}]
relay: {admin_token_env: WOLF_TOKEN}
`)
	line := func(tenant string) string {
		return `INF {"action":"block","would_block_rules":[],"labels":{"tenant":"` + tenant + `"}}`
	}
	b.append(line("a/../b c"), line("gone"))
	b.start()
	got := r.Wait(t, 3)
	with := 0
	for _, req := range got {
		if strings.Contains(string(req.Body), `"labels":{"owner":"payments","tenant":"a/../b c"},"source"`) {
			with++
		}
	}
	if with != 2 {
		t.Errorf("%d deliveries have the catalogue's label, want 2: one by the filter on it\n%s", with, got[0].Body)
	}
	b.append(line("a/../b c"))
	r.Wait(t, 5)
	b.metric(`pwrelay_enricher_calls_total{enricher="http",result="ok"}`, "1")
	b.metric(`pwrelay_enricher_calls_total{enricher="http",result="cached"}`, "1")
	b.metric(`pwrelay_enricher_calls_total{enricher="http",result="error"}`, "1")
	b.end()
	close(asked)
	for path := range asked {
		if path != "/tenants/a%2F%2E%2E%2Fb%20c" && path != "/tenants/gone" {
			t.Errorf("asked for %s", path)
		}
	}
}

// Sources come and go by reload; one that comes back goes on where it was.
func TestRelaySourcesReload(t *testing.T) {
	b := newRelayBed(t)
	r := receivertest.New(t, nil)
	other := filepath.Join(b.dir, "other.log")
	file := func(paths ...string) {
		text := "relay: {admin_token_env: WOLF_TOKEN}\nsubscribers:\n - {id: siem, url: \"" + r.URL + "/\", secret_env: WOLF_SECRET}\n"
		text += "sources:\n"
		for _, p := range paths {
			text += " - {type: log_tail, path: " + p + ", from_beginning: true}\n"
		}
		b.write(text)
	}
	access := filepath.Join(b.dir, "access.log")
	lines := func(path string, n int) {
		t.Helper()
		f, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
		if err != nil {
			t.Fatal(err)
		}
		for range n {
			b.lines++
			if _, err := fmt.Fprintf(f, `{"n":%d,"action":"block","would_block_rules":[]}`+"\n", b.lines); err != nil {
				t.Fatal(err)
			}
		}
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
	}
	file(access)
	lines(access, 2)
	lines(other, 3)
	b.start()
	r.Wait(t, 2)
	file(access, other) // added
	b.reload()
	r.Wait(t, 5)
	file(other) // removed
	b.reload()
	lines(other, 1)
	r.Wait(t, 6)
	lines(access, 2)
	lines(other, 1)
	r.Wait(t, 7)
	file(access, other) // and back
	b.reload()
	got := map[string]bool{}
	for _, req := range r.Wait(t, 9) {
		got[req.Get("X-PurpleWolf-Event-Id")] = true
	}
	b.end()
	if n := len(r.Requests()); n != 9 || len(got) != 9 {
		t.Errorf("%d requests of %d events, want 9 of 9", n, len(got))
	}
}

// SIGHUP is for the file. It ends no relay, also none that is about to end.
func TestRelayHangupWhileDraining(t *testing.T) {
	b := newRelayBed(t)
	gate := make(chan struct{})
	r := receivertest.New(t, func(int, receivertest.Request) receivertest.Answer { return receivertest.Answer{Gate: gate} })
	b.file(`id: siem, url: "` + r.URL + `/in", secret_env: WOLF_SECRET`)
	b.audit(1, "low")
	b.start()
	r.Wait(t, 1)
	if err := b.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	for { // until it doesn't listen any more: the drain is under way
		resp, err := http.Get(b.url + "/healthz")
		if err != nil {
			break
		}
		_ = resp.Body.Close()
	}
	if err := b.cmd.Process.Signal(syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	close(gate)
	select {
	case <-b.ended:
	case <-time.After(time.Minute):
		t.Fatal("it doesn't end")
	}
	if err := b.cmd.Wait(); err != nil {
		t.Errorf("%v\n%s", err, &b.output)
	}
}

// What waits for a subscriber that never answers is in the store, not in memory.
func TestRelayMemoryUnderABacklog(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("reads /proc")
	}
	b := newRelayBed(t, "--shutdown-grace", "1s")
	hung := receivertest.New(t, func(int, receivertest.Request) receivertest.Answer { return receivertest.Answer{Hang: true} })
	b.write(`sources: [{type: log_tail, path: ` + filepath.Join(b.dir, "access.log") + `, from_beginning: true}]
subscribers: [{id: hung, url: "` + hung.URL + `/", secret_env: WOLF_SECRET}, {id: dead, url: "http://127.0.0.1:9/", secret_env: WOLF_SECRET}]
relay: {admin_token_env: WOLF_TOKEN}
`)
	total := 0
	backlog := func(n int) (rss int) {
		t.Helper()
		lines := make([]string, n)
		for i := range lines {
			lines[i] = `INF {"action":"block","would_block_rules":[],"pad":"` + strings.Repeat("p", 8<<10) + `"}`
		}
		b.append(lines...)
		total += n
		b.metric(`pwrelay_subscribers_matched_total{subscriber_id="dead"}`, strconv.Itoa(total))
		status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", b.cmd.Process.Pid))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := fmt.Sscanf(string(status[strings.Index(string(status), "VmRSS:"):]), "VmRSS: %d kB", &rss); err != nil {
			t.Fatal(err)
		}
		return rss >> 10
	}
	b.start()
	const lines, most = 12_000, 48 // of 8 KB: 96 MB wait twice
	before := backlog(2000)
	if after := backlog(lines); after-before > most {
		t.Errorf("%d MB are in memory after %d MB more wait; %d MB before", after, lines*8>>10, before)
	} else {
		t.Logf("%d MB, then %d MB", before, after)
	}
	b.end()
}

// What a relay refuses is said in its words, with what to do.
func TestRelayRefusals(t *testing.T) {
	b := newRelayBed(t)
	subscriber := "subscribers: [{id: siem, url: \"http://127.0.0.1:9/\", secret_env: WOLF_SECRET}]\nsources: [{type: log_tail, path: " + filepath.Join(b.dir, "access.log") + "}]\n"
	ask := func(id string) (int, string) {
		code, _, errs := run(t, []string{"SUREHOOK_KEY=" + relayToken, "SUREHOOK_URL=" + b.url}, "", "dead-letters", "list", "--subscriber", id)
		return code, errs
	}
	b.write(subscriber + "relay: {admin_token_env: WOLF_TOKEN}\n")
	b.start()
	if code, errs := ask("nobody"); code != exitNotFound || !strings.Contains(errs, "no such subscriber") || strings.Contains(errs, "webhook") {
		t.Error(code, errs)
	}
	b.end()
	b.write(subscriber)
	b.start()
	if code, errs := ask("siem"); code != exitRefused || !strings.Contains(errs, "set relay.admin_token_env") || strings.Contains(errs, "keys list") {
		t.Error(code, errs)
	}
	b.end()
}
