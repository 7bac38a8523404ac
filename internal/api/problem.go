package api

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"maps"
	"net/http"
	"slices"
	"strings"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/validation"

	"github.com/surehook/surehook"
	"github.com/surehook/surehook/internal/sentinel"
)

// Codes that only HTTP has.
const (
	codeMethod  surehook.ErrorCode = "method_not_allowed"
	codeMedia   surehook.ErrorCode = "unsupported_media_type"
	codeTimeout surehook.ErrorCode = "request_timeout"
)

// statuses is the one map from an error's code to its HTTP status.
var statuses = map[surehook.ErrorCode]int{
	surehook.InvalidRequest: http.StatusBadRequest,
	surehook.Unauthorized:   http.StatusUnauthorized,
	surehook.Forbidden:      http.StatusForbidden,
	surehook.NotFound:       http.StatusNotFound,
	surehook.Conflict:       http.StatusConflict,
	surehook.LimitReached:   http.StatusUnprocessableEntity,
	surehook.TooLarge:       http.StatusRequestEntityTooLarge,
	surehook.CursorExpired:  http.StatusGone,
	surehook.NotAlive:       http.StatusConflict,
	surehook.Unavailable:    http.StatusServiceUnavailable,
	surehook.Stopping:       http.StatusServiceUnavailable,
	surehook.Internal:       http.StatusInternalServerError,
	codeMethod:              http.StatusMethodNotAllowed,
	codeMedia:               http.StatusUnsupportedMediaType,
	codeTimeout:             http.StatusRequestTimeout,

	sentinel.MissingSubject:       http.StatusBadRequest,
	sentinel.AmbiguousSubject:     http.StatusBadRequest,
	sentinel.InvalidPRURL:         http.StatusBadRequest,
	sentinel.NoCallerIdentity:     http.StatusBadRequest,
	sentinel.UnknownProvider:      http.StatusBadRequest,
	sentinel.ProviderCreateFailed: http.StatusBadGateway,
	sentinel.ProviderFailed:       http.StatusBadGateway,
	sentinel.CreateFailed:         http.StatusUnprocessableEntity,
	sentinel.NotImplemented:       http.StatusNotImplemented,
}

// retryAfter is what a 503 asks callers to wait, in seconds.
const retryAfter = "1"

// Problem is an error as RFC 9457 has it, with our code and fields.
type Problem struct {
	Type      string                `json:"type" doc:"Where the code is explained" example:"/docs#invalid_request"`
	Title     string                `json:"title" doc:"The HTTP status in words"`
	Status    int                   `json:"status" doc:"The HTTP status"`
	Detail    string                `json:"detail" doc:"What is wrong, for people"`
	Code      surehook.ErrorCode    `json:"code" doc:"What is wrong, for programs; never changes"`
	Errors    []surehook.FieldError `json:"errors,omitempty" doc:"The inputs that were refused; values are never echoed"`
	Details   *ProblemDetails       `json:"details,omitempty"`
	RequestID string                `json:"request_id,omitempty" doc:"As in X-Request-Id; our log has more under it"`
}

// ProblemDetails is what some codes add.
type ProblemDetails struct {
	Required string   `json:"required,omitempty" doc:"permission_denied: the permission that is missing"`
	Scope    string   `json:"scope,omitempty" doc:"permission_denied: platform, where a tenant's key isn't enough"`
	Reason   string   `json:"reason,omitempty" doc:"create_failed: why the callback wasn't verified: challenge_failed, timeout, non_https, ssrf_blocked or non_2xx"`
	IDs      []string `json:"ids,omitempty" doc:"store_unavailable: the ids to publish the same events again with"`

	NextCursor string `json:"next_cursor,omitempty" doc:"cursor_expired: where to go on"`
	Dropped    int64  `json:"dropped,omitempty" doc:"cursor_expired: events that left the inbox unread since"`
}

func (p *Problem) Error() string { return p.Detail }

// GetStatus tells huma the status.
func (p *Problem) GetStatus() int { return p.Status }

// ContentType tells huma the media type.
func (p *Problem) ContentType(string) string { return "application/problem+json" }

// GetHeaders tells huma what else the answer carries.
func (p *Problem) GetHeaders() http.Header {
	h := http.Header{}
	switch p.Status {
	case http.StatusServiceUnavailable:
		h.Set("Retry-After", retryAfter)
	case http.StatusUnauthorized:
		h.Set("WWW-Authenticate", `Bearer realm="surehook"`)
	}
	return h
}

func newProblem(code surehook.ErrorCode, detail string, fields []surehook.FieldError) *Problem {
	status := cmp.Or(statuses[code], http.StatusInternalServerError)
	return &Problem{Type: "/docs#" + string(code), Title: http.StatusText(status), Status: status, Detail: detail, Code: code, Errors: fields}
}

// denied is an error about a permission; required and scope go into details.
type denied struct{ required, scope string }

func (d *denied) Error() string {
	if d.scope != "" {
		return "this needs a platform key"
	}
	return "the key lacks the permission " + d.required
}

// unknown is an outcome that isn't known: publishing with the same ids is safe.
type unknown struct {
	error
	ids []string
}

func (u *unknown) Unwrap() error { return u.error }

