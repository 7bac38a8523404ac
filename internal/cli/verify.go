package cli

import (
	"bytes"
	"errors"
	"fmt"
	"net/http"
	"net/textproto"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/surehook/surehook/internal/diagnose"
	"github.com/surehook/surehook/signing"
)

// captured is a request as someone saved it.
type captured struct {
	header http.Header
	body   []byte
	note   string // what was mended
}

// parseCaptured reads "headers, blank line, body", with or without a request
// line in front. A line that begins with a blank goes on with the field before
// it, as old proxies fold long ones. The body is taken as it is; when Content-Length says that it
// is shorter, what an editor added at its end is left out.
func parseCaptured(raw []byte) (*captured, error) {
	head, body, found := bytes.Cut(raw, []byte("\r\n\r\n"))
	if h, b, ok := bytes.Cut(raw, []byte("\n\n")); ok && (!found || len(h) < len(head)) {
		head, body, found = h, b, true
	}
	if !found {
		return nil, errors.New("the file has no blank line between headers and body")
	}
	r := &captured{header: http.Header{}, body: body}
	last := ""
	for i, line := range strings.Split(string(head), "\n") {
		line = strings.TrimSuffix(line, "\r")
		if i == 0 && (strings.Contains(line, " HTTP/") || strings.HasPrefix(line, "POST ")) {
			continue
		}
		if all := r.header[last]; len(all) > 0 && strings.Trim(line[:min(1, len(line))], " \t") == "" && line != "" {
			all[len(all)-1] += " " + strings.TrimSpace(line)
			continue
		}
		name, value, ok := strings.Cut(line, ":")
		if !ok || strings.ContainsAny(name, " \t") {
			return nil, fmt.Errorf("line %d isn't a header field", i+1)
		}
		last = textproto.CanonicalMIMEHeaderKey(name)
		r.header[last] = append(r.header[last], strings.TrimSpace(value))
	}
	if te := r.header.Get("Transfer-Encoding"); strings.Contains(strings.ToLower(te), "chunked") {
		r.note = "the request was sent in chunks: the saved body must be the decoded one"
	}
	n := len(body)
	if stated, err := strconv.Atoi(r.header.Get("Content-Length")); err == nil && stated >= 0 {
		n = stated
	}
	switch {
	case n == len(body):
	case n > len(body):
		return nil, fmt.Errorf("the body has %d bytes, and Content-Length says %d: it isn't whole", len(body), n)
	case strings.TrimRight(string(body[n:]), "\r\n") == "":
		r.body, r.note = body[:n], "line breaks past Content-Length were left out"
	default:
		r.note = fmt.Sprintf("the body has %d bytes, and Content-Length says %d", len(body), n)
	}
	return r, nil
}

type verifyFlags struct {
	secret      secretFlags
	scheme      string
	id, ts, sig string
	tolerance   time.Duration
	at          int64
}

func (c *cmd) verifyCmd() *cobra.Command {
	var f verifyFlags
	verify := &cobra.Command{
		Use:   "verify [FILE|-]",
		Short: "Verify the signature of a captured request",
		Long: `Verify the signature of a captured request: a file with its headers, a blank line
and the body, byte for byte. Or give the headers' values as flags, and the body
on standard input.

When the signature is wrong, the mistakes that people make are tried, one and then
two at once: with the secret, the body, the timestamp, the id, the header. What would
make it right is named.

Schemes: standard (Standard Webhooks v1 and v1a), purple-wolf, github, stripe,
shopify, slack. Exit code 4: the request would be refused.`,
		Example: "  SUREHOOK_SECRET=whsec_… surehook verify request.txt\n  surehook verify --secret-file s.txt --id evt_1 --timestamp 1674087231 --signature 'v1,…' < body.json",
		RunE: func(_ *cobra.Command, args []string) error {
			if len(args) > 1 {
				return usage("one file at a time")
			}
			return c.verify(&f, args)
		},
	}
	f.secret.add(verify.Flags())
	fs := verify.Flags()
	fs.StringVar(&f.scheme, "scheme", "standard", "who signed, and how")
	offer(verify, "scheme", diagnose.Schemes()...)
	fs.StringVar(&f.id, "id", "", "value of webhook-id")
	fs.StringVar(&f.ts, "timestamp", "", "value of webhook-timestamp")
	fs.StringVar(&f.sig, "signature", "", "value of webhook-signature, or of the scheme's own header")
	fs.DurationVar(&f.tolerance, "tolerance", signing.Tolerance, "how far the timestamp may be from now; 0: any")
	fs.Int64Var(&f.at, "now", 0, "judge the timestamp as of these Unix seconds (default the clock)")
	return verify
}

