package conformance

import (
	"crypto/rand"
	"encoding/base64"
	"encoding/hex"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
)

const (
	tolerance = 5 * time.Minute
	lost      = "real events are refused, and lost when the sender gives up"
	forged    = "anybody can send events in your sender's name"
	replayed  = "whoever captures one request can send it again, later and as often as they like"
	doubled   = "what an event causes happens twice: a second charge, a second mail"
	tooMuch   = 64 << 20 // bytes that nobody should read from a stranger
)

// one makes a case of a single request.
func one(name string, w want, what, risk string, m func(k *kit) message) testCase {
	c := testCase{name: name, what: what, risk: risk, want: w, steps: func(k *kit) []message { return []message{m(k)} }}
	if w == accept {
		c.effects = 1
	}
	return c
}

// fresh is an event of so much data that is right.
func fresh(data string) func(k *kit) message {
	return func(k *kit) message { return k.event(data) }
}

// altered is a right event, and then something done to it.
func altered(change func(k *kit, m message) message) func(k *kit) message {
	return func(k *kit) message { return change(k, k.event(`{"n":1}`)) }
}

// at is an event of another time, rightly signed for it.
func at(off time.Duration) func(k *kit) message {
	return stamped(func(k *kit) string { return k.stamp(off) })
}

// stamped is an event signed for the very text of a timestamp.
func stamped(ts func(k *kit) string) func(k *kit) message {
	return func(k *kit) message {
		id := k.scheme.newID(k.now())
		return k.signed(k.signers[0], id, ts(k), k.scheme.body(id, `{"n":1}`))
	}
}

// accepted are right in every scheme.
func accepted() []testCase {
	return []testCase{
		one("plain", accept, "a small event, rightly signed", lost, fresh(`{"n":1}`)),
		one("non-ascii", accept, "text outside ASCII, as UTF-8", lost+": the body was decoded on the way to the check", fresh(`{"name":"Łódź 🚀 日本"}`)),
		one("raw body", accept, "white space, escapes and numbers that a JSON library would write otherwise", lost+": it checks a body that was parsed and written again",
			fresh(`{ "b" : 1.0,  "a":[1e2, "\u00e9\/<&>", 12345678901234567890] ,"a2":"\t" }`)),
		one("trailing newline", accept, "a line break at the body's end, which is signed too", lost+": the body was trimmed",
			func(k *kit) message {
				id := k.scheme.newID(k.now())
				return k.signed(k.signers[0], id, k.stamp(0), append(k.scheme.body(id, `{"n":1}`), "\r\n"...))
			}),
		one("large", accept, "a body of 200 KiB", lost+": its bound is too low", fresh(`"`+strings.Repeat("é", 100<<10)+`"`)),
		one("chunked", accept, "a body in chunks, without Content-Length", lost+" when a proxy in between sends chunks",
			altered(func(_ *kit, m message) message { m.chunked = true; return m })),
		one("slow", accept, "a body that arrives in two parts", lost+": it reads the first part only",
			altered(func(_ *kit, m message) message { m.slow = true; return m })),
		one("header case", accept, "header names in capitals", lost+": header names are compared with their case", altered(func(k *kit, m message) message {
			for i := range m.header {
				m.header[i][0] = strings.ToUpper(m.header[i][0])
			}
			return m
		})),
		one("four minutes old", accept, "a timestamp 240 s ago: within the custom of 300 s", lost+" when clocks differ a little", at(-240*time.Second)),
		one("four minutes ahead", accept, "a timestamp 240 s ahead", lost+" when clocks differ a little", at(240*time.Second)),
		{name: "rotation", what: "signed with the secret before, while both are valid", risk: lost + " during a rotation", want: accept, effects: 1, needs: "rotation",
			steps: func(k *kit) []message {
				id := k.scheme.newID(k.now())
				return []message{k.signed(k.signers[1], id, k.stamp(0), k.scheme.body(id, `{"n":1}`))}
			}},
	}
}

