package cli

import (
	"errors"
	"slices"
	"strings"

	"github.com/spf13/pflag"

	"github.com/surehook/surehook/client"
)

// stored reads what the flags that weren't given are to keep. What isn't there
// yet has nothing to keep.
func stored[T any](f *pflag.FlagSet, flags []string, get func() (T, error)) (T, error) {
	var none T
	if !slices.ContainsFunc(flags, func(name string) bool { return !f.Changed(name) }) {
		return none, nil
	}
	v, err := get()
	p, ok := errors.AsType[*client.Problem](err)
	switch {
	case ok && p.Status == 404:
		return none, nil
	case ok && p.Status == 403 && p.Details.Required != "":
		return none, fail(exitRefused, "use a key that may read, too, or give all of --"+strings.Join(flags, ", --"),
			"what isn't given is to stay, and can't be looked up: %s", p.Error())
	}
	return v, err
}

// keep puts what is stored where a flag wasn't given: the API replaces the whole
// thing, and nothing is to go without a word.
func keep[T any](f *pflag.FlagSet, flag string, to *T, stored T) {
	if !f.Changed(flag) {
		*to = stored
	}
}
