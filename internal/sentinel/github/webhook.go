package github

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"mime"
	"net/http"
	"strings"

	"github.com/surehook/surehook"
	"github.com/surehook/surehook/engine"
	"github.com/surehook/surehook/receiver"
	"github.com/surehook/surehook/signing"
)

// Options of a Webhook. Publish and Secrets are required.
type Options struct {
	Publish func(context.Context, surehook.Event) (engine.Receipt, error) // engine.Engine has one
	Secrets []string                                                      // of the webhook, the new and the previous one while it is changed
	Tenant  string                                                        // whose events they are; empty: the platform's
	Logger  *slog.Logger
}

// Webhook is the address that GitHub sends to. What is answered with 202 is on
// the disk, or nobody watches such. GitHub doesn't repeat by itself what failed;
// a redelivery that a person asks for has the same id, and is recognised.
type Webhook struct {
	opt    Options
	verify *receiver.Receiver
	bodies bodies // of strangers
}

// New makes one. Secrets are checked here.
func New(opt Options) (*Webhook, error) {
	if opt.Publish == nil {
		return nil, errors.New("github: nobody takes the events")
	}
	if opt.Logger == nil {
		opt.Logger = slog.New(slog.DiscardHandler)
	}
	// Repeats are recognised by the event's id, in the store.
	rc, err := receiver.New(receiver.GitHub(opt.Secrets...), receiver.NoDedupe)
	if err != nil {
		return nil, err
	}
	return &Webhook{opt: opt, verify: rc}, nil
}

// answer is what GitHub's log of deliveries shows.
type answer struct {
	ID         string `json:"id,omitempty"`
	Duplicate  bool   `json:"duplicate"`
	Deliveries int    `json:"deliveries"`
	Ignored    string `json:"ignored,omitempty"` // why nothing was published
}

// problem is an error as RFC 9457 has it.
type problem struct {
	Title  string             `json:"title"`
	Status int                `json:"status"`
	Detail string             `json:"detail"`
	Code   surehook.ErrorCode `json:"code"`
}

// ServeHTTP takes one webhook. The signature is checked over the raw body, in
// constant time, before anything is read out of it.
func (h *Webhook) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	b := h.bodies.begin(w, r)
	r.Body = b
	m, err := h.verify.Verify(w, r)
	b.end()
	if err != nil {
		h.refuse(w, r, err)
		return
	}
	if media, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); err != nil || media != "application/json" {
		h.fail(w, r, http.StatusUnsupportedMediaType, "unsupported_media_type", "set the webhook's content type to application/json")
		return
	}
	kind := r.Header.Get("X-GitHub-Event")
	switch {
	case !deliveryID(m.ID):
		h.fail(w, r, http.StatusBadRequest, surehook.InvalidRequest, receiver.GitHubDelivery+" isn't an id of GitHub's: letters, digits and -, at most 100")
		return
	case kind == "":
		h.fail(w, r, http.StatusBadRequest, surehook.InvalidRequest, "X-GitHub-Event is missing")
		return
	}
	ev, known, err := Map(kind, m.Body)
	switch {
	case err != nil:
		h.fail(w, r, http.StatusBadRequest, surehook.InvalidRequest, "body: "+err.Error())
	case !known:
		write(w, http.StatusAccepted, "application/json", answer{Ignored: "no event here comes of such"})
	default:
		ev.ID, ev.Tenant = "gh:"+m.ID, h.opt.Tenant
		h.publish(w, r, ev)
	}
}

// deliveryID tells what can be an id of GitHub's, which are UUIDs today.
func deliveryID(s string) bool {
	for i := range len(s) {
		if c := s[i]; (c < '0' || c > '9') && (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && c != '-' {
			return false
		}
	}
	return s != "" && len(s) <= 100
}

func (h *Webhook) publish(w http.ResponseWriter, r *http.Request, ev surehook.Event) {
	rc, err := h.opt.Publish(r.Context(), ev)
	if err == nil {
		write(w, http.StatusAccepted, "application/json", answer{ID: rc.ID, Duplicate: rc.Duplicate, Deliveries: rc.Deliveries})
		return
	}
	code, detail := surehook.CodeOf(err), "something went wrong here; redeliver later"
	if e, ok := errors.AsType[*surehook.Error](err); ok && code != surehook.Internal {
		detail = e.Message
	}
	status := http.StatusInternalServerError
	switch code {
	case surehook.InvalidRequest:
		status = http.StatusBadRequest
	case surehook.Conflict:
		status, detail = http.StatusConflict, "another webhook with this "+receiver.GitHubDelivery+" was taken before"
	case surehook.Unavailable, surehook.Stopping:
		status = http.StatusServiceUnavailable
		w.Header().Set("Retry-After", "1")
	}
	h.opt.Logger.Warn("a webhook of GitHub's wasn't published", "event_id", ev.ID, "type", ev.Type, "code", code, "error", err)
	h.fail(w, r, status, code, detail)
}

// refuse answers what isn't GitHub's.
func (h *Webhook) refuse(w http.ResponseWriter, r *http.Request, err error) {
	status, reason := http.StatusBadRequest, err
	if e, ok := errors.AsType[*receiver.Error](err); ok {
		status, reason = e.Status, e.Reason
	}
	code := surehook.InvalidRequest
	switch status {
	case http.StatusUnauthorized:
		code = surehook.Unauthorized
	case http.StatusRequestEntityTooLarge:
		code = surehook.TooLarge
	case http.StatusMethodNotAllowed:
		code = "method_not_allowed"
		w.Header().Set("Allow", http.MethodPost)
	}
	_, detail, _ := strings.Cut(reason.Error(), ": ")
	if errors.Is(err, signing.ErrMissingHeader) {
		detail = signing.GitHubSignature + " or " + receiver.GitHubDelivery + " is missing"
	}
	h.fail(w, r, status, code, detail)
}

func (h *Webhook) fail(w http.ResponseWriter, r *http.Request, status int, code surehook.ErrorCode, detail string) {
	h.opt.Logger.Debug("a webhook of GitHub's was refused", "status", status, "code", code, "detail", detail, "remote", r.RemoteAddr)
	write(w, status, "application/problem+json", problem{Title: http.StatusText(status), Status: status, Detail: detail, Code: code})
}

func write(w http.ResponseWriter, status int, media string, v any) {
	w.Header().Set("Content-Type", media)
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(v) // the sender may have gone
}
