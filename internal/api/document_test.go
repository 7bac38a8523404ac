package api_test

import (
	"bytes"
	"encoding/json"
	"maps"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/surehook/surehook"
	"github.com/surehook/surehook/internal/api"
)

// operation is what the tests want to know of a route.
type operation struct {
	OperationID string                `json:"operationId"`
	Security    []map[string][]string `json:"security"`
	Parameters  []struct{ Name, In string }
	RequestBody *struct{} `json:"requestBody"`
	Responses   map[string]struct {
		Content map[string]struct{ Schema map[string]any }
	}
}

// document is /openapi.json, ready to judge answers.
type document struct {
	OpenAPI string
	Paths   map[string]map[string]operation

	raw any
	mux *http.ServeMux

	mu      sync.Mutex
	c       *jsonschema.Compiler
	schemas map[string]*jsonschema.Schema
	worked  map[string]bool // operations that were seen to succeed
}

func readDocument(t testing.TB, h http.Handler) *document {
	t.Helper()
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), "GET", "/openapi.json", nil))
	d := &document{mux: http.NewServeMux(), c: jsonschema.NewCompiler(), schemas: map[string]*jsonschema.Schema{}, worked: map[string]bool{}}
	if err := json.Unmarshal(w.Body.Bytes(), d); err != nil {
		t.Fatal(err)
	}
	raw, err := jsonschema.UnmarshalJSON(bytes.NewReader(w.Body.Bytes()))
	if err != nil {
		t.Fatal(err)
	}
	if d.raw = raw; d.c.AddResource("openapi.json", raw) != nil {
		t.Fatal("the document can't be read as a schema's resource")
	}
	for path, ops := range d.Paths {
		for method := range ops {
			d.mux.HandleFunc(strings.ToUpper(method)+" "+path, func(http.ResponseWriter, *http.Request) {})
		}
	}
	return d
}

func pointer(tokens ...string) string {
	var b strings.Builder
	for _, t := range tokens {
		b.WriteString("/" + strings.NewReplacer("~", "~0", "/", "~1", "{", "%7B", "}", "%7D").Replace(t))
	}
	return b.String()
}

func (d *document) schema(t testing.TB, at string) *jsonschema.Schema {
	t.Helper()
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.schemas[at] == nil {
		s, err := d.c.Compile("openapi.json#" + at)
		if err != nil {
			t.Fatalf("%s: %v", at, err)
		}
		d.schemas[at] = s
	}
	return d.schemas[at]
}

// check holds an answer against what the document says about it.
func (d *document) check(t testing.TB, r *http.Request, w *httptest.ResponseRecorder) {
	t.Helper()
	if w.Header().Get("X-Request-Id") == "" {
		t.Errorf("%s %s: no X-Request-Id", r.Method, r.URL.Path)
	}
	_, pattern := d.mux.Handler(r)
	method, path, _ := strings.Cut(pattern, " ")
	if pattern == "" || !strings.HasPrefix(path, "/v1") {
		return
	}
	status, media := http.StatusText(w.Code), strings.Split(w.Header().Get("Content-Type"), ";")[0]
	key := "default"
	if w.Code < 300 {
		key = map[int]string{200: "200", 201: "201", 202: "202", 204: "204"}[w.Code]
		d.mu.Lock()
		d.worked[pattern] = true
		d.mu.Unlock()
	}
	op := d.Paths[path][strings.ToLower(method)]
	answer, ok := op.Responses[key]
	if !ok {
		t.Errorf("%s answers %d %s, and its document doesn't say so", pattern, w.Code, status)
		return
	}
	if w.Body.Len() == 0 && len(answer.Content) == 0 {
		return
	}
	if _, ok := answer.Content[media]; !ok {
		t.Errorf("%s answers %q, which isn't documented", pattern, media)
		return
	}
	v, err := jsonschema.UnmarshalJSON(bytes.NewReader(w.Body.Bytes()))
	if err != nil {
		t.Errorf("%s: %v", pattern, err)
		return
	}
	if err := d.schema(t, pointer("paths", path, strings.ToLower(method), "responses", key, "content", media, "schema")).Validate(v); err != nil {
		t.Errorf("%s: the answer isn't as documented: %v\n%s", pattern, err, w.Body)
	}
}

var param = regexp.MustCompile(`\{([a-z_]+)\}`)