// repeated are events that come more than once.
func repeated() []testCase {
	return []testCase{
		{name: "replayed", what: "the same request twice, byte for byte", risk: doubled, want: again, effects: 1,
			steps: func(k *kit) []message { m := k.event(`{"n":1}`); return []message{m, m} }},
		{name: "retried", what: "the same event again, with a fresh timestamp and signature", risk: doubled, want: again, effects: 1,
			steps: func(k *kit) []message {
				m := k.event(`{"n":1}`)
				return []message{k.signed(k.signers[0], m.get(k.scheme.id), k.stamp(-30*time.Second), m.body), m}
			}},
		{name: "five at once", what: "the same event five times at the same moment", risk: doubled, want: once, effects: 1, together: true,
			steps: func(k *kit) []message { m := k.event(`{"n":1}`); return []message{m, m, m, m, m} }},
		{name: "refused, then right", what: "a tampered request, and then the real one of the same id", risk: "a stranger who knows an id can keep the real event away",
			want: accept, first: refuse, effects: 1, steps: func(k *kit) []message {
				m := k.event(`{"n":1}`)
				return []message{m.bodied(string(m.body) + " "), m}
			}},
	}
}

// refused are wrong in every scheme.
func refused() []testCase {
	return []testCase{
		one("unsigned", refuse, "no signature header at all", forged, altered(func(k *kit, m message) message {
			return m.without(k.scheme.id).without(k.scheme.ts).without(k.scheme.sig)
		})),
		one("no id", refuse, "the id's header is missing", doubled+": without an id no duplicate is recognised", altered(func(k *kit, m message) message { return m.without(k.scheme.id) })),
		one("no timestamp", refuse, "the timestamp's header is missing", replayed, altered(func(k *kit, m message) message { return m.without(k.scheme.ts) })),
		one("no signature", refuse, "the signature's header is missing", forged, altered(func(k *kit, m message) message { return m.without(k.scheme.sig) })),
		one("empty signature", refuse, "the signature's header is empty", forged, altered(func(k *kit, m message) message { return m.with(k.scheme.sig, "") })),
		one("tampered", refuse, "one byte of the body was changed", "whoever sits in between can change an event", altered(func(_ *kit, m message) message {
			return m.bodied(strings.Replace(string(m.body), `:1}`, `:9}`, 1))
		})),
		one("truncated", refuse, "the body's last byte is missing", "an event that was cut off is taken for whole", altered(func(_ *kit, m message) message { return m.bodied(string(m.body[:len(m.body)-1])) })),
		one("appended", refuse, "a line break was added to the body", "the body is trimmed before the check: it isn't the raw one", altered(func(_ *kit, m message) message { return m.bodied(string(m.body) + "\n") })),
		one("re-serialised", refuse, "the same JSON, written with other white space", "the check is over a body that was parsed and written again: what was signed isn't what was checked",
			altered(func(_ *kit, m message) message { return m.bodied(strings.ReplaceAll(string(m.body), `","`, `", "`)) })),
		one("tampered in chunks", refuse, "a changed body, in chunks", forged+", where chunks go another way", altered(func(_ *kit, m message) message {
			m = m.bodied(string(m.body) + " ")
			m.chunked = true
			return m
		})),
		one("lossy", refuse, "a character was replaced with a byte that decodes to the same", "the check is over decoded text: bytes can be changed behind it",
			func(k *kit) message {
				m := k.event("\"\uFFFD\"")
				return m.bodied(strings.Replace(string(m.body), "\uFFFD", "\xff", 1))
			}),
		one("other time", refuse, "the timestamp was moved by a second", replayed, altered(func(k *kit, m message) message { return m.with(k.scheme.ts, k.stamp(-time.Second)) })),
		one("stale", refuse, "rightly signed six minutes ago", replayed, at(-tolerance-time.Minute)),
		one("very stale", refuse, "rightly signed in 1970", replayed, stamped(func(*kit) string { return "1" })),
		one("future", refuse, "rightly signed for six minutes from now", "a request can be captured now and used later", at(tolerance+time.Minute)),
		one("milliseconds", refuse, "a timestamp in milliseconds", replayed, stamped(func(k *kit) string { return strconv.FormatInt(k.now().UnixMilli(), 10) })),
		one("no number", refuse, "a timestamp that isn't a number", forged, altered(func(k *kit, m message) message { return m.with(k.scheme.ts, "yesterday") })),
		one("odd digit", refuse, "a timestamp of a superscript digit, which some libraries call a digit", forged, altered(func(k *kit, m message) message { return m.with(k.scheme.ts, "\xb2") })),
		one("enormous time", refuse, "a timestamp of forty digits", replayed, stamped(func(*kit) string { return strings.Repeat("9", 40) })),
		one("negative time", refuse, "a negative timestamp", replayed, stamped(func(*kit) string { return "-1" })),
	}
}

