package cli

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"net/url"
	"strings"
	"time"

	"github.com/surehook/surehook/client"
	"github.com/surehook/surehook/internal/egress"
)

// explain gives an error of the API its exit code, and says what to do next.
func (c *cmd) explain(err error) error {
	if err == nil {
		return nil
	}
	if _, ok := errors.AsType[*exitError](err); ok {
		return err
	}
	p, ok := errors.AsType[*client.Problem](err)
	if !ok {
		if errors.Is(err, context.Canceled) {
			return fail(exitFailed, "", "interrupted")
		}
		if _, ok := errors.AsType[*client.ReachError](err); ok || errors.Is(err, context.DeadlineExceeded) {
			return fail(exitUnavailable, "is the server running, and is SUREHOOK_URL its address?", "%w", err)
		}
		if _, ok := errors.AsType[*client.AnswerError](err); ok {
			return fail(exitFailed, "look whether it was done before you repeat it; surehook version and the server's /version should agree", "%w", err)
		}
		return err
	}
	detail := p.Error()
	for _, f := range p.Errors {
		if !strings.Contains(detail, f.Message) {
			detail += "\n  " + f.Path + ": " + f.Message
		}
	}
	code, hint := exitFailed, ""
	switch {
	case strings.HasPrefix(p.Code, "provider_"):
		hint = "surehook sentinel providers NAME tells whether it is ready, and what to do if not"
	case p.Status == 401:
		code, hint = exitRefused, "set SUREHOOK_KEY to a key of this server"
	case p.Status == 403:
		code, hint = exitRefused, keyHint(p.Details)
	case p.Status == 404:
		code = exitNotFound
	case p.Status == 400:
		code, hint = exitUsage, "nothing was changed"
	case p.Status == 503 || p.Status == 502 || p.Status == 504:
		code, hint = exitUnavailable, "try again in a moment"
	case p.Status >= 500 && p.RequestID != "":
		hint = "the server's log has more under the request " + p.RequestID
	}
	return fail(code, hint, "%s", detail)
}

// keyHint says which kind of key would have been let in.
func keyHint(d client.Details) string {
	const from = "; with an admin key, "
	switch {
	case d.Scope == "platform":
		return "a platform key is needed, one that belongs to no tenant" + from + "surehook keys create without --tenant makes one"
	case d.Required != "":
		return "a key with the permission " + d.Required + " is needed" + from + "surehook keys create --permission " + d.Required + " makes one"
	}
	return "use another key; surehook keys list shows what each may do"
}

// urlHint adds to the refusal of an endpoint's URL how a private address can be
// delivered to.
func urlHint(ctx context.Context, err error, raw string) error {
	p, ok := errors.AsType[*client.Problem](err)
	if !ok || p.Status != 400 || len(p.Errors) == 0 || p.Errors[0].Path != "url" {
		return err
	}
	network := private(ctx, raw)
	if network == "" {
		return err
	}
	if strings.Contains(p.Error(), "--allow-networks") { // it has some, and they must stay
		return fail(exitUsage, "nothing was changed: add "+network+" to what the server has as --allow-networks", "%s", p.Error())
	}
	return fail(exitUsage, "nothing was changed: deliveries go to public addresses alone; for development, a server may reach others:\n"+
		"  surehook serve --allow-networks "+network, "%s", p.Error())
}

// private gives the network of a URL's host, if that is no public address. The
// server's word is only a text, so it is judged again, as this machine sees it.
func private(ctx context.Context, raw string) string {
	u, err := url.Parse(raw)
	if err != nil || u.Hostname() == "" {
		return ""
	}
	host := strings.TrimSuffix(strings.ToLower(u.Hostname()), ".")
	if a, err := netip.ParseAddr(host); err == nil {
		return network(a)
	}
	if host == "localhost" || strings.HasSuffix(host, ".localhost") {
		return "127.0.0.0/8,::1"
	}
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	addrs, _ := net.DefaultResolver.LookupNetIP(ctx, "ip", host) // what can't be found can't be judged
	for _, a := range addrs {
		if n := network(a.Unmap()); n != "" {
			return n
		}
	}
	return ""
}

// network is what --allow-networks would have to name for an address; empty: it
// is public.
func network(a netip.Addr) string {
	switch {
	case egress.IsPublic(a):
		return ""
	case a.Is4() && a.IsLoopback():
		return "127.0.0.0/8"
	}
	return a.WithZone("").String()
}
