package api

import (
	"net/http"
	"reflect"
	"runtime/debug"
	"strconv"

	"github.com/danielgtaylor/huma/v2"

	"github.com/surehook/surehook"
)

// rawHandler answers a request whose body it reads itself: the body of the
// answer, or an error.
type rawHandler func(w http.ResponseWriter, r *http.Request, c *call) ([]byte, error)

// rawRoute is a route that doesn't pass through huma.
type rawRoute struct {
	perm   string
	status int
	h      rawHandler
}

// raw registers a route that huma documents and doesn't run: publishing is what
// everybody waits for, and its data must not be decoded.
func raw(s *server, o op, in, out any, h rawHandler) {
	schemas := s.api.OpenAPI().Components.Schemas
	schema := func(v any) map[string]*huma.MediaType {
		return map[string]*huma.MediaType{"application/json": {Schema: schemas.Schema(reflect.TypeOf(v), true, o.id)}}
	}
	given := schema(in)
	for media, v := range o.also {
		given[media] = &huma.MediaType{Schema: schemas.Schema(reflect.TypeOf(v), true, o.id)}
	}
	header := func(name, about string) *huma.Param {
		return &huma.Param{Name: name, In: "header", Description: about, Schema: &huma.Schema{Type: "string"}}
	}
	s.api.OpenAPI().AddOperation(&huma.Operation{Method: o.method, Path: o.path, OperationID: o.id, Tags: []string{o.tag}, Summary: o.summary,
		Description: o.about, Metadata: map[string]any{"permission": o.perm}, Security: []map[string][]string{{"key": {o.perm}}},
		Parameters: []*huma.Param{header("Idempotency-Key", "Makes the ids of events that have none, so that a repeat is recognised"),
			header("traceparent", "Kept with the events (W3C Trace Context)")},
		RequestBody: &huma.RequestBody{Required: true, Content: given},
		Responses: map[string]*huma.Response{strconv.Itoa(o.status): {Description: http.StatusText(o.status), Content: schema(out)},
			"default": {Description: "Error", Content: map[string]*huma.MediaType{
				"application/problem+json": {Schema: schemas.Schema(reflect.TypeFor[Problem](), true, "Problem")}}}}})
	s.raw[o.method+" "+o.path] = rawRoute{perm: o.perm, status: o.status, h: h}
}

// serveRaw runs such a route.
func (s *server) serveRaw(w http.ResponseWriter, r *http.Request, route rawRoute, id string) {
	c, err := s.authenticate(r, id)
	if err == nil && !c.may(route.perm) {
		err = &denied{required: route.perm}
	}
	var body []byte
	if err == nil {
		body, err = route.h(w, r, c)
	}
	if err != nil {
		s.fail(w, id, err)
		return
	}
	h := w.Header()
	h["Content-Type"] = jsonType
	h["Content-Length"] = []string{strconv.Itoa(len(body))}
	w.WriteHeader(route.status)
	_, _ = w.Write(body) // the caller may have gone; the event is stored all the same
}

var jsonType = []string{"application/json"}

// rescue answers a panic as an internal error, and logs where it came from. A
// broken connection is net/http's own.
func (s *server) rescue(w http.ResponseWriter, id string) {
	switch v := recover(); v {
	case nil:
	case http.ErrAbortHandler:
		panic(v)
	default:
		s.log.Error("a request panicked", "request_id", id, "panic", v, "stack", string(debug.Stack()))
		s.fail(w, id, newProblem(surehook.Internal, "something went wrong here; the log has it under the request id", nil))
	}
}
