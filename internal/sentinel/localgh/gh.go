package localgh

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/textproto"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"time"
)

// Bounds of one run of gh.
const (
	maxOutput  = 16 << 20 // bytes on standard output; a page of 100 pull requests has about 3 MB
	maxWords   = 300      // bytes of what gh says on standard error that are passed on
	runTimeout = 30 * time.Second
	maxPause   = time.Hour // that a rate limit may ask for
)

// tool runs the user's gh, without a shell. Its arguments are our own words, names
// that target has checked, and ETags that etag has.
type tool struct {
	command string
	environ func() []string
	now     func() time.Time
	most    time.Duration // of one run; 0: runTimeout

	mu    sync.Mutex
	until time.Time // the rate limit of the account, which all watches share
}

// answer is one of GitHub's, as gh api --include prints it.
type answer struct {
	status int
	header textproto.MIMEHeader
	body   []byte
}

// trouble is why nothing was read, in words for people, and when to try again.
type trouble struct {
	message string
	lasting bool      // somebody has to do something
	until   time.Time // a rate limit ends
}

func (t *trouble) Error() string { return t.message }

var (
	errMissing = &trouble{message: "the GitHub CLI gh isn't there: install it for the user that runs surehook, or name it with --gh-command", lasting: true}
	errLogin   = &trouble{message: "gh isn't logged in: run gh auth login as the user that runs surehook, or set GH_TOKEN for surehook", lasting: true}
)

// capped keeps the first bytes, and remembers that there were more. It isn't a
// bytes.Buffer, whose ReadFrom knows no bound.
type capped struct {
	b    []byte
	most int
	cut  bool
}

func (c *capped) Write(p []byte) (int, error) {
	room := c.most - len(c.b)
	c.cut = c.cut || len(p) > room
	c.b = append(c.b, p[:min(len(p), room)]...)
	return len(p), nil
}

// run gives what gh printed, and how it ended. err is only for a gh that couldn't be
// started or didn't end.
func (g *tool) run(ctx context.Context, args ...string) (stdout []byte, words string, code int, err error) {
	most := cmp.Or(g.most, runTimeout)
	ctx, cancel := context.WithTimeout(ctx, most)
	defer cancel()
	path, err := exec.LookPath(g.command)
	if err != nil {
		return nil, "", 0, errMissing
	}
	cmd := exec.CommandContext(ctx, path, args...) //nolint:gosec // the operator's own setting, and checked arguments
	out, said := capped{most: maxOutput}, capped{most: 4 << 10}
	cmd.Stdout, cmd.Stderr, cmd.WaitDelay = &out, &said, time.Second
	cmd.Env = append(quiet(g.environ()), "GH_PROMPT_DISABLED=1", "GH_NO_UPDATE_NOTIFIER=1", "GH_SPINNER_DISABLED=1", "NO_COLOR=1", "CLICOLOR_FORCE=0", "GH_PAGER=cat", "PAGER=cat")
	err = cmd.Run()
	words = redact(string(said.b))
	exit, ended := errors.AsType[*exec.ExitError](err)
	switch {
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		return nil, words, 0, &trouble{message: "gh didn't answer within " + most.String()}
	case ctx.Err() != nil:
		return nil, words, 0, ctx.Err()
	case out.cut:
		return nil, words, 0, &trouble{message: fmt.Sprintf("gh printed more than %d MiB", maxOutput>>20)}
	case ended:
		return out.b, words, exit.ExitCode(), nil
	case err != nil:
		return nil, words, 0, &trouble{message: "gh can't be run: check that --gh-command names a program", lasting: true}
	}
	return out.b, words, 0, nil
}

// quiet leaves out what makes gh print more than it should: requests with their
// tokens, and colours.
func quiet(environ []string) []string {
	out := make([]string, 0, len(environ)+8)
	for _, kv := range environ {
		switch name, _, _ := strings.Cut(kv, "="); name {
		case "GH_DEBUG", "DEBUG", "GH_FORCE_TTY", "GH_REPO", "GH_HOST", "CLICOLOR_FORCE":
		default:
			out = append(out, kv)
		}
	}
	return out
}

var (
	tokens  = regexp.MustCompile(`\b(?:gh[a-z]_|github_pat_)\w+|(?i:bearer|token) \S+`)
	queries = regexp.MustCompile(`(https?://[^\s?"]+)\?[^\s"]+`)
)

// redact makes one line of what gh said, without tokens.
func redact(s string) string {
	line, _, _ := strings.Cut(strings.TrimSpace(s), "\n")
	line = queries.ReplaceAllString(tokens.ReplaceAllString(line, "[redacted]"), "$1")
	line = strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f {
			return ' '
		}
		return r
	}, line)
	if len(line) > maxWords {
		line = strings.ToValidUTF8(line[:maxWords], "") + "…"
	}
	return line
}