// problem turns any error into what the caller sees. Its cause is logged under
// the request's id and never returned.
func (s *server) problem(requestID string, err error) *Problem {
	p := s.describe(requestID, err)
	if u, ok := errors.AsType[*unknown](err); ok && p.Code == surehook.Unavailable {
		p.Details = &ProblemDetails{IDs: u.ids}
	}
	p.RequestID = requestID
	return p
}

func (s *server) describe(requestID string, err error) *Problem {
	if p, ok := errors.AsType[*Problem](err); ok {
		return p
	}
	if d, ok := errors.AsType[*denied](err); ok {
		p := newProblem(surehook.Forbidden, d.Error(), nil)
		p.Details = &ProblemDetails{Required: d.required, Scope: d.scope}
		return p
	}
	if e, ok := errors.AsType[*surehook.Error](err); ok && e.Code != surehook.Internal {
		if e.Cause != nil && challengeReason(err) == "" {
			s.log.Warn("a request was refused", "request_id", requestID, "code", e.Code, "error", err)
		}
		p := newProblem(e.Code, e.Message, e.Fields)
		if reason := challengeReason(err); reason != "" {
			p.Details = &ProblemDetails{Reason: reason}
		}
		return p
	}
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return newProblem(surehook.Unavailable, "the request ended before it was done", nil)
	}
	s.log.Error("a request failed", "request_id", requestID, "error", err)
	return newProblem(surehook.Internal, "something went wrong here; the log has it under the request id", nil)
}

// write sends a problem where huma isn't in the way.
func (p *Problem) write(w http.ResponseWriter) {
	h := w.Header()
	maps.Copy(h, p.GetHeaders())
	h.Set("Content-Type", p.ContentType(""))
	w.WriteHeader(p.Status)
	_ = json.NewEncoder(w).Encode(p) // the caller may have gone
}

func (s *server) fail(w http.ResponseWriter, requestID string, err error) {
	s.problem(requestID, err).write(w)
}

// humaError stands in for huma's own errors: a request that doesn't fit the
// document. Its details hold the refused values; they stop here.
func humaError(status int, detail string, errs ...error) huma.StatusError {
	switch status {
	case http.StatusRequestEntityTooLarge:
		return newProblem(surehook.TooLarge, "the request's body is too large", nil)
	case http.StatusUnsupportedMediaType:
		return newProblem(codeMedia, "send application/json", nil)
	case http.StatusRequestTimeout:
		return newProblem(codeTimeout, "the request's body didn't arrive in time", nil)
	case http.StatusBadRequest, http.StatusUnprocessableEntity:
		fields := make([]surehook.FieldError, 0, len(errs))
		for _, e := range errs {
			fields = append(fields, fieldError(e))
		}
		if len(fields) == 0 {
			fields = []surehook.FieldError{{Path: "body", Message: "is required"}}
		}
		slices.SortFunc(fields, func(a, b surehook.FieldError) int { return strings.Compare(a.Path, b.Path) })
		return invalid(fields)
	case 0: // huma asks for the type alone
		return &Problem{}
	}
	slog.Default().Error("huma answered by itself", "status", status, "detail", detail)
	return newProblem(surehook.Internal, "something went wrong here", nil)
}

func invalid(fields []surehook.FieldError) *Problem {
	f := fields[0]
	return newProblem(surehook.InvalidRequest, "the request is invalid: "+f.Path+": "+f.Message, fields)
}

const (
	requiredPrefix = "expected required property "
	requiredSuffix = " to be present"
	maxPath        = 200
)

// fieldError turns huma's location into the name that the caller wrote.
func fieldError(err error) surehook.FieldError {
	d, ok := err.(huma.ErrorDetailer)
	if !ok {
		return surehook.FieldError{Path: "body", Message: "isn't valid"}
	}
	detail := d.ErrorDetail()
	path, message := detail.Location, detail.Message
	where, name, nested := strings.Cut(path, ".")
	if nested && slices.Contains([]string{"body", "query", "path", "header"}, where) {
		path = name
	}
	if n, found := strings.CutPrefix(message, requiredPrefix); found {
		n = strings.TrimSuffix(n, requiredSuffix)
		if path == "body" {
			path = n
		} else {
			path += "." + n
		}
		message = "is required"
	}
	if p, m, found := strings.Cut(message, pathMark); found {
		path, message = cmp.Or(p, path), m
	}
	switch {
	case message == "unexpected property":
		message = "is not a known field"
	case strings.HasPrefix(message, "required "):
		message = "is required"
	case message == validation.MsgExpectedMatchExactlyOneSchema: // one field alone has several forms
		message = untilForms
	case strings.HasPrefix(message, "invalid date/time"):
		message = "must be a time as in RFC 3339, e.g. 2026-01-31T12:00:00Z"
	}
	return surehook.FieldError{Path: clip(path), Message: message}
}

// clip bounds a name that came from the caller, and keeps it printable.
func clip(path string) string {
	if len(path) > maxPath {
		path = path[:maxPath] + "…"
	}
	return strings.Map(func(r rune) rune {
		if r < 0x20 || r == 0x7f || r == 0xfffd {
			return '?'
		}
		return r
	}, path)
}
