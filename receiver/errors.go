package receiver

import (
	"errors"
	"net/http"

	"github.com/surehook/surehook/signing"
)

// Why a request wasn't taken, beside the errors of package signing. They come
// wrapped in an *Error.
var (
	ErrMethod         = errors.New("receiver: only POST is taken")
	ErrTooLarge       = errors.New("receiver: the body is larger than is taken")
	ErrBody           = errors.New("receiver: the body didn't arrive whole")
	ErrSlow           = errors.New("receiver: the body didn't arrive in time")
	ErrRepeatedHeader = errors.New("receiver: a signature header is there twice")
	ErrEnvelope       = errors.New("receiver: the body isn't the JSON that this sender sends")
	ErrSchema         = errors.New("receiver: the schema is of another major version")
	ErrEventID        = errors.New("receiver: the event's id in the header isn't the one that was signed")
	ErrStore          = errors.New("receiver: the store of ids failed")
	ErrHandler        = errors.New("receiver: the handler failed")
)

// Error is why a request wasn't taken, and how it was answered. It holds
// neither body nor secret; what a handler returned is in Cause alone, and the
// sender isn't told it.
type Error struct {
	Status int
	Reason error // one of this package's or of package signing
	Cause  error // what the handler or the store said; nil: nothing
}

func (e *Error) Error() string {
	if e.Cause != nil {
		return e.Reason.Error() + ": " + e.Cause.Error()
	}
	return e.Reason.Error()
}

// Unwrap gives reason and cause.
func (e *Error) Unwrap() []error {
	if e.Cause != nil {
		return []error{e.Reason, e.Cause}
	}
	return []error{e.Reason}
}

// statuses are the answers. What may pass another time is 408 or 5xx, so that
// the sender tries again.
var statuses = []struct {
	err    error
	status int
}{
	{ErrMethod, http.StatusMethodNotAllowed},
	{ErrTooLarge, http.StatusRequestEntityTooLarge},
	{ErrBody, http.StatusBadRequest},
	{ErrSlow, http.StatusRequestTimeout}, // the one 4xx, with 429, after which every sender tries again
	{ErrRepeatedHeader, http.StatusBadRequest},
	{ErrEnvelope, http.StatusUnprocessableEntity},
	{ErrSchema, http.StatusUnprocessableEntity},
	{ErrEventID, http.StatusBadRequest},
	{ErrStore, http.StatusServiceUnavailable},
	{ErrHandler, http.StatusInternalServerError},
	{signing.ErrMissingHeader, http.StatusBadRequest},
	{signing.ErrMalformedID, http.StatusBadRequest},
	{signing.ErrMalformedTimestamp, http.StatusBadRequest},
	{signing.ErrTooOld, http.StatusUnauthorized},
	{signing.ErrTooNew, http.StatusUnauthorized},
	{signing.ErrNoKnownVersion, http.StatusUnauthorized},
	{signing.ErrNoMatch, http.StatusUnauthorized},
}

// refuse finds the answer to a reason.
func refuse(reason, cause error) *Error {
	for _, s := range statuses {
		if errors.Is(reason, s.err) {
			return &Error{Status: s.status, Reason: reason, Cause: cause}
		}
	}
	return &Error{Status: http.StatusInternalServerError, Reason: reason, Cause: cause}
}

// statusError is a handler's own answer.
type statusError struct {
	status int
	err    error
}

func (e *statusError) Error() string { return e.err.Error() }
func (e *statusError) Unwrap() error { return e.err }

// Answer lets a handler choose the status of its failure, where 500 isn't
// right: 422 for an event that it will never take, 410 to get no more events
// at all, 503 to be asked again. A status below 400 is taken as 500: the id
// isn't kept, so the event must not be called done.
func Answer(status int, err error) error {
	if status < 400 || status > 599 {
		status = http.StatusInternalServerError
	}
	return &statusError{status, err}
}