func TestDocument(t *testing.T) {
	s := open(t)
	d := s.doc
	if !strings.HasPrefix(d.OpenAPI, "3.1") {
		t.Errorf("version %q", d.OpenAPI)
	}
	var listed []string
	ids := map[string]bool{}
	for path, ops := range d.Paths {
		for method, o := range ops {
			listed = append(listed, strings.ToUpper(method)+" "+path)
			if o.OperationID == "" || ids[o.OperationID] {
				t.Errorf("%s %s: operation id %q is empty or used twice", method, path, o.OperationID)
			}
			ids[o.OperationID] = true
			for _, m := range param.FindAllStringSubmatch(path, -1) {
				if !slices.ContainsFunc(o.Parameters, func(p struct{ Name, In string }) bool { return p.In == "path" && p.Name == m[1] }) {
					t.Errorf("%s %s doesn't describe {%s}", method, path, m[1])
				}
			}
			for status, r := range o.Responses {
				for media := range r.Content { // compiling resolves every reference in it
					d.schema(t, pointer("paths", path, method, "responses", status, "content", media, "schema"))
				}
			}
		}
	}
	patterns := api.Patterns(s.h)
	slices.Sort(listed)
	slices.Sort(patterns)
	if !slices.Equal(listed, patterns) {
		t.Errorf("the document lists\n%s\nand the mux has\n%s", strings.Join(listed, "\n"), strings.Join(patterns, "\n"))
	}
	schemas := d.raw.(map[string]any)["components"].(map[string]any)["schemas"].(map[string]any)
	for name := range maps.Keys(schemas) {
		d.schema(t, pointer("components", "schemas", name))
	}
}

// The pages that need no key.
var openPages = []string{"/healthz", "/readyz", "/version", "/docs", "/openapi.json"}

// Every operation wants a key, and the permission that its document names; it
// refuses names that it doesn't know, in the query and in the body.
func TestEveryRouteIsGuarded(t *testing.T) {
	s := open(t)
	all := []string{"events:write", "events:pull", "webhooks:manage", "read", "admin"}
	keys := map[string]string{}
	without := func(perms []string) string {
		name := strings.Join(perms, " ")
		if keys[name] == "" {
			keys[name] = s.key("", slices.DeleteFunc(slices.Clone(all), func(p string) bool { return slices.Contains(perms, p) })...)
		}
		return keys[name]
	}
	for path, ops := range s.doc.Paths {
		for method, o := range ops {
			method, url := strings.ToUpper(method), param.ReplaceAllString(path, "x")
			if len(o.Security) == 0 {
				if !slices.Contains(openPages, path) {
					t.Errorf("%s %s needs no key", method, path)
				}
				continue
			}
			s.do("", method, url, "").refused(401, surehook.Unauthorized, "")
			s.do("wrong-key-wrong-key", method, url, "").refused(401, surehook.Unauthorized, "")
			var enough []string
			for _, x := range o.Security {
				enough = append(enough, x["key"]...)
			}
			perm := enough[0]
			a := s.do(without(enough), method, url, `{}`)
			a.refused(403, surehook.Forbidden, "")
			var p struct{ Details struct{ Required string } }
			if a.into(&p); p.Details.Required != perm {
				t.Errorf("%s %s: %s", method, path, a.Raw)
			}
			if o.RequestBody != nil {
				s.admin(method, url, `{"nope_nope":1}`).refused(400, surehook.InvalidRequest, "nope_nope")
				s.admin(method, url, `[]`).refused(400, surehook.InvalidRequest, "body")
				s.admin(method, url, `{"a":`).refused(400, surehook.InvalidRequest, "body")
			} else if method != "GET" {
				s.admin(method, url, `{"nope_nope":1}`).refused(400, surehook.InvalidRequest, "nope_nope")
				s.admin(method, url, `[]`).refused(400, surehook.InvalidRequest, "body")
				s.admin(method, url, `{} {}`).refused(400, surehook.InvalidRequest, "body")
			}
			for _, media := range []string{"text/plain", "application/cloudevents+xml", "application/json; charset=latin1", "/"} {
				if method != "GET" {
					s.admin(method, url, `{"nope_nope":1}`, "Content-Type", media).refused(415, "unsupported_media_type", "")
				}
			}
			if !strings.HasPrefix(path, "/v1/events") || method == "GET" {
				s.admin(method, url+"?nope_nope=1", "").refused(400, surehook.InvalidRequest, "nope_nope")
			}
		}
	}
}
