package engine

import (
	"context"
	"errors"

	"github.com/surehook/surehook"
	"github.com/surehook/surehook/internal/egress"
)

// checkURL judges the URL by its text and its addresses, and makes it canonical.
// A name that doesn't resolve yet is let through: each attempt looks again.
func (e *Engine) checkURL(ctx context.Context, ep *surehook.Endpoint) error {
	if err := e.canonical(ep); err != nil {
		return err
	}
	if v := e.client.Check(ctx, ep.URL, true); v.Code == surehook.SSRFBlocked {
		return surehook.Invalid("url", v.Reason)
	}
	return nil
}

// CheckURL tells whether an endpoint with this URL could be made, and gives its
// canonical form.
func (e *Engine) CheckURL(ctx context.Context, url string) (canonical string, err error) {
	ep := &surehook.Endpoint{URL: url}
	err = e.checkURL(ctx, ep)
	return ep.URL, err
}

// canonical is checkURL without its look-up.
func (e *Engine) canonical(ep *surehook.Endpoint) error {
	t, err := e.client.ParseURL(ep.URL)
	if err != nil {
		if u, ok := errors.AsType[*egress.URLError](err); ok {
			return surehook.Invalid("url", u.Message)
		}
		return surehook.Invalid("url", "isn't a URL that can be delivered to")
	}
	ep.URL = t.URL()
	return nil
}