// get reads a path of GitHub's REST API: 200, or 304 when it is still what tag
// stands for.
func (g *tool) get(ctx context.Context, path, tag string) (answer, error) {
	if err := g.paused(); err != nil {
		return answer{}, err
	}
	args := []string{"api", "--include", "--method", "GET", "--hostname", "github.com", "-H", "Accept: application/vnd.github+json", "-H", "X-GitHub-Api-Version: 2022-11-28"}
	if tag != "" {
		args = append(args, "-H", "If-None-Match: "+tag)
	}
	out, words, code, err := g.run(ctx, append(args, path)...)
	if err != nil {
		return answer{}, err
	}
	a, ok := parse(out)
	switch {
	case code == 4:
		return answer{}, errLogin
	case !ok && code == 0:
		return answer{}, &trouble{message: "gh printed something else than GitHub's answer: is --gh-command the GitHub CLI?"}
	case !ok:
		return answer{}, &trouble{message: "gh failed: " + cmp.Or(words, "it said nothing")}
	case a.status == http.StatusOK && code == 0, a.status == http.StatusNotModified && tag != "":
		return a, nil
	}
	return answer{}, g.refused(a, words)
}

// refused tells what an answer that isn't a success means.
func (g *tool) refused(a answer, words string) error {
	until := limit(a.header, g.now())
	switch {
	case a.status == http.StatusUnauthorized:
		return errLogin
	case a.status == http.StatusTooManyRequests, a.status == http.StatusForbidden && !until.IsZero():
		if until.IsZero() {
			until = g.now().Add(time.Minute)
		}
		g.mu.Lock()
		defer g.mu.Unlock()
		if until.After(g.until) {
			g.until = until
		}
		return limited(g.until)
	case a.status == http.StatusNotFound, a.status == http.StatusGone:
		return &trouble{message: "GitHub knows no such thing, or gh's account may not see it (HTTP " + strconv.Itoa(a.status) + ")", lasting: true}
	case a.status == http.StatusForbidden, a.status == http.StatusUnavailableForLegalReasons:
		return &trouble{message: "GitHub refuses this to gh's account: " + cmp.Or(words, "HTTP "+strconv.Itoa(a.status)), lasting: true}
	}
	return &trouble{message: "GitHub answered " + strconv.Itoa(a.status)}
}

func limited(until time.Time) error {
	return &trouble{message: "GitHub's rate limit for gh's account is used up until " + until.UTC().Format(time.RFC3339), until: until}
}

// paused keeps everybody from asking while the account has used up its limit.
func (g *tool) paused() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.now().Before(g.until) {
		return limited(g.until)
	}
	return nil
}

// limit reads when a rate limit ends; zero: it is no rate limit.
func limit(h textproto.MIMEHeader, now time.Time) time.Time {
	if s, err := strconv.Atoi(h.Get("Retry-After")); err == nil && s >= 0 {
		return now.Add(min(max(time.Duration(min(s, 1<<20))*time.Second, time.Second), maxPause))
	}
	if h.Get("X-Ratelimit-Remaining") != "0" {
		return time.Time{}
	}
	reset, err := strconv.ParseInt(h.Get("X-Ratelimit-Reset"), 10, 64)
	if err != nil {
		return now.Add(time.Minute)
	}
	// By GitHub's clock, which may differ from ours.
	theirs, err := http.ParseTime(h.Get("Date"))
	if err != nil {
		theirs = now
	}
	return now.Add(min(max(time.Unix(reset, 0).Sub(theirs), time.Second), maxPause))
}

// parse reads the head and the body that gh api --include prints.
func parse(out []byte) (answer, bool) {
	r := bufio.NewReader(bytes.NewReader(out))
	head := textproto.NewReader(r)
	line, err := head.ReadLine()
	if err != nil || !strings.HasPrefix(line, "HTTP/") {
		return answer{}, false
	}
	_, rest, _ := strings.Cut(line, " ")
	number, _, _ := strings.Cut(rest, " ")
	status, err := strconv.Atoi(number)
	if err != nil || status < 100 || status > 999 {
		return answer{}, false
	}
	h, err := head.ReadMIMEHeader()
	if err != nil {
		return answer{}, false
	}
	var body bytes.Buffer
	if _, err := body.ReadFrom(r); err != nil {
		return answer{}, false
	}
	return answer{status: status, header: h, body: body.Bytes()}, true
}

var entityTag = regexp.MustCompile(`^(?:W/)?"[A-Za-z0-9_:.+/=-]{1,200}"$`)

// etag gives the answer's ETag, if it is one that can be sent again.
func (a answer) etag() string {
	if tag := a.header.Get("Etag"); entityTag.MatchString(tag) {
		return tag
	}
	return ""
}

// date is GitHub's clock; now where the answer doesn't tell.
func (a answer) date(now time.Time) time.Time {
	if t, err := http.ParseTime(a.header.Get("Date")); err == nil {
		return t
	}
	return now
}

// ready tells whether gh is there and logged in, without asking GitHub.
func (g *tool) ready(ctx context.Context) error {
	_, words, code, err := g.run(ctx, "auth", "token", "--hostname", "github.com")
	switch {
	case err != nil:
		return err
	case code == 0:
		return nil
	case strings.HasPrefix(words, "unknown command") || strings.HasPrefix(words, "unknown flag"):
		return &trouble{message: "gh is too old: 2.17 or later is needed", lasting: true}
	}
	return errLogin
}
