package config

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"errors"
	"fmt"
	"hash"
	"io"
	"net/netip"
	"os"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/surehook/surehook/internal/egress"
	"github.com/surehook/surehook/internal/relay/audit"
)

// Env finds an environment variable; os.LookupEnv does.
type Env func(name string) (value string, ok bool)

// Load reads a file and the secrets that it names. Where something is wrong its
// error is *Problems, with all of it.
func Load(path string, env Env) (*Config, error) {
	text, err := readFile(path, maxFile)
	if err != nil {
		return nil, &Problems{File: path, List: []Problem{{Message: err.Error()}}}
	}
	return Parse(path, text, env)
}

// Parse is Load for a text that was read already. A path that ends in .json says
// what the text must be; else it is for messages.
func Parse(path string, text []byte, env Env) (*Config, error) {
	root, bad := parse(path, text)
	if bad != nil {
		return nil, &Problems{File: path, List: []Problem{*bad}}
	}
	r := reader{d: &decoder{}, env: env, sum: sha256.New(), files: []string{path}}
	r.note(text)
	c := r.config(place(r.d, root, ""))
	if len(r.d.bad) > 0 {
		byLine(r.d.bad)
		return nil, &Problems{File: path, List: r.d.bad, files: r.files}
	}
	byLine(r.warnings)
	c.Warnings, c.path, c.files, c.sum = r.warnings, path, r.files, [sha256.Size]byte(r.sum.Sum(nil))
	return c, nil
}

func byLine(list []Problem) {
	slices.SortStableFunc(list, func(a, b Problem) int { return cmp.Compare(a.Line, b.Line) })
}

// readFile reads a file that isn't larger than it should be. Its error doesn't
// repeat the path.
//
// A pipe is refused: it would keep us waiting for its other end, and could be read
// once alone, where files are read again at each change.
func readFile(path string, most int64) ([]byte, error) {
	if fi, err := os.Stat(path); err == nil && !fi.Mode().IsRegular() && !fi.IsDir() {
		return nil, errors.New("isn't a regular file; it is read again at each change, so a pipe won't do")
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, plain(err)
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, most+1))
	switch {
	case err != nil:
		return nil, plain(err)
	case int64(len(b)) > most:
		return nil, fmt.Errorf("is over %d bytes", most)
	}
	return b, nil
}

func plain(err error) error {
	if e, ok := errors.AsType[*os.PathError](err); ok {
		err = e.Err
	}
	return fmt.Errorf("can't be read: %w", err)
}

// reader turns values into a Config.
type reader struct {
	d   *decoder
	env Env
	// guard judges subscribers' URLs as the sending will.
	guard    *egress.Guard
	warnings []Problem
	files    []string  // what was read
	sum      hash.Hash // of what it held
}

// note adds something that the outcome depends on to the sum.
func (r *reader) note(b []byte) {
	fmt.Fprintf(r.sum, "%d:", len(b))
	r.sum.Write(b)
}

func (r *reader) warn(v value, format string, args ...any) {
	w := Problem{Path: v.path, Message: fmt.Sprintf(format, args...)}
	if v.given() {
		w.Line = v.node.Line
	}
	r.warnings = append(r.warnings, w)
}

func (r *reader) config(v value) *Config {
	if !v.given() {
		v.fault("is empty; it needs sources and subscribers")
		return nil
	}
	get := v.fields("sources", "enrichments", "subscribers", "relay")
	c := &Config{Relay: r.relay(get("relay"))}
	r.guard = egress.NewGuard(c.Relay.Networks(), nil)
	c.Sources = r.sources(v, get("sources"))
	for _, e := range get("enrichments").list() {
		c.Enrichments = append(c.Enrichments, r.enrichment(e))
	}
	if subs := get("subscribers"); !subs.given() {
		v.d.fault(v.node, "subscribers", "is required; [] for none yet")
	} else {
		c.Subscribers = r.subscribers(subs)
		if !slices.ContainsFunc(c.Subscribers, func(s Subscriber) bool { return s.Enabled }) {
			r.warn(subs, "nobody is enabled: events are stored and go nowhere")
		}
	}
	return c
}

func (r *reader) sources(parent, v value) []Source {
	if !v.given() || len(v.node.Content) == 0 {
		parent.d.fault(parent.node, "sources", "is required: at least one")
	}
	var out []Source
	seen := map[string]bool{}
	for _, e := range v.list() {
		s := r.source(e)
		if s.Type != "" && seen[s.where()] {
			e.fault("is there already: each file, and the standard input, can be read once")
		}
		seen[s.where()] = true
		out = append(out, s)
	}
	return out
}

