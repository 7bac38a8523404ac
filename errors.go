package surehook

import (
	"errors"
	"fmt"
)

// ErrorCode is the stable part of an error that callers may act on.
type ErrorCode string

// The error codes.
const (
	InvalidRequest ErrorCode = "invalid_request"
	Unauthorized   ErrorCode = "unauthorized"
	Forbidden      ErrorCode = "permission_denied"
	NotFound       ErrorCode = "not_found"
	Conflict       ErrorCode = "conflict"
	LimitReached   ErrorCode = "webhook_limit_reached"
	TooLarge       ErrorCode = "payload_too_large"
	CursorExpired  ErrorCode = "cursor_expired"    // events behind it left their inbox unread
	NotAlive       ErrorCode = "session_not_alive" // it was closed, or idle for too long
	Unavailable    ErrorCode = "store_unavailable" // try again later; nothing was changed, or the outcome is unknown
	Stopping       ErrorCode = "stopping"
	Internal       ErrorCode = "internal"
)

// FieldError names one input that was refused and why. It never echoes the
// value.
type FieldError struct {
	Path    string `json:"path"`
	Message string `json:"message"`
}

// Error is what Surehook's packages return for anything a caller may act on.
type Error struct {
	Code    ErrorCode
	Message string // for people; never a secret, a URL's path or a payload
	Fields  []FieldError
	Cause   error // for logs
}

// Errorf makes an Error.
func Errorf(code ErrorCode, format string, args ...any) *Error {
	return &Error{Code: code, Message: fmt.Sprintf(format, args...)}
}

// Invalid makes an InvalidRequest error about one field.
func Invalid(path, message string) *Error {
	return &Error{Code: InvalidRequest, Message: "the request is invalid: " + path + ": " + message,
		Fields: []FieldError{{Path: path, Message: message}}}
}

// WithCause keeps the underlying error for logs.
func (e *Error) WithCause(err error) *Error {
	e.Cause = err
	return e
}

func (e *Error) Error() string {
	if e.Cause != nil {
		return e.Message + ": " + e.Cause.Error()
	}
	return e.Message
}

func (e *Error) Unwrap() error { return e.Cause }

// CodeOf finds the code of an error; errors of other packages are Internal.
func CodeOf(err error) ErrorCode {
	if e, ok := errors.AsType[*Error](err); ok {
		return e.Code
	}
	return Internal
}

// ErrConfigChanged is returned by Append when endpoints changed since the
// caller matched: match again and repeat.
var ErrConfigChanged = errors.New("surehook: endpoint configuration changed")
