package relay

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/json"
	"net/http"
	"strings"
)

// Admin is what the relay serves to its operator.
type Admin struct {
	Token       func() []byte // in force; nil: none is set
	Ready       func(context.Context) error
	Metrics     http.Handler
	DeadLetters http.Handler // checks the token itself, by Allowed
	Version     string
	SHA         string
}

// Handler serves /healthz and /readyz to everybody, /metrics and /version to those
// who have the token, if one is set, and the dead letters only if one is.
func (a *Admin) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) {
		answer(w, http.StatusOK, map[string]string{"status": "ok"})
	})
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, r *http.Request) {
		if err := a.Ready(r.Context()); err != nil {
			answer(w, http.StatusServiceUnavailable, map[string]string{"status": "not ready", "reason": err.Error()})
			return
		}
		answer(w, http.StatusOK, map[string]string{"status": "ready"})
	})
	mux.Handle("GET /metrics", a.guarded(a.Metrics))
	mux.Handle("GET /version", a.guarded(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		answer(w, http.StatusOK, map[string]string{"version": a.Version, "git_sha": a.SHA})
	})))
	letters := func(w http.ResponseWriter, r *http.Request) {
		if len(a.Token()) == 0 {
			answer(w, http.StatusForbidden, map[string]string{"code": "permission_denied",
				"detail": "dead letters are served behind a token alone: set relay.admin_token_env or relay.admin_token_file"})
			return
		}
		a.DeadLetters.ServeHTTP(w, r)
	}
	mux.HandleFunc("/v1/dead-letters", letters)
	mux.HandleFunc("/v1/dead-letters/", letters)
	return mux
}

// Allowed tells whether a bearer token is the one that is set. Digests are
// compared, so that not even the length of a wrong one shows.
func (a *Admin) Allowed(token string) bool {
	want := a.Token()
	given, set := sha256.Sum256([]byte(token)), sha256.Sum256(want)
	return len(want) > 0 && subtle.ConstantTimeCompare(given[:], set[:]) == 1
}

func (a *Admin) guarded(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		scheme, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
		if len(a.Token()) > 0 && (!strings.EqualFold(scheme, "Bearer") || !a.Allowed(strings.TrimSpace(token))) {
			w.Header().Set("WWW-Authenticate", "Bearer")
			answer(w, http.StatusUnauthorized, map[string]string{"code": "unauthorized", "detail": "the token is missing or wrong; send Authorization: Bearer TOKEN"})
			return
		}
		h.ServeHTTP(w, r)
	})
}

func answer(w http.ResponseWriter, status int, v any) {
	media := "application/json"
	if status >= http.StatusBadRequest {
		media = "application/problem+json"
	}
	w.Header().Set("Content-Type", media)
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(v) // the caller may have gone
}
