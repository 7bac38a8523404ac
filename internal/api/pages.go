package api

import (
	"crypto/sha256"
	"encoding/base64"
	"html/template"
	"net/http"
	"slices"
	"strings"

	"github.com/danielgtaylor/huma/v2"

	"github.com/surehook/surehook"
)

// page registers and documents a route outside the API proper.
func (s *server) page(path, summary, media string, h http.HandlerFunc) {
	s.routes.HandleFunc("GET "+path, h)
	s.api.OpenAPI().AddOperation(&huma.Operation{Method: http.MethodGet, Path: path, OperationID: "page" + strings.ReplaceAll(path, "/", "-"), Tags: []string{"Pages"},
		Summary: summary, Security: []map[string][]string{}, Responses: map[string]*huma.Response{"200": {Description: "OK",
			Content: map[string]*huma.MediaType{media: {Schema: &huma.Schema{}}}}}})
}

// pages are the routes outside the API proper. Nobody needs a key for them, so
// they say little.
func (s *server) pages() {
	const js = "application/json"
	s.page("/healthz", "The process answers", js, func(w http.ResponseWriter, _ *http.Request) {
		s.json(w, map[string]string{"status": "ok"})
	})
	s.page("/readyz", "Events are taken and delivered; 503 when not", js, func(w http.ResponseWriter, r *http.Request) {
		if err := s.isReady(r.Context()); err != nil {
			s.fail(w, requestID(r.Context()), err)
			return
		}
		s.json(w, map[string]string{"status": "ready"})
	})
	s.page("/version", "What runs here", js, func(w http.ResponseWriter, _ *http.Request) {
		s.json(w, map[string]string{"version": s.version})
	})
	if s.opt.Metrics != nil {
		s.page("/metrics", "Prometheus metrics; a platform key that may read, unless they are open", "text/plain", s.metrics)
	}
	s.page("/docs", "This document, for people", "text/html", s.docs)
	s.page("/openapi.json", "This document", js, s.openAPI)
	s.routes.ServeMux.HandleFunc("GET /{$}", func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, "/docs", http.StatusFound) })
	s.routes.ServeMux.HandleFunc("GET /docs/{$}", func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, "/docs", http.StatusMovedPermanently)
	})
}

// PagesAlone serves the routes of h that tell how the process is, and no others:
// for a node that delivers without taking events in.
func PagesAlone(h *Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/healthz", "/readyz", "/version", "/metrics":
			h.ServeHTTP(w, r)
		default:
			h.fail(w, h.begin(w, r), surehook.Errorf(surehook.NotFound, "this node serves no API: ask one that does"))
		}
	})
}

// DeadLettersAlone serves the routes of h about dead letters, and no others.
func DeadLettersAlone(h *Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/v1/dead-letters" || strings.HasPrefix(r.URL.Path, "/v1/dead-letters/") {
			h.ServeHTTP(w, r)
			return
		}
		h.fail(w, h.begin(w, r), surehook.Errorf(surehook.NotFound, "there is nothing here"))
	})
}

func (s *server) openAPI(w http.ResponseWriter, _ *http.Request) {
	s.json(w, s.api.OpenAPI())
}

func (s *server) metrics(w http.ResponseWriter, r *http.Request) {
	if !s.opt.OpenMetrics {
		id := requestID(r.Context())
		c, err := s.authenticate(r, id)
		switch {
		case err != nil:
			s.fail(w, id, err)
			return
		case !c.platform():
			s.fail(w, id, &denied{scope: "platform"})
			return
		case !c.may("read"):
			s.fail(w, id, &denied{required: "read"})
			return
		}
	}
	s.opt.Metrics.ServeHTTP(w, r)
}

func (s *server) json(w http.ResponseWriter, v any) {
	w.Header().Set("Content-Type", "application/json")
	_ = format.Marshal(w, v) // the caller may have gone
}

// docRow is one route on the page.
type docRow struct {
	Tag, Method, Path, Summary, About, Perm string
	Fields, Params                          []docField
}

type docField struct{ Name, Type, About string }

const docsStyle = `
:root{color-scheme:light dark}body{font:16px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem}
code{font-family:ui-monospace,monospace}section{border-top:1px solid #8886;margin-top:1.5rem}h3{margin-bottom:.2rem}
table{border-collapse:collapse;width:100%}td{padding:.15rem .8rem .15rem 0;vertical-align:top;border-top:1px solid #8883}
.m{font-weight:700}.p{float:right;opacity:.75;font-size:.85rem}`