// wronglySigned are refused in every scheme too.
func wronglySigned() []testCase {
	return []testCase{
		one("other secret", refuse, "signed with a secret that isn't yours", forged, func(k *kit) message {
			id := k.scheme.newID(k.now())
			return k.signed(k.scheme.mac([]byte("a secret of somebody else's, of 40 bytes")), id, k.stamp(0), k.scheme.body(id, `{"n":1}`))
		}),
		one("secret of the request", refuse, "signed with a secret that isn't yours, and which the request names", forged+": the key is chosen by the request", func(k *kit) message {
			key := make([]byte, 32)
			_, _ = rand.Read(key) // it never fails
			id, text := k.scheme.newID(k.now()), "whsec_"+base64.StdEncoding.EncodeToString(key)
			if k.o.Profile == "purple-wolf" {
				key = []byte(text)
			}
			m := k.signed(k.scheme.mac(key), id, k.stamp(0), k.scheme.body(id, `{"secret":"`+text+`","key":"`+text+`"}`))
			m.header = slices.Clone(m.header)
			for _, name := range []string{"webhook-secret", "webhook-key", "webhook-key-id", "x-webhook-secret", "x-secret", "x-key-id", "x-kid", "key-id", "secret"} {
				m.header = append(m.header, [2]string{name, text})
			}
			m.header = append(m.header, [2]string{"Authorization", "Bearer " + text})
			m.query = url.Values{"secret": {text}, "key": {text}, "key_id": {text}, "kid": {text}}
			return m
		}),
		{name: "retired secret", what: "signed with a secret that is no longer valid", risk: forged + ": whoever has a secret of yours that leaked still can", want: refuse, needs: "retired",
			steps: func(k *kit) []message {
				id := k.scheme.newID(k.now())
				return []message{k.signed(k.retired, id, k.stamp(0), k.scheme.body(id, `{"n":1}`))}
			}},
		one("empty secret", refuse, "signed with an empty key", forged+": the secret was never set, and nobody noticed", func(k *kit) message {
			id := k.scheme.newID(k.now())
			return k.signed(k.scheme.mac(nil), id, k.stamp(0), k.scheme.body(id, `{"n":1}`))
		}),
		one("signature of nothing", refuse, "the right signature of an empty body", "the body had been read before the check, which saw none", func(k *kit) message {
			m := k.event(`{"n":1}`)
			return m.with(k.scheme.sig, k.signers[0](m.get(k.scheme.id), m.get(k.scheme.ts), nil))
		}),
		one("cut signature", refuse, "the first half of the right signature", forged, altered(func(k *kit, m message) message {
			sig := m.get(k.scheme.sig)
			return m.with(k.scheme.sig, sig[:len(sig)/2])
		})),
		one("altered signature", refuse, "one character of the signature was changed", forged, altered(func(k *kit, m message) message {
			sig := []byte(m.get(k.scheme.sig))
			sig[len(sig)-10] ^= 1 // 0 and 1, A and @: another character, and another value
			return m.with(k.scheme.sig, string(sig))
		})),
		one("odd bytes", refuse, "a signature of bytes outside ASCII", forged, altered(func(k *kit, m message) message {
			sig := m.get(k.scheme.sig)
			return m.with(k.scheme.sig, sig[:7]+strings.Repeat("\xe9", len(sig)-7))
		})),
		one("no scheme", refuse, "the right signature without its version", forged, altered(func(k *kit, m message) message {
			return m.with(k.scheme.sig, m.get(k.scheme.sig)[strings.IndexAny(m.get(k.scheme.sig), ",=")+1:])
		})),
		one("huge", bounded, "an unsigned body that claims to be a tebibyte", "anybody can fill its memory", func(k *kit) message {
			m := k.event(`{"n":1}`)
			m.endless = tooMuch
			return m.without(k.scheme.sig)
		}),
		one("huge in chunks", bounded, "an unsigned body without an end, in chunks", "anybody can fill its memory", func(k *kit) message {
			m := k.event(`{"n":1}`)
			m.endless, m.chunked = tooMuch, true
			return m.without(k.scheme.sig)
		}),
	}
}

