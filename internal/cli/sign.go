package cli

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/surehook/surehook/signing"
)

const maxBody = 64 << 20 // of a body to be signed or verified

// secretFlags is where a secret comes from: not only the command line, which
// other users of the machine can read.
type secretFlags struct{ text, file string }

func (s *secretFlags) add(f *pflag.FlagSet) {
	f.StringVar(&s.text, "secret", "", "signing secret, or several with commas between; other users can see it here [SUREHOOK_SECRET]")
	f.StringVar(&s.file, "secret-file", "", "file with the signing secret, or several, one a line; - is standard input")
}

// read gives the secrets as text.
func (s *secretFlags) read(c *cmd) ([]string, error) {
	text := s.text
	switch {
	case text != "" && s.file != "":
		return nil, usage("give --secret or --secret-file, not both")
	case s.file == "-":
		raw, err := io.ReadAll(io.LimitReader(c.env.Stdin, 64<<10))
		if err != nil {
			return nil, fmt.Errorf("reading the secret: %w", err)
		}
		text = string(raw)
	case s.file != "":
		raw, err := os.ReadFile(s.file)
		if err != nil {
			return nil, fmt.Errorf("reading the secret: %w", err)
		}
		text = string(raw)
	case text == "":
		text = c.env.getenv("SUREHOOK_SECRET")
	}
	list := strings.FieldsFunc(text, func(r rune) bool { return r == ',' || r == '\n' || r == '\r' })
	if len(list) == 0 {
		return nil, usage("a secret is missing: set SUREHOOK_SECRET, or give --secret-file or --secret")
	}
	return list, nil
}

// keys reads secrets that can sign: whsec_… (v1) or whsk_… (v1a).
func keys(list []string) ([]signing.Key, error) {
	out := make([]signing.Key, len(list))
	for i, s := range list {
		var err error
		if s = strings.TrimSpace(s); strings.HasPrefix(s, "whsk_") {
			out[i], err = signing.ParsePrivateKey(s)
		} else {
			out[i], err = signing.ParseSecret(s)
		}
		if err != nil {
			return nil, badSecret(err)
		}
	}
	return out, nil
}

// badSecret says what is wrong with a secret. The library's own text begins with
// the library's name, as Go programs want it.
func badSecret(err error) error {
	if e, ok := errors.AsType[*signing.KeyError](err); ok {
		return usage("the secret can't be used: bad %s: %s: %s", e.Kind, e.Reason, e.Detail)
	}
	return usage("the secret can't be used: %s", whyNot(err))
}

// verdicts are the library's errors in the words that people see.
var verdicts = []struct {
	err   error
	words string
}{
	{signing.ErrMissingHeader, "a signature header is missing"},
	{signing.ErrMalformedID, "the webhook id holds a dot"},
	{signing.ErrMalformedTimestamp, "the timestamp is not a number of Unix seconds"},
	{signing.ErrTooOld, "the timestamp is too old"},
	{signing.ErrTooNew, "the timestamp is too far in the future"},
	{signing.ErrNoKnownVersion, "no signature of a version that the keys can verify"},
	{signing.ErrNoMatch, "no signature matches"},
	{signing.ErrTolerance, "the tolerance must be positive"},
	{signing.ErrNoKey, "no key"},
	{signing.ErrTooManyKeys, "too many keys"},
}

// whyNot words an error of the library.
func whyNot(err error) string {
	for _, v := range verdicts {
		if errors.Is(err, v.err) {
			return v.words
		}
	}
	return strings.TrimPrefix(strings.TrimPrefix(err.Error(), "receiver: "), "signing: ")
}

func (c *cmd) signCmd() *cobra.Command {
	var secret secretFlags
	var id, at string
	sign := &cobra.Command{
		Use:   "sign --id ID [--timestamp UNIX] < body",
		Short: "Sign a body: the three headers of Standard Webhooks",
		Long: `Sign the body on standard input, byte for byte, and print the three headers of
Standard Webhooks. A whsec_… secret signs as v1, a whsk_… key as v1a; with several,
each adds a signature.`,
		Example: "  SUREHOOK_SECRET=whsec_… surehook sign --id evt_1 --timestamp 1674087231 < body.json",
		Args:    exactly(),
		RunE: func(*cobra.Command, []string) error {
			list, err := secret.read(c)
			if err != nil {
				return err
			}
			return c.sign(list, id, at)
		},
	}
	secret.add(sign.Flags())
	sign.Flags().StringVar(&id, "id", "", "webhook-id (required)")
	sign.Flags().StringVar(&at, "timestamp", "", "webhook-timestamp in Unix seconds (default now)")
	_ = sign.MarkFlagRequired("id") // it is declared above
	return sign
}

func (c *cmd) sign(list []string, id, at string) error {
	ks, err := keys(list)
	if err != nil {
		return err
	}
	if id == "" || strings.Contains(id, ".") || strings.ContainsAny(id, "\r\n") {
		return usage("--id must not be empty and must not hold a dot or a line break")
	}
	ts := time.Now().Unix()
	if at != "" {
		if ts, err = strconv.ParseInt(at, 10, 64); err != nil || ts < 0 {
			return usage("--timestamp must be a number of Unix seconds")
		}
	}
	body, err := readBody(c.env.Stdin)
	if err != nil {
		return err
	}
	signer, err := signing.NewSigner(ks...)
	if err != nil {
		return badSecret(err)
	}
	header, stamp := signer.Sign(id, ts, body), strconv.FormatInt(ts, 10)
	if c.json {
		return c.out.value(map[string]string{signing.HeaderID: id, signing.HeaderTimestamp: stamp, signing.HeaderSignature: header})
	}
	_, err = fmt.Fprintf(c.env.Stdout, "%s: %s\n%s: %s\n%s: %s\n", signing.HeaderID, id, signing.HeaderTimestamp, stamp, signing.HeaderSignature, header)
	return err
}

func readBody(r io.Reader) ([]byte, error) {
	body, err := io.ReadAll(io.LimitReader(r, maxBody+1))
	if err != nil {
		return nil, fmt.Errorf("reading the body: %w", err)
	}
	if len(body) > maxBody {
		return nil, errors.New("the body is over 64 MiB")
	}
	return body, nil
}
