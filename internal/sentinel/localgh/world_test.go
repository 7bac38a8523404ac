package localgh

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// The test's binary is the gh that it puts on its PATH: what it is asked for it
// gets from the test's own GitHub, and prints as gh 2.23 does.
func TestMain(m *testing.M) {
	if filepath.Base(os.Args[0]) == "gh" {
		os.Exit(playGH(os.Args[1:]))
	}
	os.Exit(m.Run())
}

func playGH(args []string) int {
	body, err := json.Marshal(map[string]any{"args": args, "env": os.Environ()})
	if err != nil {
		panic(err)
	}
	res, err := http.Post(os.Getenv("FAKE_GITHUB")+"/run", "application/json", strings.NewReader(string(body)))
	if err != nil {
		fmt.Fprintln(os.Stderr, "error connecting to api.github.com")
		return 1
	}
	defer res.Body.Close()
	var out played
	if err := json.NewDecoder(res.Body).Decode(&out); err != nil {
		panic(err)
	}
	_, _ = os.Stdout.WriteString(out.Stdout)
	_, _ = os.Stderr.WriteString(out.Stderr)
	if out.Flood {
		line := strings.Repeat("x", 1<<16)
		for range maxOutput>>16 + 2 {
			if _, err := io.WriteString(os.Stdout, line); err != nil {
				return 1
			}
		}
	}
	return out.Code
}

// played is what a run of gh prints.
type played struct {
	Stdout, Stderr string
	Code           int
	Flood          bool
	hang           chan struct{} // closed: it goes on
}

// world is a GitHub with one pull request, octocat/Hello-World#1347.
type world struct {
	t   *testing.T
	dir string // has gh
	url string

	mu       sync.Mutex
	now      time.Time
	pull     map[string]any
	others   []map[string]any
	comments []map[string]any
	reviews  []map[string]any
	suites   map[string][]map[string]any // by commit
	runs     map[string][]map[string]any
	fault    func(path string) *played // what gh prints in place of GitHub's answer; nil: that
	args     [][]string                // of every run
	asked    []string                  // paths, with the status that was answered
	environ  []string                  // of the last run
}

func newWorld(t *testing.T) *world {
	w := &world{t: t, dir: t.TempDir(), now: time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC), suites: map[string][]map[string]any{}, runs: map[string][]map[string]any{}}
	w.pull = example[map[string]any](t, "pull")
	w.pull["state"], w.pull["closed_at"], w.pull["merged_at"], w.pull["merged_by"] = "open", nil, nil, nil
	srv := httptest.NewServer(http.HandlerFunc(w.run))
	t.Cleanup(srv.Close)
	w.url = srv.URL
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(exe, filepath.Join(w.dir, "gh")); err != nil {
		t.Fatal(err)
	}
	return w
}

func (w *world) command() string { return filepath.Join(w.dir, "gh") }

func (w *world) env() []string {
	return []string{"FAKE_GITHUB=" + w.url, "HOME=" + w.dir, "GH_DEBUG=api", "GH_HOST=example.com", "GH_TOKEN=gho_secret"}
}

// do changes the world, a minute later.
func (w *world) do(f func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.now = w.now.Add(time.Minute)
	f()
}

func (w *world) run(rw http.ResponseWriter, r *http.Request) {
	var in struct{ Args, Env []string }
	if err := json.NewDecoder(r.Body).Decode(&in); err != nil {
		w.t.Error(err)
	}
	w.mu.Lock()
	w.args, w.environ = append(w.args, in.Args), in.Env
	out := w.play(in.Args)
	w.mu.Unlock()
	if out.hang != nil {
		<-out.hang
	}
	if err := json.NewEncoder(rw).Encode(out); err != nil {
		w.t.Error(err)
	}
}

// play answers gh's arguments as gh does: one that it doesn't know is an error.
func (w *world) play(args []string) played {
	path, tag := "", ""
	if slices.Equal(args, []string{"auth", "token", "--hostname", "github.com"}) {
		if w.fault != nil {
			if p := w.fault("auth"); p != nil {
				return *p
			}
		}
		return played{Stdout: "gho_secret\n"}
	}
	for i := 1; i < len(args); i++ {
		switch a := args[i]; a {
		case "--include":
		case "--method", "--hostname":
			i++
		case "-H":
			i++
			if v, ok := strings.CutPrefix(args[i], "If-None-Match: "); ok {
				tag = v
			}
		default:
			if path != "" || strings.HasPrefix(a, "-") || args[0] != "api" {
				w.t.Errorf("gh doesn't know %q in %q", a, args)
			}
			path = a
		}
	}
	if w.fault != nil {
		if p := w.fault(path); p != nil {
			w.asked = append(w.asked, path+" fault")
			return *p
		}
	}
	v, known := w.find(path)
	if !known {
		w.asked = append(w.asked, path+" 404")
		return w.answer(404, "Not Found", `{"message":"Not Found"}`, "", "gh: Not Found (HTTP 404)")
	}
	b, err := json.Marshal(v)
	if err != nil {
		w.t.Error(err)
	}
	now := fmt.Sprintf(`W/"%x"`, sha256.Sum256(b))
	if now == tag {
		w.asked = append(w.asked, path+" 304")
		return w.answer(304, "Not Modified", "", now, "gh: HTTP 304")
	}
	w.asked = append(w.asked, path+" 200")
	return w.answer(200, "OK", string(b), now, "")
}