// standing comes last.
func standing() testCase {
	return one("still standing", accept, "a right event, after all that", "something before has broken it", fresh(`{"n":2}`))
}

func standardCases() []testCase {
	var cases []testCase
	for _, part := range [][]testCase{accepted(), standardAccepted(), repeated(), refused(), wronglySigned(), standardRefused(), {standing()}} {
		cases = append(cases, part...)
	}
	return cases
}

func purpleWolfCases() []testCase {
	var cases []testCase
	for _, part := range [][]testCase{accepted(), repeated(), purpleWolfRepeated(), refused(), wronglySigned(), purpleWolfRefused(), {standing()}} {
		cases = append(cases, part...)
	}
	return cases
}

// beside puts another signature before the right one.
func beside(other string) func(k *kit) message {
	return altered(func(k *kit, m message) message { return m.with(k.scheme.sig, other+" "+m.get(k.scheme.sig)) })
}

const wrongV1 = "v1,AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA="

func standardAccepted() []testCase {
	return []testCase{
		one("multi-signature", accept, "a wrong signature before the right one, as in a rotation", lost+" while the sender rotates its secret", beside(wrongV1)),
		one("unknown version", accept, "a signature of an unknown version before the right one", lost+" when the sender adds a version", beside("v9,AAAA")),
		one("v1a beside", accept, "an asymmetric signature before the right one", lost+" when the sender signs both ways",
			beside("v1a,"+strings.Repeat("A", 86)+"==")),
		{name: "both secrets", what: "signed with both secrets, the one before first", risk: lost + " during a rotation", want: accept, effects: 1, needs: "rotation",
			steps: func(k *kit) []message {
				m := k.event(`{"n":1}`)
				id, ts := m.get(k.scheme.id), m.get(k.scheme.ts)
				return []message{m.with(k.scheme.sig, k.signers[1](id, ts, m.body)+" "+k.signers[0](id, ts, m.body))}
			}},
		signedBody("binary", "a signed body that isn't UTF-8: taken, or refused for what it is, but not called wrongly signed", "the check is over decoded text, not over the bytes",
			"\x00\x01\xfe\xff{", "application/octet-stream"),
		signedBody("empty", "a signed body of no bytes", lost, "", "application/json"),
		signedBody("form", "a signed body that claims to be a form", lost+": a framework ate the body as a form before the check", "a=1&b=%C5%81+x", "application/x-www-form-urlencoded"),
	}
}

// signedBody is a right request whose body isn't an event.
func signedBody(name, what, risk, body, contentType string) testCase {
	c := one(name, byBytes, what, risk, func(k *kit) message {
		return k.signed(k.signers[0], k.scheme.newID(k.now()), k.stamp(0), []byte(body)).with("Content-Type", contentType)
	})
	c.effects = anyNumber
	return c
}

