package row

import (
	"crypto/rand"
	"encoding/base32"
	"strings"
)

const aliasTail = 16 // characters that Alias adds, after a colon

// Alias makes the webhook-id of an event whose id another tenant's event had
// before. It can't be guessed: who could might take it first.
func Alias(id string) string {
	var b [10]byte
	rand.Read(b[:])
	return id + ":" + strings.ToLower(base32.HexEncoding.EncodeToString(b[:]))
}

// Unalias gives the id that something is an alias of, if it is one by its looks.
func Unalias(alias string) (id string, ok bool) {
	at := len(alias) - aliasTail - 1
	if at < 1 || alias[at] != ':' {
		return "", false
	}
	return alias[:at], true
}
