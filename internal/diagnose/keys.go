package diagnose

import (
	"encoding/base64"
	"encoding/hex"
	"strings"

	"github.com/surehook/surehook/signing"
)

// keyAxis has each secret as it is, and then the slips with it.
func keyAxis(in Input, s scheme) []attempt {
	var asIs, slips []attempt
	seen := map[string]bool{}
	add := func(key []byte, what *Cause) {
		if len(key) == 0 || seen[string(key)] {
			return
		}
		seen[string(key)] = true
		a := attempt{order: orderKey, what: what, test: s.withMAC(key)}
		if what == nil {
			asIs = append(asIs, a)
		} else {
			slips = append(slips, a)
		}
	}
	for _, secret := range in.Secrets {
		if s.textKey {
			add([]byte(secret), nil)
			continue
		}
		if k, err := Key(secret); err == nil {
			if symmetric, ok := k.(signing.Secret); ok {
				add(symmetric.Bytes(), nil)
			} else {
				asIs = append(asIs, attempt{order: orderKey, test: withKey(k, in.Now)})
			}
		}
	}
	for _, secret := range in.Secrets {
		if s.textKey {
			textSlips(secret, add)
		} else {
			secretSlips(secret, add)
		}
	}
	return append(asIs, slips...)
}

const (
	prefix = "whsec_"
	whole  = "copy the secret as it was shown: whsec_ and what follows, nothing else"
)

// secretSlips are those with a whsec_ secret.
func secretSlips(secret string, add func([]byte, *Cause)) {
	clean := strings.Trim(strings.TrimSpace(secret), `"'`)
	bare := clean
	for strings.HasPrefix(bare, prefix) {
		bare = bare[len(prefix):]
	}
	mended := decoded(bare)
	switch {
	case clean != secret:
		add(mended, &Cause{"secret_space", "white space or quotes are around the secret", "take them away; a file's last line break counts too"})
	case bare == clean:
		add(mended, &Cause{"secret_prefix_missing", "the secret lacks its beginning whsec_", whole})
	case strings.HasPrefix(clean, prefix+prefix):
		add(mended, &Cause{"secret_prefix_twice", "the secret begins with whsec_ twice", whole})
	default:
		add(mended, &Cause{"secret_encoding", "the secret isn't standard padded base64; read leniently it fits", whole})
	}
	add(decoded(string(mended)), &Cause{"secret_decoded_twice", "what was signed with is the secret decoded twice", "decode the part after whsec_ once, and use those bytes"})
	add([]byte(bare), &Cause{"secret_not_decoded", "what was signed with is the secret's text after whsec_, not what it encodes", "decode the part after whsec_ from base64 on both sides"})
	add([]byte(clean), &Cause{"secret_whole_text", "what was signed with is the secret's whole text, whsec_ included, as Stripe does", "use the scheme of that sender (--scheme stripe), or decode on both sides"})
	if raw, err := hex.DecodeString(bare); err == nil {
		add(raw, &Cause{"secret_hex", "the secret is in hex", whole})
	}
	add([]byte(base64.StdEncoding.EncodeToString([]byte(bare))), encodedAgain())
	add([]byte(bare+"\n"), lineBreak())
	add(append(mended[:len(mended):len(mended)], '\n'), lineBreak())
}

func encodedAgain() *Cause {
	return &Cause{"secret_encoded_again", "what was signed with is the secret in base64 once more", whole}
}

func lineBreak() *Cause {
	return &Cause{"secret_newline", "what was signed with is the secret and a line break", "the sender's secret has a line break at its end: give it without (printf %s, not echo)"}
}

// textSlips are those where the secret's text is the key.
func textSlips(secret string, add func([]byte, *Cause)) {
	clean := strings.Trim(strings.TrimSpace(secret), `"'`)
	add([]byte(clean), &Cause{"secret_space", "white space or quotes are around the secret", "take them away; a file's last line break counts too"})
	add([]byte(clean+"\n"), lineBreak())
	bare := strings.TrimPrefix(clean, prefix)
	add(decoded(bare), &Cause{"secret_decoded", "what was signed with is the secret decoded from base64, and this scheme takes its text", "for Standard Webhooks give --scheme standard"})
	add([]byte(bare), &Cause{"secret_prefix", "what was signed with is the secret without whsec_", "give the same text to both sides"})
	add([]byte(prefix+clean), &Cause{"secret_prefix_missing", "the secret lacks its beginning whsec_", "the whole text is the key, whsec_ included"})
	if raw, err := hex.DecodeString(clean); err == nil {
		add(raw, &Cause{"secret_hex", "what was signed with is the secret decoded from hex", "give the same text to both sides"})
	}
	add([]byte(base64.StdEncoding.EncodeToString([]byte(clean))), encodedAgain())
}

// decoded reads base64 of either alphabet, padded or not; nil: it isn't.
func decoded(s string) []byte {
	s = strings.TrimRight(strings.NewReplacer("-", "+", "_", "/", "\n", "", "\r", "", " ", "").Replace(s), "=")
	b, err := base64.RawStdEncoding.DecodeString(s)
	if err != nil {
		return nil
	}
	return b
}