func (w *world) answer(status int, words, body, tag, stderr string, header ...string) played {
	out := fmt.Sprintf("HTTP/2.0 %d %s\nContent-Type: application/json; charset=utf-8\r\nDate: %s\r\n", status, words, w.now.Format(http.TimeFormat))
	if tag != "" {
		out += "Etag: " + tag + "\r\n"
	}
	for _, h := range header {
		out += h + "\r\n"
	}
	p := played{Stdout: out + "\r\n" + body, Stderr: stderr}
	if stderr != "" {
		p.Code = 1
	}
	return p
}

func (w *world) find(path string) (any, bool) {
	rest, ok := strings.CutPrefix(path, "repos/octocat/Hello-World/")
	if !ok {
		return nil, false
	}
	rest, query, _ := strings.Cut(rest, "?")
	q := map[string]string{}
	for part := range strings.SplitSeq(query, "&") {
		k, v, _ := strings.Cut(part, "=")
		q[k] = strings.ReplaceAll(v, "%3A", ":")
	}
	sha, isSuites := strings.CutSuffix(strings.TrimPrefix(rest, "commits/"), "/check-suites")
	switch {
	case rest == "pulls":
		return w.list(q), true
	case rest == "pulls/1347":
		return w.pull, true
	case rest == "issues/1347/comments":
		since, err := time.Parse(time.RFC3339, q["since"])
		if err != nil {
			w.t.Errorf("%s: %v", path, err)
		}
		var out []map[string]any
		for _, c := range w.comments {
			if at, err := time.Parse(time.RFC3339, c["updated_at"].(string)); err == nil && !at.Before(since) {
				out = append(out, c)
			}
		}
		return pageOf(q, out), true
	case rest == "pulls/1347/reviews":
		return pageOf(q, w.reviews), true
	case isSuites:
		return map[string]any{"total_count": len(w.suites[sha]), "check_suites": pageOf(q, w.suites[sha])}, true
	case rest == "actions/runs":
		sha := q["head_sha"]
		return map[string]any{"total_count": len(w.runs[sha]), "workflow_runs": pageOf(q, w.runs[sha])}, true
	}
	return nil, false
}

// list is the pull requests of the repository: the one, and others that are only
// listed.
func (w *world) list(q map[string]string) []map[string]any {
	all := append([]map[string]any{w.pull}, w.others...)
	slices.SortStableFunc(all, func(a, b map[string]any) int {
		return strings.Compare(b["updated_at"].(string), a["updated_at"].(string))
	})
	all = slices.DeleteFunc(all, func(p map[string]any) bool { return q["state"] == "open" && p["state"] != "open" })
	return pageOf(q, all)
}

func pageOf(q map[string]string, all []map[string]any) []map[string]any {
	per, err1 := strconv.Atoi(q["per_page"])
	n, err2 := strconv.Atoi(q["page"])
	if err1 != nil || err2 != nil {
		return nil
	}
	from := min((n-1)*per, len(all))
	return append([]map[string]any{}, all[from:min(from+per, len(all))]...)
}

// example reads one of GitHub's.
func example[T any](t *testing.T, name string) (v T) {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("testdata", name+".json"))
	if err == nil {
		err = json.Unmarshal(b, &v)
	}
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// with gives an example with other values.
func with(of map[string]any, pairs ...any) map[string]any {
	out := make(map[string]any, len(of))
	for k, v := range of {
		out[k] = v
	}
	for i := 0; i < len(pairs); i += 2 {
		out[pairs[i].(string)] = pairs[i+1]
	}
	return out
}

func (w *world) stamp() string { return w.now.Format(time.RFC3339) }

func (w *world) comment(id int, body string) {
	c := with(example[[]map[string]any](w.t, "comments")[0], "id", id, "body", body, "created_at", w.stamp(), "updated_at", w.stamp())
	w.comments = append(w.comments, c)
}

func (w *world) review(id int, state string) {
	r := with(example[[]map[string]any](w.t, "reviews")[0], "id", id, "state", state)
	if r["submitted_at"] = w.stamp(); state == "PENDING" {
		delete(r, "submitted_at")
	}
	w.reviews = append(w.reviews, r)
}

func (w *world) push(sha string) {
	w.pull = with(w.pull, "updated_at", w.stamp(), "head", with(w.pull["head"].(map[string]any), "sha", sha))
}

func (w *world) head() string { return w.pull["head"].(map[string]any)["sha"].(string) }

// suite puts a check suite of a commit into a state.
func (w *world) suite(sha string, id int, status, conclusion string) {
	s := with(example[map[string]any](w.t, "check-suites")["check_suites"].([]any)[0].(map[string]any), "id", id, "head_sha", sha, "status", status, "conclusion", conclusion, "updated_at", w.stamp())
	w.suites[sha] = put(w.suites[sha], s)
}

// workflow puts an attempt of a workflow's run into a state.
func (w *world) workflow(sha string, id, attempt int, status, conclusion string) {
	r := with(example[map[string]any](w.t, "runs")["workflow_runs"].([]any)[0].(map[string]any), "id", id, "head_sha", sha, "run_attempt", attempt, "status", status, "conclusion", conclusion,
		"updated_at", w.stamp())
	w.runs[sha] = put(w.runs[sha], r)
}

func put(all []map[string]any, v map[string]any) []map[string]any {
	for i := range all {
		if all[i]["id"] == v["id"] {
			all[i] = v
			return all
		}
	}
	return append(all, v)
}

func (w *world) merge() {
	w.pull = with(w.pull, "state", "closed", "merged", true, "closed_at", w.stamp(), "updated_at", w.stamp(), "merged_by", map[string]any{"login": "octocat"})
}
