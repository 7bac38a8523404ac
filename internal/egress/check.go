package egress

import (
	"context"
	"errors"
	"net/netip"
	"time"

	"github.com/surehook/surehook"
)

// Verdict is what the guard says about one input.
type Verdict struct {
	Input   string        `json:"input"`
	Verdict string        `json:"verdict"` // allow or block
	Code    surehook.Code `json:"code"`
	Reason  string        `json:"reason"`
}

func verdict(input string, code surehook.Code, reason string) Verdict {
	v := Verdict{Input: input, Verdict: "allow", Code: code, Reason: reason}
	if code != "" {
		v.Verdict = "block"
	}
	return v
}

// Check says whether a URL would be delivered to: by its text, and if resolve
// is set by its addresses too.
func (c *Client) Check(ctx context.Context, raw string, resolve bool) Verdict {
	t, err := c.ParseURL(raw)
	if err != nil {
		var u *URLError
		if errors.As(err, &u) {
			return verdict(raw, surehook.InvalidURL, u.Reason+": "+u.Message)
		}
		return verdict(raw, surehook.InvalidURL, err.Error())
	}
	if !resolve {
		return verdict(raw, "", "")
	}
	a := attempt{req: &Request{Target: t}, phase: "resolving"}
	now := c.now()
	a.deadline = now.Add(15 * time.Second)
	if d, ok := ctx.Deadline(); ok && d.Before(a.deadline) {
		a.deadline = d
	}
	if _, err := c.resolve(ctx, t, now, a.until(now)); err != nil && !c.leaveToProxy(ctx, &a, err) {
		c.failResolve(ctx, &a, err)
		return verdict(raw, a.res.Code, a.res.Err)
	}
	return verdict(raw, "", "")
}

// CheckAddr says whether an address, given as text, may be connected to.
func (g *Guard) CheckAddr(raw string) Verdict {
	a, err := netip.ParseAddr(raw)
	if err != nil {
		return verdict(raw, surehook.InvalidURL, "not an IP address")
	}
	if reason := g.judge(a, false); reason != "" {
		return verdict(raw, surehook.SSRFBlocked, reason)
	}
	return verdict(raw, "", "")
}
