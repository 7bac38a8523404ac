package console_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
)

// chromium is the one browser of these tests: Debian's package, installed where it
// is missing.
var chromium = sync.OnceValues(func() (string, error) {
	names := []string{"chromium", "chromium-browser", "google-chrome"}
	find := func() string {
		for _, n := range names {
			if path, err := exec.LookPath(n); err == nil {
				return path
			}
		}
		return ""
	}
	if path := find(); path != "" {
		return path, nil
	}
	apt, err := exec.LookPath("apt-get")
	if err != nil || os.Geteuid() != 0 {
		return "", fmt.Errorf("there is no chromium: install the package (apt-get install chromium)")
	}
	for _, args := range [][]string{{"update", "-qq"}, {"install", "-qq", "--no-install-recommends", "-o", "DPkg::Lock::Timeout=600", "chromium"}} {
		cmd := exec.Command(apt, append([]string{"-y"}, args...)...)
		cmd.Env = append(os.Environ(), "DEBIAN_FRONTEND=noninteractive")
		if out, err := cmd.CombinedOutput(); err != nil && args[0] == "install" {
			return "", fmt.Errorf("apt-get install chromium: %w\n%s", err, out)
		}
	}
	if path := find(); path != "" {
		return path, nil
	}
	return "", fmt.Errorf("the package chromium holds no browser")
})

// running is the browser's process, shared by all tests of this binary.
var running = sync.OnceValues(func() (context.Context, error) {
	path, err := chromium()
	if err != nil {
		return nil, err
	}
	opts := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath(path), chromedp.NoSandbox, chromedp.DisableGPU,
		chromedp.Flag("disable-background-networking", true), chromedp.Flag("disable-component-update", true), chromedp.Flag("disable-domain-reliability", true),
		chromedp.Flag("host-resolver-rules", "MAP * ~NOTFOUND, EXCLUDE 127.0.0.1, EXCLUDE localhost"), chromedp.Flag("lang", "en-GB"))
	alloc, stop := chromedp.NewExecAllocator(context.Background(), opts...)
	ctx, cancel := chromedp.NewContext(alloc)
	atEnd(func() {
		cancel()
		stop()
	})
	return ctx, chromedp.Do(ctx)
})

// tab is a window of the browser with cookies of its own.
type tab struct {
	t    testing.TB
	ctx  context.Context
	s    *site
	name string // of the store, for pictures
	mu   sync.Mutex
	said []string // by the page's scripts, and what its policy refused
}

func (s *site) tab(t testing.TB) *tab {
	t.Helper()
	parent, err := running()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := chromedp.NewContext(parent, chromedp.WithNewBrowserContext())
	ctx, stop := context.WithTimeout(ctx, 3*time.Minute)
	t.Cleanup(func() {
		stop()
		cancel()
	})
	name := strings.ToLower(filepath.Base(t.Name()))
	if !strings.Contains(t.Name(), "/") {
		name = "pages"
	}
	b := &tab{t: t, ctx: ctx, s: s, name: name}
	b.do(chromedp.EmulateViewport(1280, 900), func(ctx context.Context, at *chromedp.Target) (chromedp.Void, error) {
		_, err := cdp.Call(ctx, at, emulation.SetTimezoneOverride, emulation.SetTimezoneOverrideParams{TimezoneID: "Asia/Kathmandu"})
		return chromedp.Void{}, err
	})
	console := chromedp.Console(ctx)
	go func() {
		for m, err := range console {
			if err != nil {
				return
			}
			itself := m.Source == "network" && !partOfPage.MatchString(m.URL) // a page that says no
			if (m.Type == chromedp.ConsoleError || m.IsException()) && !itself {
				b.mu.Lock()
				b.said = append(b.said, m.String())
				b.mu.Unlock()
			}
		}
	}()
	return b
}

func (b *tab) do(steps ...chromedp.Action[chromedp.Void]) {
	b.t.Helper()
	if err := chromedp.Do(b.ctx, steps...); err != nil {
		b.t.Fatalf("%v (%s)", err, b.where())
	}
}