func (r *reader) source(v value) Source {
	switch typ := kind(v, Stdin, LogTail); typ {
	case Stdin:
		v.fields("type")
		return Source{Type: Stdin}
	case LogTail:
		get := v.fields("type", "path", "from_beginning")
		s := Source{Type: LogTail, Path: get("path").required(v), FromBeginning: get("from_beginning").flag(false)}
		if strings.ContainsRune(s.Path, 0) || len(s.Path) > 4096 {
			get("path").fault("must be a path of at most 4096 bytes")
		}
		return s
	}
	return Source{}
}

// kind reads the field that says what a mapping is; "" after a fault.
func kind(v value, known ...string) string {
	if !v.mapping() {
		return ""
	}
	for key, val := range (value{&decoder{}, v.node, v.path}).pairs() { // faults of the keys are fields' to tell
		if key.Value == "type" {
			t := place(v.d, val, join(v.path, "type"))
			if s := t.text(); slices.Contains(known, s) {
				return s
			}
			t.fault("must be %s", strings.Join(known, " or "))
			return ""
		}
	}
	v.d.fault(v.node, join(v.path, "type"), "is required: %s", strings.Join(known, " or "))
	return ""
}

func (r *reader) subscribers(v value) []Subscriber {
	all := v.list()
	if len(all) > MaxSubscribers {
		v.fault("are more than %d; run several relays", MaxSubscribers)
	}
	var out []Subscriber
	ids, hooks := map[string]bool{}, map[string]string{} // hook: whose it is
	for _, e := range all {
		s := r.subscriber(e)
		if s.ID != "" && ids[s.ID] {
			e.d.fault(e.node, join(e.path, "id"), "is another subscriber's already")
		} else {
			for _, major := range s.Schemas {
				hook := s.Hook(major)
				if other, ok := hooks[hook]; ok && other != s.ID {
					e.d.fault(e.node, join(e.path, "id"), "its version %d goes by the name of %s, and so does a version of the subscriber %s; choose another id", major, hook, other)
				}
				hooks[hook] = s.ID
			}
		}
		ids[s.ID] = true
		out = append(out, s)
	}
	return out
}

func (r *reader) subscriber(v value) Subscriber {
	get := v.fields("id", "url", "secret_env", "secret_file", "filter", "retry", "timeout_ms", "enabled", "schemas")
	s := Subscriber{ID: get("id").required(v), URL: get("url").required(v), Secret: r.secret(v, get, "secret", true)}
	if !name(s.ID) {
		get("id").fault("must be at most 128 bytes of text without control characters")
	}
	if s.URL != "" {
		if _, err := r.guard.ParseURL(s.URL); err != nil {
			get("url").fault("%s", refusal(err))
		}
	}
	s.Filter = r.filter(get("filter"))
	retry := get("retry")
	rf := retry.fields("max_attempts", "base_delay_ms", "max_delay_ms")
	s.Retry = Retry{MaxAttempts: rf("max_attempts").number(1, 100, 8), BaseDelay: ms(rf("base_delay_ms").number(1, day, 500)),
		MaxDelay: ms(rf("max_delay_ms").number(1, day, 600_000))}
	if s.Retry.BaseDelay > s.Retry.MaxDelay {
		retry.fault("base_delay_ms is more than max_delay_ms")
	}
	s.Timeout = ms(get("timeout_ms").number(100, 60_000, 30_000))
	s.Enabled = get("enabled").flag(true)
	s.Schemas = schemas(get("schemas"))
	return s
}

const day = 24 * 60 * 60 * 1000 // milliseconds

func ms(n int) time.Duration { return time.Duration(n) * time.Millisecond }

func schemas(v value) []int {
	if !v.given() {
		return []int{1}
	}
	var out []int
	for _, e := range v.list() {
		n := e.number(1, 99, 0)
		if n != 0 && slices.Contains(out, n) {
			e.fault("is there already")
		}
		out = append(out, n)
	}
	if len(out) == 0 {
		v.fault("must name at least one major version, e.g. [1, 2]")
	}
	return out
}

