package sentinel

import "github.com/surehook/surehook"

// Codes of what can go wrong with a sentinel, beside invalid_request and
// not_found.
const (
	MissingSubject       surehook.ErrorCode = "missing_subject"
	AmbiguousSubject     surehook.ErrorCode = "ambiguous_subject"
	InvalidPRURL         surehook.ErrorCode = "invalid_pr_url"
	NoCallerIdentity     surehook.ErrorCode = "no_caller_identity"
	SessionNotAlive                         = surehook.NotAlive
	UnknownProvider      surehook.ErrorCode = "unknown_provider"
	ProviderCreateFailed surehook.ErrorCode = "provider_create_failed"
	ProviderFailed       surehook.ErrorCode = "provider_failed" // it couldn't look for events
	CreateFailed         surehook.ErrorCode = "create_failed"   // the callback didn't pass its challenge; the message begins with the reason
	NotImplemented       surehook.ErrorCode = "not_implemented"
)

// refuse is an error about one field, under a code of its own.
func refuse(code surehook.ErrorCode, path, message string) *surehook.Error {
	e := surehook.Invalid(path, message)
	e.Code = code
	return e
}
