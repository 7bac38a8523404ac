package api

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/santhosh-tekuri/jsonschema/v6/kind"

	"github.com/surehook/surehook"
	"github.com/surehook/surehook/internal/fanout"
)

// catalogue keeps the compiled schemas of the types whose data is validated, and
// which types require a permission.
type catalogue struct {
	store surehook.Catalogue
	now   func() time.Time
	log   *slog.Logger

	mu   sync.Mutex // held while the store is read
	snap atomic.Pointer[schemas]
}

// schemas is the catalogue as of one moment. A type whose schema doesn't compile
// has a nil one.
type schemas struct {
	at     time.Time
	byType map[string]*jsonschema.Schema
	needs  []need
}

// need is the permission that a type requires of who subscribes to it.
type need struct{ typ, perm string }

const catalogueAge = 5 * time.Second

func newCatalogue(store surehook.Catalogue, now func() time.Time, log *slog.Logger) *catalogue {
	return &catalogue{store: store, now: now, log: log}
}

// forget makes the next event read the catalogue again. It waits for a reading
// that began before the change.
func (k *catalogue) forget() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.snap.Store(nil)
}

// current gives the catalogue, at most catalogueAge old. One caller reads it
// again while the others go on with the old one; when it can't be read, all do.
func (k *catalogue) current(ctx context.Context) (*schemas, error) {
	s := k.snap.Load()
	if s != nil && k.now().Sub(s.at) < catalogueAge {
		return s, nil
	}
	if s == nil {
		k.mu.Lock()
	} else if !k.mu.TryLock() {
		return s, nil
	}
	defer k.mu.Unlock()
	if again := k.snap.Load(); again != nil && again != s {
		return again, nil
	}
	rows, err := k.store.EventTypes(context.WithoutCancel(ctx))
	if err != nil {
		if s == nil {
			return nil, err
		}
		k.log.Warn("the catalogue couldn't be read again", "error", err)
		s = &schemas{at: k.now(), byType: s.byType, needs: s.needs}
		k.snap.Store(s)
		return s, nil
	}
	s = &schemas{at: k.now(), byType: make(map[string]*jsonschema.Schema)}
	for _, t := range rows {
		if t.Requires != "" {
			s.needs = append(s.needs, need{t.Name, t.Requires})
		}
		if !t.Validate {
			continue
		}
		if s.byType[t.Name], err = compileSchema(t.Schema); err != nil {
			k.log.Error("a stored schema can't be used; its events are refused", "event_type", t.Name, "error", err)
		}
	}
	k.snap.Store(s)
	return s, nil
}

// permit refuses types, by their patterns, that require a permission which the key
// lacks. A platform key with admin could make one that has it.
func (k *catalogue) permit(ctx context.Context, c *call, patterns []string) error {
	if c.may(surehook.PermAdmin) {
		return nil
	}
	s, err := k.current(ctx)
	if err != nil {
		return err
	}
	for _, n := range s.needs {
		if !c.may(n.perm) && fanout.MatchesType(patterns, n.typ) {
			return &denied{required: n.perm}
		}
	}
	return nil
}

// check refuses data that its type's schema refuses. Numbers are compared as
// they are written, whatever their size.
func (k *catalogue) check(ctx context.Context, typ string, data []byte) error {
	s, err := k.current(ctx)
	if err != nil {
		return err
	}
	schema, ok := s.byType[typ]
	switch {
	case !ok || len(data) == 0:
		return nil
	case schema == nil:
		return surehook.Errorf(surehook.Internal, "the schema of this event type can't be used")
	case hugeNumber(data):
		return surehook.Invalid("data", "holds a number that is too large to be validated")
	}
	v, err := jsonschema.UnmarshalJSON(bytes.NewReader(data))
	if err != nil {
		return surehook.Invalid("data", "must be one JSON value")
	}
	return refusal(schema.Validate(v))
}

// refusal names the places that a schema refused, never the values there.
func refusal(err error) error {
	if err == nil {
		return nil
	}
	top, ok := errors.AsType[*jsonschema.ValidationError](err)
	if !ok {
		return surehook.Invalid("data", "doesn't fit the event type's schema")
	}
	var d decoder
	leaves(top, &d)
	return d.err()
}

func leaves(v *jsonschema.ValidationError, d *decoder) {
	if len(v.Causes) > 0 {
		for _, c := range v.Causes {
			leaves(c, d)
		}
		return
	}
	path := place(v.InstanceLocation)
	if r, ok := v.ErrorKind.(*kind.Required); ok {
		for _, name := range r.Missing {
			d.refuse(path+"."+name, "is required by the event type's schema")
		}
		return
	}
	message := "doesn't fit the event type's schema"
	if words := v.ErrorKind.KeywordPath(); len(words) > 0 {
		message += " (" + strings.Join(words, "/") + ")"
	}
	d.refuse(path, message)
}

// place writes a JSON pointer's tokens as the other paths are written.
func place(tokens []string) string {
	var path strings.Builder
	path.WriteString("data")
	for _, t := range tokens {
		if t != "" && strings.Trim(t, "0123456789") == "" {
			path.WriteString("[" + t + "]")
		} else {
			path.WriteString("." + t)
		}
	}
	return path.String()
}

// Validation computes with exact fractions: 1e999999999 would be a number of a
// billion digits.
const (
	maxDigits   = 1000
	maxExponent = 3 // digits
)

// hugeNumber tells whether JSON text holds a number that is costly to compute
// with.
func hugeNumber(data []byte) bool {
	for i := 0; i < len(data); {
		switch c := data[i]; {
		case c == '"':
			s := scanner{b: data, i: i}
			if s.str() != nil {
				return false // not JSON; that is found elsewhere
			}
			i = s.i
		case c >= '0' && c <= '9':
			end := i
			for end < len(data) && bytes.IndexByte([]byte("0123456789.eE+-"), data[end]) >= 0 {
				end++
			}
			number := data[i:end]
			e := bytes.IndexAny(number, "eE")
			if len(number) > maxDigits || (e >= 0 && len(bytes.TrimLeft(number[e+1:], "+-0")) > maxExponent) {
				return true
			}
			i = end
		default:
			i++
		}
	}
	return false
}