// docsPolicy allows that style and nothing else: no script, no other host.
var docsPolicy = func() string {
	sum := sha256.Sum256([]byte(docsStyle))
	return "default-src 'none'; style-src 'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) +
		"'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
}()

var docsPage = template.Must(template.New("docs").Parse(`<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width"><title>Surehook API</title><style>` + docsStyle + `</style></head><body>
<h1>Surehook API <small>{{.Version}}</small></h1>
<p>Send <code>Authorization: Bearer KEY</code>. Errors are problems as in RFC 9457 with a stable <code>code</code> and, for bad input, <code>errors: [{path, message}]</code>.
Listings give <code>{items, next?}</code>; send <code>next</code> as <code>cursor</code> for the following page. The same document for machines: <a href="/openapi.json">/openapi.json</a>.</p>
{{range .Rows}}{{if .Tag}}<section><h2>{{.Tag}}</h2></section>{{end}}
<h3><span class="p">{{.Perm}}</span><code><span class="m">{{.Method}}</span> {{.Path}}</code></h3><p>{{.Summary}}. {{.About}}</p>
{{if .Params}}<table>{{range .Params}}<tr><td><code>?{{.Name}}</code></td><td>{{.Type}}</td><td>{{.About}}</td></tr>{{end}}</table>{{end}}
{{if .Fields}}<table>{{range .Fields}}<tr><td><code>{{.Name}}</code></td><td>{{.Type}}</td><td>{{.About}}</td></tr>{{end}}</table>{{end}}{{end}}
<section><h2>Codes</h2><table>{{range .Codes}}<tr id="{{.Name}}"><td><code>{{.Name}}</code></td><td>{{.Type}}</td></tr>{{end}}</table></section>
</body></html>`))

func (s *server) docs(w http.ResponseWriter, _ *http.Request) {
	h := w.Header()
	h.Set("Content-Type", "text/html; charset=utf-8")
	h.Set("Content-Security-Policy", docsPolicy)
	rows := s.docRows()
	last := ""
	for i := range rows {
		if rows[i].Tag == last {
			rows[i].Tag = ""
		} else {
			last = rows[i].Tag
		}
	}
	var codes []docField
	for c, status := range statuses {
		codes = append(codes, docField{Name: string(c), Type: http.StatusText(status)})
	}
	slices.SortFunc(codes, func(a, b docField) int { return strings.Compare(a.Name, b.Name) })
	_ = docsPage.Execute(w, map[string]any{"Version": s.version, "Rows": rows, "Codes": codes}) // the reader may have gone
}

func (s *server) docRows() []docRow {
	var rows []docRow
	doc := s.api.OpenAPI()
	for path, item := range doc.Paths {
		for _, o := range []*huma.Operation{item.Get, item.Post, item.Put, item.Patch, item.Delete} {
			if o == nil {
				continue
			}
			perm, _ := o.Metadata["permission"].(string)
			if or, _ := o.Metadata["or"].(string); or != "" {
				perm += " or " + or
			}
			row := docRow{Tag: o.Tags[0], Method: o.Method, Path: path, Summary: o.Summary, About: o.Description, Perm: perm}
			for _, p := range o.Parameters {
				if p.In == "query" {
					row.Params = append(row.Params, docField{p.Name, p.Schema.Type, p.Description})
				}
			}
			if o.RequestBody != nil {
				row.Fields = s.docFields(o.RequestBody.Content["application/json"].Schema)
			}
			rows = append(rows, row)
		}
	}
	slices.SortFunc(rows, func(a, b docRow) int {
		return strings.Compare(a.Tag+a.Path+a.Method, b.Tag+b.Path+b.Method)
	})
	return rows
}

func (s *server) docFields(schema *huma.Schema) []docField {
	if schema.Ref != "" {
		schema = s.api.OpenAPI().Components.Schemas.SchemaFromRef(schema.Ref)
	}
	var out []docField
	for name, p := range schema.Properties {
		kind := p.Type
		if p.Ref != "" {
			kind = "object"
		}
		if slices.Contains(schema.Required, name) {
			kind += ", required"
		}
		out = append(out, docField{name, kind, p.Description})
	}
	slices.SortFunc(out, func(a, b docField) int { return strings.Compare(a.Name, b.Name) })
	return out
}
