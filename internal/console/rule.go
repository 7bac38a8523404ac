package console

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/surehook/surehook"
)

// Rule gives whom a login provider vouches for the rights of a key: who has a claim
// with a value.
type Rule struct {
	Claim string // its name; with dots where it is within another
	Value string // the whole of it, or what it ends with after a *
	Key   surehook.APIKey

	text string
}

// roles are names of many permissions. Any other permission goes by its own name.
var roles = map[string][]string{
	"read":   {surehook.PermRead},
	"manage": {surehook.PermRead, surehook.PermWebhooksManage},
	"admin":  {surehook.PermRead, surehook.PermWebhooksManage, surehook.PermEventsWrite, surehook.PermEventsPull, surehook.PermAdmin},
}

// ParseRule reads claim=value=role, such as groups=ops=admin; @tenant:acme or
// @partner:north after it bounds it to what is theirs.
func ParseRule(text string) (Rule, error) {
	claim, rest, ok := strings.Cut(text, "=")
	i := strings.LastIndex(rest, "=")
	if !ok || claim == "" || i < 1 || strings.Contains(rest[1:i], "*") {
		return Rule{}, fmt.Errorf("%q must be claim=value=role, such as groups=ops=admin or email=*@example.com=read; a * stands at the value's beginning alone", text)
	}
	r := Rule{Claim: claim, Value: rest[:i], text: text}
	rights, of, bound := strings.Cut(rest[i+1:], "@")
	if bound {
		kind, id, _ := strings.Cut(of, ":")
		switch {
		case id == "" || kind != "tenant" && kind != "partner":
			return Rule{}, fmt.Errorf("%q: after @ stands tenant:id or partner:id", text)
		case kind == "tenant":
			r.Key.Tenant = id
		default:
			r.Key.Partner = id
		}
	}
	perms := map[string]bool{surehook.PermRead: true} // a console is looked at
	for _, name := range strings.Split(rights, "+") {
		switch given, role := roles[name]; {
		case role && name == "admin" && bound:
			return Rule{}, fmt.Errorf("%q: a tenant or a partner has no admin; manage is the most", text)
		case role:
			for _, p := range given {
				perms[p] = true
			}
		case strings.Contains(name, ":") && !strings.ContainsFunc(name, func(c rune) bool { return c <= ' ' || c > '~' }):
			perms[name] = true
		default:
			return Rule{}, fmt.Errorf("%q: %q is no role: read, manage, admin, or a permission such as mail:read, joined by +", text, name)
		}
	}
	r.Key.Permissions = slices.Sorted(maps.Keys(perms))
	return r, nil
}

// bind gives the rule's key its name: another provider, or a changed rule, is another
// key, and ends the sessions of the one before.
func (r *Rule) bind(issuer, client string) {
	sum := sha256.Sum256([]byte("oidc\x00" + issuer + "\x00" + client + "\x00" + r.text))
	r.Key.Hash = sum[:]
}

var errUnverified = errors.New("the provider hasn't verified this e-mail address")

// match tells whether claims have what the rule asks for.
func (r *Rule) match(claims map[string]any) (bool, error) {
	found := false
	for _, v := range values(claims, r.Claim) {
		want := r.Value
		if r.Claim == "email" { // the same mailbox, however it is written
			v, want = strings.ToLower(v), strings.ToLower(want)
		}
		if end, wild := strings.CutPrefix(want, "*"); v == want || wild && v != "" && strings.HasSuffix(v, end) {
			found = true
		}
	}
	if found && r.Claim == "email" && !verified(claims) {
		return false, errUnverified
	}
	return found, nil
}

// verified tells whether the provider says that the address is the person's. Some
// write it as a text.
func verified(claims map[string]any) bool {
	return claims["email_verified"] == true || claims["email_verified"] == "true"
}

// values are a claim's texts, one or many.
func values(claims map[string]any, name string) []string {
	v, ok := claims[name]
	for !ok {
		outer, inner, more := strings.Cut(name, ".")
		within, is := claims[outer].(map[string]any)
		if !more || !is {
			return nil
		}
		claims, name = within, inner
		v, ok = claims[name]
	}
	switch v := v.(type) {
	case string:
		return []string{v}
	case []any:
		var out []string
		for _, x := range v {
			if s, ok := x.(string); ok {
				out = append(out, s)
			}
		}
		return out
	}
	return nil
}

// choose gives the first rule that lets somebody in; nil: none does.
func choose(rules []Rule, claims map[string]any) (*Rule, error) {
	var why error
	for i := range rules {
		ok, err := rules[i].match(claims)
		if ok {
			return &rules[i], nil
		}
		if err != nil {
			why = err
		}
	}
	return nil, why
}
