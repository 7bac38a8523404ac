package receivers

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/surehook/surehook/client"
	server "github.com/surehook/surehook/internal/app"
	"github.com/surehook/surehook/internal/cli"
	"github.com/surehook/surehook/internal/config"
	"github.com/surehook/surehook/internal/conformance"
)

// snippet is a block of code of the documentation, with what the comment before
// it says about running it.
type snippet struct {
	line             int
	test, lang, code string
}

// fence: the comment with what to do, the language, the code.
var fence = regexp.MustCompile("(?m)^(?:<!-- test: ([a-z ]+) -->\n)?```([a-z]*)\n((?s:.*?))^```$")

func snippets(t *testing.T) []snippet {
	t.Helper()
	raw, err := os.ReadFile("../../docs/receiving.md")
	if err != nil {
		t.Fatal(err)
	}
	page := string(raw)
	var all []snippet
	for _, m := range fence.FindAllStringSubmatchIndex(page, -1) {
		s := snippet{line: strings.Count(page[:m[0]], "\n") + 1, lang: page[m[4]:m[5]], code: page[m[6]:m[7]]}
		if m[2] >= 0 {
			s.test = page[m[2]:m[3]]
		}
		if s.test == "" && s.lang != "text" {
			t.Errorf("line %d: code that no test runs", s.line)
		}
		all = append(all, s)
	}
	if n := strings.Count(page, "\n```") / 2; len(all) != n || n < 12 {
		t.Fatalf("%d blocks were read of %d", len(all), n)
	}
	return all
}

// program writes a snippet to a file, and says how to run it.
func (s snippet) program(t *testing.T, dir string) []string {
	t.Helper()
	name := map[string]string{"go": "main.go", "python": "main.py", "typescript": "main.ts", "javascript": "main.mjs"}[s.lang]
	if s.lang == "typescript" || s.lang == "javascript" { // beside node_modules
		dir, name = node(t), fmt.Sprintf("line%d%s", s.line, filepath.Ext(name))
	}
	file := filepath.Join(dir, name)
	if err := os.WriteFile(file, []byte(s.code), 0o600); err != nil {
		t.Fatal(err)
	}
	switch s.lang {
	case "python":
		return []string{python(t), file}
	case "typescript":
		return []string{"node", "--import", "file://" + filepath.Join(node(t), "node_modules/tsx/dist/loader.mjs"), file}
	case "javascript":
		return []string{"node", file}
	}
	return []string{goSnippet(t, file, s.test == "program go")}
}

// goSnippet builds a program in the examples' module or, where it is about what
// only our tests depend on, in this one.
func goSnippet(t *testing.T, file string, here bool) string {
	t.Helper()
	out := filepath.Join(filepath.Dir(file), "program")
	if here {
		run(t, ".", "go", "build", "-o", out, file)
		return out
	}
	dir, err := goPrograms()
	if err != nil {
		t.Fatal(err)
	}
	run(t, "go", "go", "build", "-mod=mod", "-modfile="+filepath.Join(dir, "go.mod"), "-o", out, file)
	return out
}

// the receivers to be copied pass the whole kit, and the programs about the
// official packages show what they claim.
func TestDocumentedPrograms(t *testing.T) {
	t.Parallel()
	for _, s := range snippets(t) {
		kind, _, _ := strings.Cut(s.test, " ")
		if kind != "receiver" && kind != "program" {
			continue
		}
		t.Run(fmt.Sprintf("%s line %d", s.lang, s.line), func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			argv := s.program(t, dir)
			if kind == "program" {
				t.Log(run(t, dir, argv[0], argv[1:]...))
				return
			}
			keys := secrets["standard"]
			a := start(t, argv, dir, env("standard", keys[0], keys[1])...)
			in := open(t, filepath.Join(dir, "inbox.db"))
			report, err := conformance.Run(t.Context(), conformance.Options{URL: a.url, Profile: "standard", Secrets: keys[:2], Retired: keys[2], Effects: in.count})
			if err != nil {
				t.Fatal(err)
			}
			for _, r := range report.Results {
				if !r.Pass {
					t.Errorf("%+v", r)
				}
			}
		})
	}
}

// asSurehook lets the test's own program be the command: the shell finds it as
// surehook in its path.
func asSurehook() {
	if filepath.Base(os.Args[0]) == "surehook" {
		os.Exit(cli.Main(context.Background(), cli.Process()))
	}
}

// The page's commands run one after the other, as a reader would type them.
func TestDocumentedCommands(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("curl"); err != nil {
		need(t, ".", []string{"curl", "--version"}, "curl")
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	bin, dir := t.TempDir(), t.TempDir()
	if err := os.Symlink(self, filepath.Join(bin, "surehook")); err != nil {
		t.Fatal(err)
	}
	replacer, environ := served(t)
	environ = append(environ, "PATH="+bin+":"+os.Getenv("PATH"), "SUREHOOK_SECRET="+secrets["standard"][0])
	ran := 0
	for _, s := range snippets(t) {
		code := replacer.Replace(s.code)
		switch s.test {
		case "sh":
			cmd := exec.CommandContext(t.Context(), "bash", "-euo", "pipefail", "-c", code)
			cmd.Dir, cmd.Env = dir, append(os.Environ(), environ...)
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Fatalf("line %d: %v\n%s\n%s", s.line, err, code, out)
			}
			ran++
		case "background", "background forward":
			start(t, []string{"bash", "-euc", strings.ReplaceAll(code, "surehook listen", "exec surehook listen")}, dir, environ...)
			ran++
		}
	}
	if ran < 7 {
		t.Errorf("%d blocks ran", ran)
	}
}

// served starts a server with an endpoint and an event, and gives what stands
// for the page's placeholders, and the environment that leads to the server.
func served(t *testing.T) (*strings.Replacer, []string) {
	t.Helper()
	cfg := config.Default()
	cfg.Listen, cfg.Data, cfg.AllowNetworks = "127.0.0.1:0", filepath.Join(t.TempDir(), "data"), []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}
	a, err := server.Start(t.Context(), cfg, server.Options{Version: "test"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		if err := a.Stop(ctx); err != nil {
			t.Error(err)
		}
	})
	url := "http://" + a.Addr.String()
	api, err := client.New(url, a.AdminKey)
	if err != nil {
		t.Fatal(err)
	}
	one, two := port(t), port(t)
	hook, err := api.CreateWebhook(t.Context(), client.WebhookInput{URL: "http://127.0.0.1:" + one + "/webhook"})
	if err != nil {
		t.Fatal(err)
	}
	ev, err := api.Publish(t.Context(), client.Event{Type: "order.paid", Data: []byte(`{"name":"Łódź"}`)})
	if err != nil {
		t.Fatal(err)
	}
	return strings.NewReplacer("127.0.0.1:9000", "127.0.0.1:"+one, "127.0.0.1:9001", "127.0.0.1:"+two, "whk_…", hook.ID, "evt_…", ev.ID, "whsec_…", secrets["standard"][0]),
		[]string{"SUREHOOK_URL=" + url, "SUREHOOK_KEY=" + a.AdminKey}
}

// port gives one that is free.
func port(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	_, p, err := net.SplitHostPort(l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	return p
}