// ask evaluates an expression on the page.
func ask[T any](b *tab, expression string) T {
	b.t.Helper()
	out, err := chromedp.Run(b.ctx, chromedp.Evaluate[T](expression, func(p *runtime.EvaluateParams) { p.AwaitPromise = new(true) }))
	if err != nil {
		b.t.Fatalf("%v (%s)", err, b.where())
	}
	return out
}

func (b *tab) where() string {
	out, _ := chromedp.Run(b.ctx, chromedp.Evaluate[string](`location.href + ": " + document.body.innerText.slice(0, 600)`))
	return out
}

func (b *tab) open(path string) {
	b.t.Helper()
	b.do(chromedp.Navigate(b.s.srv.URL+path), chromedp.WaitReady("main"))
}

// wait waits until an expression holds on the page, or on the one that it leads to: a
// page that goes takes the question with it.
func (b *tab) wait(expression string) {
	b.t.Helper()
	for end := time.Now().Add(15 * time.Second); ; {
		_, err := chromedp.Run(b.ctx, chromedp.Poll[bool]("!!("+expression+")", chromedp.WithPollingTimeout(10*time.Second)))
		if err == nil {
			return
		}
		if errors.Is(err, chromedp.ErrPollingTimeout) || time.Now().After(end) || b.ctx.Err() != nil {
			b.t.Fatalf("never: %s: %v (%s)", expression, err, b.where())
		}
	}
}

// clear empties a field.
func (b *tab) clear(field string) {
	b.t.Helper()
	ask[string](b, fmt.Sprintf(`document.querySelector(%q).value = ""`, field))
}

// see waits until a text is on the page.
func (b *tab) see(text string) {
	b.t.Helper()
	b.wait(fmt.Sprintf(`!!document.body && document.body.innerText.toLowerCase().includes(%q)`, strings.ToLower(text)))
}

// press clicks the button or the link with a text.
func (b *tab) press(text string) {
	b.t.Helper()
	b.do(chromedp.Click(fmt.Sprintf(`//main//*[self::button or self::a][normalize-space()=%q]`, text)))
}

// signIn opens the console with a key.
func (b *tab) signIn(key string) {
	b.t.Helper()
	b.open("/console/")
	b.do(chromedp.SendKeys("#key", key+"\r"), chromedp.WaitVisible(".side"))
}

// picture keeps what the page looks like, where CI takes it from.
func (b *tab) picture(name string) {
	b.t.Helper()
	png, err := chromedp.Run(b.ctx, chromedp.FullScreenshot(100))
	if err != nil {
		b.t.Fatal(err)
	}
	dir := filepath.Join("..", "..", "artifacts", "console", b.name)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		b.t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, name+".png"), png, 0o644); err != nil {
		b.t.Fatal(err)
	}
}

// dark chooses the colours.
func (b *tab) dark(on bool) {
	b.t.Helper()
	scheme := "light"
	if on {
		scheme = "dark"
	}
	b.do(func(ctx context.Context, at *chromedp.Target) (chromedp.Void, error) {
		_, err := cdp.Call(ctx, at, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{
			{Name: "prefers-color-scheme", Value: scheme}, {Name: "prefers-reduced-motion", Value: "reduce"}}})
		return chromedp.Void{}, err
	})
}

var axe = sync.OnceValues(func() (string, error) {
	b, err := os.ReadFile(filepath.Join("testdata", "axe.min.js"))
	return string(b), err
})

// Which of axe-core's rules a page is held against.
const (
	allRules = `{resultTypes: ["violations"], preload: false}`
	contrast = `{resultTypes: ["violations"], preload: false, runOnly: ["color-contrast"]}`
)

// bring has axe-core in each page from its beginning.
func (b *tab) bring() {
	b.t.Helper()
	script, err := axe()
	if err != nil {
		b.t.Fatal(err)
	}
	b.do(func(ctx context.Context, at *chromedp.Target) (chromedp.Void, error) {
		_, err := cdp.Call(ctx, at, page.AddScriptToEvaluateOnNewDocument, page.AddScriptToEvaluateOnNewDocumentParams{Source: script})
		return chromedp.Void{}, err
	})
}