func (c *cmd) verify(f *verifyFlags, args []string) error {
	list, err := f.secret.read(c)
	if err != nil {
		return err
	}
	r, err := c.captured(f, args)
	if err != nil {
		return err
	}
	now := time.Now()
	if f.at != 0 {
		now = time.Unix(f.at, 0)
	}
	v, err := diagnose.Judge(diagnose.Input{Scheme: f.scheme, Secrets: list, Header: r.header, Body: r.body, Now: now, Tolerance: f.tolerance, Search: 24 * time.Hour})
	if err != nil {
		return usage("%s", whyNot(err))
	}
	if _, bad := errors.AsType[*signing.KeyError](v.Reason); bad && len(v.Causes) == 1 && v.Causes[0].Code == "secret_invalid" {
		return badSecret(v.Reason) // nothing could be told of the request
	}
	return c.verified(r, v)
}

// captured reads the request: a file, or flags and a body.
func (c *cmd) captured(f *verifyFlags, args []string) (*captured, error) {
	if f.sig != "" {
		body, err := readBody(c.env.Stdin)
		if err != nil {
			return nil, err
		}
		r := &captured{header: http.Header{}, body: body}
		for _, name := range []string{signing.HeaderSignature, signing.PurpleWolfSignature, signing.GitHubSignature, signing.StripeSignature, signing.ShopifySignature, signing.SlackSignature} {
			r.header.Set(name, f.sig)
		}
		for _, name := range []string{signing.HeaderTimestamp, signing.PurpleWolfTimestamp, signing.SlackTimestamp} {
			r.header.Set(name, f.ts)
		}
		r.header.Set(signing.HeaderID, f.id)
		return r, nil
	}
	var raw []byte
	var err error
	switch {
	case len(args) == 1 && args[0] != "-":
		raw, err = os.ReadFile(args[0])
	case len(args) == 0 && c.env.StdinTerminal:
		return nil, usage("nothing to verify: give a file, or the request on standard input")
	default:
		raw, err = readBody(c.env.Stdin)
	}
	if err != nil {
		return nil, err
	}
	r, err := parseCaptured(raw)
	if err != nil {
		return nil, fail(exitUsage, "the file must hold the headers, a blank line, and the body as it arrived", "%w", err)
	}
	return r, nil
}

// verified says the verdict.
func (c *cmd) verified(r *captured, v diagnose.Verdict) error {
	reason := ""
	if !v.Valid {
		reason = whyNot(v.Reason)
	}
	if c.json {
		err := c.out.value(struct {
			Valid     bool             `json:"valid"`
			Signature bool             `json:"signature_matches"`
			Reason    string           `json:"reason,omitempty"`
			Causes    []diagnose.Cause `json:"causes,omitempty"`
			Bytes     int              `json:"body_bytes"`
			Note      string           `json:"note,omitempty"`
		}{v.Valid, v.Matches, reason, v.Causes, len(r.body), r.note})
		if err != nil {
			return err
		}
	} else {
		if v.Valid {
			c.out.line("%s  the signature matches the body of %d bytes", c.out.paint(green, "valid"), len(r.body))
		} else {
			c.out.line("%s  %s", c.out.paint(red, "refused"), reason)
		}
		c.causes(v.Causes)
		if v.Matches && !v.Valid {
			c.out.line("  --tolerance 0 leaves the time out")
		}
		if r.note != "" {
			c.out.line("  %s", r.note)
		}
	}
	if !v.Valid {
		return &exitError{code: exitRefused, err: errSilent}
	}
	return nil
}

// causes says why a signature is wrong, and what to do.
func (c *cmd) causes(list []diagnose.Cause) {
	for _, cause := range list {
		c.out.line("  %s", printable(cause.Text))
		if cause.Advice != "" {
			c.out.line("    %s", c.out.paint(dim, cause.Advice))
		}
	}
}
