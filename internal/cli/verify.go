package cli

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"net/textproto"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/surehook/surehook/signing"
)

// captured is a request as someone saved it.
type captured struct {
	header map[string]string // canonical names; of a repeated field the first value
	body   []byte
	note   string // what was mended
}

func (r *captured) get(name string) string { return r.header[textproto.CanonicalMIMEHeaderKey(name)] }

// parseCaptured reads "headers, blank line, body", with or without a request
// line in front. The body is taken as it is; when Content-Length says that it
// is shorter, what an editor added at its end is left out.
func parseCaptured(raw []byte) (*captured, error) {
	head, body, found := bytes.Cut(raw, []byte("\r\n\r\n"))
	if h, b, ok := bytes.Cut(raw, []byte("\n\n")); ok && (!found || len(h) < len(head)) {
		head, body, found = h, b, true
	}
	if !found {
		return nil, errors.New("the file has no blank line between headers and body")
	}
	r := &captured{header: map[string]string{}, body: body}
	for i, line := range strings.Split(string(head), "\n") {
		line = strings.TrimSuffix(line, "\r")
		if i == 0 && (strings.Contains(line, " HTTP/") || strings.HasPrefix(line, "POST ")) {
			continue
		}
		name, value, ok := strings.Cut(line, ":")
		if !ok || strings.ContainsAny(name, " \t") {
			return nil, fmt.Errorf("line %d isn't a header field", i+1)
		}
		if key := textproto.CanonicalMIMEHeaderKey(name); r.header[key] == "" {
			r.header[key] = strings.TrimSpace(value)
		}
	}
	if te := r.get("Transfer-Encoding"); strings.Contains(strings.ToLower(te), "chunked") {
		r.note = "the request was sent in chunks: the saved body must be the decoded one"
	}
	n := len(body)
	if stated, err := strconv.Atoi(r.get("Content-Length")); err == nil && stated >= 0 {
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
	offer(verify, "scheme", "standard", "purple-wolf", "github", "stripe", "shopify", "slack")
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
	const anyAge = time.Duration(math.MaxInt64)
	right, err := verifyAs(f.scheme, list, r, now, anyAge)
	if err != nil {
		return err
	}
	verdict := right
	if right == nil && f.tolerance > 0 {
		verdict, _ = verifyAs(f.scheme, list, r, now, f.tolerance)
	}
	return c.verified(r, verdict, right == nil)
}

// captured reads the request: a file, or flags and a body.
func (c *cmd) captured(f *verifyFlags, args []string) (*captured, error) {
	if f.sig != "" {
		body, err := readBody(c.env.Stdin)
		if err != nil {
			return nil, err
		}
		r := &captured{header: map[string]string{}, body: body}
		for _, name := range []string{signing.HeaderSignature, "X-PurpleWolf-Signature", signing.GitHubSignature, signing.StripeSignature, signing.ShopifySignature, signing.SlackSignature} {
			r.header[textproto.CanonicalMIMEHeaderKey(name)] = f.sig
		}
		for _, name := range []string{signing.HeaderTimestamp, "X-PurpleWolf-Timestamp", signing.SlackTimestamp} {
			r.header[textproto.CanonicalMIMEHeaderKey(name)] = f.ts
		}
		r.header[textproto.CanonicalMIMEHeaderKey(signing.HeaderID)] = f.id
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

// verifyAs checks the request under one scheme: what is wrong with the request
// is the verdict, what is wrong with the question the error.
func verifyAs(scheme string, list []string, r *captured, now time.Time, tolerance time.Duration) (verdict, err error) {
	if scheme == "standard" {
		ks, err := keys(list, true)
		if err != nil {
			return nil, err
		}
		return signing.Verify(ks, r.get(signing.HeaderSignature), r.get(signing.HeaderID), r.get(signing.HeaderTimestamp), r.body, now, tolerance), nil
	}
	secrets := make([]signing.Secret, len(list))
	for i, s := range list {
		if secrets[i], err = signing.RawSecret([]byte(s)); err != nil {
			return nil, badSecret(err)
		}
	}
	switch scheme {
	case "purple-wolf":
		return signing.VerifyPurpleWolf(secrets, r.get("X-PurpleWolf-Signature"), r.get("X-PurpleWolf-Timestamp"), r.body, now, tolerance), nil
	case "github":
		return signing.VerifyGitHub(secrets, r.get(signing.GitHubSignature), r.body), nil
	case "stripe":
		return signing.VerifyStripe(secrets, r.get(signing.StripeSignature), r.body, now, tolerance), nil
	case "shopify":
		return signing.VerifyShopify(secrets, r.get(signing.ShopifySignature), r.body), nil
	case "slack":
		return signing.VerifySlack(secrets, r.get(signing.SlackSignature), r.get(signing.SlackTimestamp), r.body, now, tolerance), nil
	}
	return nil, usage("unknown scheme; it must be standard, purple-wolf, github, stripe, shopify or slack")
}

// verified says the verdict.
func (c *cmd) verified(r *captured, verdict error, signatureRight bool) error {
	reason, advice := "", ""
	if verdict != nil {
		reason = whyNot(verdict)
	}
	switch {
	case verdict != nil && signatureRight:
		advice = "the signature itself is right; --tolerance 0 leaves the time out"
	case errors.Is(verdict, signing.ErrNoMatch):
		advice = "the body must be the raw bytes that arrived, and the secret this endpoint's"
	}
	if c.json {
		err := c.out.value(struct {
			Valid     bool   `json:"valid"`
			Signature bool   `json:"signature_matches"`
			Reason    string `json:"reason,omitempty"`
			Bytes     int    `json:"body_bytes"`
			Note      string `json:"note,omitempty"`
		}{verdict == nil, signatureRight, reason, len(r.body), r.note})
		if err != nil {
			return err
		}
	} else {
		if verdict == nil {
			c.out.line("%s  the signature matches the body of %d bytes", c.out.paint(green, "valid"), len(r.body))
		} else {
			c.out.line("%s  %s", c.out.paint(red, "refused"), reason)
		}
		for _, s := range []string{advice, r.note} {
			if s != "" {
				c.out.line("  %s", s)
			}
		}
	}
	if verdict != nil {
		return &exitError{code: exitRefused, err: errSilent}
	}
	return nil
}