func standardRefused() []testCase {
	return []testCase{
		one("other id", refuse, "the id was changed", "whoever captures a request can pass it off as a new event: "+doubled, altered(func(k *kit, m message) message { return m.with(k.scheme.id, k.scheme.newID(k.now())) })),
		one("shifted", refuse, "id, time and body cut at other dots, which sign the same bytes", "whoever captures a request whose body they had a hand in can make another of it", func(k *kit) message {
			id, ts, later := k.scheme.newID(k.now()), k.stamp(-time.Second), k.stamp(0)
			body := k.scheme.body(id, `{"n":1}`)
			m := k.signed(k.signers[0], id, ts, append([]byte(later+"."), body...))
			m.body = body
			return m.with(k.scheme.id, id+"."+ts).with(k.scheme.ts, later)
		}),
		one("only an unknown version", refuse, "a signature of an unknown version alone", forged, altered(func(k *kit, m message) message {
			return m.with(k.scheme.sig, "v9,"+strings.TrimPrefix(m.get(k.scheme.sig), "v1,"))
		})),
		hmacOnly(one("secret not decoded", refuse, "signed with the secret's text, not with what it encodes", "it takes another key than the one that was agreed", func(k *kit) message {
			id := k.scheme.newID(k.now())
			return k.signed(k.scheme.mac([]byte(k.o.Secrets[0])), id, k.stamp(0), k.scheme.body(id, `{"n":1}`))
		})),
		one("hex", refuse, "a signature in hex", forged, altered(func(k *kit, m message) message { return m.with(k.scheme.sig, "v1,"+strings.Repeat("ab", 32)) })),
		one("sixty signatures", refuse, "sixty wrong signatures", forged, altered(func(k *kit, m message) message {
			return m.with(k.scheme.sig, strings.TrimSpace(strings.Repeat(wrongV1+" ", 60)))
		})),
		one("swapped case", refuse, "the right signature with its capitals and small letters swapped", "signatures are compared without their case: far fewer guesses hit",
			altered(func(k *kit, m message) message {
				version, sig, _ := strings.Cut(m.get(k.scheme.sig), ",")
				return m.with(k.scheme.sig, version+","+swapped(sig))
			})),
		one("no comma", refuse, "signatures without a comma, and commas without a signature", forged, altered(func(k *kit, m message) message { return m.with(k.scheme.sig, "v1 , ,, v1, v1") })),
	}
}

// swapped makes capitals of small letters, and small letters of capitals.
func swapped(s string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsLetter(r) {
			return r ^ 0x20
		}
		return r
	}, s)
}

func hmacOnly(c testCase) testCase {
	c.needs = "hmac"
	return c
}

func purpleWolfRepeated() []testCase {
	return []testCase{
		{name: "other id", what: "the same request again under another id in the header, which isn't signed",
			risk: doubled + ": duplicates must be recognised by the event_id in the body", want: nothing, effects: 1, steps: func(k *kit) []message {
				m := k.event(`{"n":1}`)
				return []message{m, m.with(k.scheme.id, k.scheme.newID(k.now()))}
			}},
	}
}

func purpleWolfRefused() []testCase {
	return []testCase{
		one("another major", refuse, "schema purple-wolf.audit/v2, rightly signed", "fields that mean something else are taken for what they were", func(k *kit) message {
			id := k.scheme.newID(k.now())
			return k.signed(k.signers[0], id, k.stamp(0), envelope("purple-wolf.audit/v2", id, `{"n":1}`)).with("X-PurpleWolf-Schema", "purple-wolf.audit/v2")
		}),
		one("not JSON", refuse, "a signed body that isn't JSON", "it fails on it, and the relay tries again and again", func(k *kit) message {
			return k.signed(k.signers[0], k.scheme.newID(k.now()), k.stamp(0), []byte("\xff\x00{"))
		}),
		one("sha1", refuse, "a signature of another algorithm", forged, altered(func(k *kit, m message) message {
			return m.with(k.scheme.sig, "sha1="+strings.TrimPrefix(m.get(k.scheme.sig), "sha256="))
		})),
		one("time not signed", refuse, "the signature of the body alone", replayed, func(k *kit) message {
			m := k.event(`{"n":1}`)
			key, _ := k.scheme.key(k.o.Secrets[0]) // it was read before
			return m.with(k.scheme.sig, "sha256="+hex.EncodeToString(sum(key, "", m.body)))
		}),
	}
}