// accessible holds the page against axe-core's rules.
func (b *tab) accessible(what, rules string) {
	b.t.Helper()
	script, err := axe()
	if err != nil {
		b.t.Fatal(err)
	}
	type violation struct {
		ID    string `json:"id"`
		Help  string `json:"help"`
		Nodes []struct {
			HTML           string `json:"html"`
			FailureSummary string `json:"failureSummary"`
		} `json:"nodes"`
	}
	if !ask[bool](b, "!!window.axe") {
		ask[int](b, script+"\n;0")
	}
	for _, v := range ask[[]violation](b, "axe.run(document, "+rules+").then(r => r.violations)") {
		for _, n := range v.Nodes[:min(len(v.Nodes), 3)] {
			b.t.Errorf("%s: %s: %s\n%s\n%s", what, v.ID, v.Help, n.HTML, n.FailureSummary)
		}
	}
}

// quiet checks that no script failed, nothing was refused by the policy, and no
// dialog opened.
func (b *tab) quiet() {
	b.t.Helper()
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, s := range b.said {
		b.t.Errorf("the page says %s", s)
	}
	b.said = nil
}

// partOfPage tells what a page fetches to be whole.
var partOfPage = regexp.MustCompile(`/(static|live|chart|check-url|progress|theme\.css|logo)`)

var unsafeName = regexp.MustCompile(`[^a-z0-9]+`)

// tabs is how many tabs share the pages, and stories that are told at once: there is a
// browser for all of them.
const tabs = 2

// Every page is without a violation, in light and dark, fits into 320 px, and its
// picture is kept. No store has a part in how a page looks.
func TestBrowserPagesAreAccessible(t *testing.T) {
	t.Parallel()
	s := lite(t)
	w := s.world()
	var paths []string
	for _, path := range w.paths("/console") {
		if !strings.Contains(path, "/chart") {
			paths = append(paths, path)
		}
	}
	names := strings.NewReplacer(w.well, "well", w.failing, "failing", w.event, "one", w.replay, "one", w.watch, "one", w.inbox, "inbox")
	for i := range tabs {
		t.Run(fmt.Sprint("tab ", i+1), func(t *testing.T) {
			t.Parallel()
			b := s.tab(t)
			b.name = "pages"
			b.bring()
			b.dark(false)
			b.open("/console/login")
			if i == 0 {
				b.accessible("login", allRules)
				b.picture("login")
			}
			b.signIn(adminKey)
			for j := i; j < len(paths); j += tabs {
				name := strings.Trim(unsafeName.ReplaceAllString(strings.ToLower(names.Replace(paths[j])), "-"), "-")
				b.look(paths[j], name, strings.HasSuffix(paths[j], "/") || strings.Contains(paths[j], w.event) || strings.Contains(paths[j], w.failing))
			}
			b.quiet()
		})
	}
}

// look holds a page against the rules, at day and at night, wide and narrow.
func (b *tab) look(path, name string, everyPicture bool) {
	b.t.Helper()
	b.dark(false)
	b.do(chromedp.EmulateViewport(1280, 900))
	b.open(path)
	b.wait(`!document.querySelector(".waiting") && !document.querySelector("time:not([data-local])")`)
	b.accessible(path, allRules)
	b.picture(name)
	b.dark(true)
	b.accessible(path+" (dark)", contrast)
	if everyPicture {
		b.picture(name + "-dark")
	}
	b.do(chromedp.EmulateViewport(320, 700))
	if over := ask[int](b, `document.documentElement.scrollWidth - document.documentElement.clientWidth`); over > 0 {
		b.t.Errorf("%s is %d pixels wider than a window of 320", path, over)
	}
	if everyPicture {
		b.picture(name + "-narrow")
	}
}

// stories tells a story over each of the stores, at once.
func stories(t *testing.T, f func(*testing.T, *site)) {
	t.Parallel()
	both(t, func(t *testing.T, s *site) {
		t.Parallel()
		f(t, s)
	})
}