func (r *reader) filter(v value) audit.Filter {
	get := v.fields("labels", "severity_min", "blocked_rule_pattern")
	f := audit.Filter{Labels: get("labels").texts(), RulePattern: get("blocked_rule_pattern").text()}
	for _, k := range sortedKeys(f.Labels) {
		if err := audit.CheckLabel(k, f.Labels[k]); err != nil {
			get("labels").fault("%s: no event has it: %s", k, err)
		}
	}
	if s := get("severity_min"); s.given() {
		var err error
		if f.SeverityMin, err = audit.ParseSeverity(s.text()); err != nil {
			s.fault("%s", err)
		}
	}
	return f
}

// name tells texts that can stand in logs and metrics.
func name(s string) bool {
	return len(s) <= 128 && utf8.ValidString(s) && !strings.ContainsFunc(s, unicode.IsControl)
}

// refusal says why a URL is refused, without any of it, and without the flag of a
// server's, which a relay hasn't.
func refusal(err error) string {
	if u, ok := errors.AsType[*egress.URLError](err); ok {
		return strings.TrimSuffix(u.Message, " (--allow-networks)")
	}
	return "isn't a URL that can be sent to"
}

// secret reads what <stem>_env or <stem>_file name.
func (r *reader) secret(parent value, get func(string) value, stem string, must bool) Secret {
	env, file := get(stem+"_env"), get(stem+"_file")
	switch {
	case env.given() && file.given():
		file.fault("%s_env is there too; one of them alone", stem)
	case env.given():
		return r.fromEnv(env)
	case file.given():
		return r.fromFile(file)
	case must:
		parent.d.fault(parent.node, join(parent.path, stem), "%s_env or %s_file is required", stem, stem)
	}
	return nil
}

func (r *reader) fromEnv(v value) Secret {
	name := v.text()
	if name == "" {
		if v.node.Tag == "!!str" {
			v.fault("must name an environment variable")
		}
		return nil
	}
	s, ok := r.env(name)
	switch {
	case !ok:
		v.fault("names an environment variable that isn't set")
	case s == "":
		v.fault("names an environment variable that is empty")
	case len(s) > maxSecret:
		v.fault("names an environment variable that is over %d bytes", maxSecret)
	}
	r.note([]byte(s))
	return Secret(s)
}

func (r *reader) fromFile(v value) Secret {
	path := v.text()
	if path == "" {
		if v.node.Tag == "!!str" {
			v.fault("must name a file")
		}
		return nil
	}
	r.files = append(r.files, path)
	b, err := readFile(path, maxSecretFile)
	if err != nil {
		v.fault("names a file that %s", err)
		return nil
	}
	r.note(b)
	b = bytes.TrimRight(b, " \t\r\n")
	switch {
	case len(b) == 0:
		v.fault("names a file that is empty")
	case len(b) > maxSecret:
		v.fault("names a file that holds over %d bytes", maxSecret)
	}
	return Secret(b)
}

func (r *reader) relay(v value) Relay {
	get := v.fields("instance_id", "subscriber_queue", "admin_token_env", "admin_token_file", "public_addresses_only")
	out := Relay{InstanceID: get("instance_id").text(), SubscriberQueue: get("subscriber_queue").number(1, 1<<31-1, 10_000),
		AdminToken: r.secret(v, get, "admin_token", false), PublicOnly: get("public_addresses_only").flag(false)}
	if token := bytes.TrimSpace(out.AdminToken); len(token) == 0 && len(out.AdminToken) > 0 {
		v.fault("the admin token is white space alone; that would leave the admin routes open")
	} else {
		out.AdminToken = token
	}
	if q := get("subscriber_queue"); q.given() {
		r.warn(q, "has no effect: what waits is in the store, and nothing is dropped")
	}
	if !name(out.InstanceID) {
		get("instance_id").fault("must be at most 128 bytes of text without control characters")
	}
	if out.InstanceID == "" {
		out.InstanceID = hostName()
	}
	return out
}

func hostName() string {
	if h, err := os.Hostname(); err == nil && h != "" && name(h) {
		return h
	}
	return "purple-wolf-relay"
}

// Networks are those that subscribers' URLs may reach beside the public ones:
// all, since they come from the operator's own file, unless the file says
// otherwise.
func (r Relay) Networks() []netip.Prefix {
	if r.PublicOnly {
		return nil
	}
	return []netip.Prefix{netip.MustParsePrefix("0.0.0.0/0"), netip.MustParsePrefix("::/0")}
}
