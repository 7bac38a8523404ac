package api

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"sync"
	"time"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/surehook/surehook"
)

// catalogue keeps the compiled schemas of the types whose data is validated.
type catalogue struct {
	store surehook.Catalogue
	now   func() time.Time

	mu      sync.Mutex
	at      time.Time
	schemas map[string]*jsonschema.Schema
}

const catalogueAge = 5 * time.Second

func newCatalogue(store surehook.Catalogue, now func() time.Time) *catalogue {
	return &catalogue{store: store, now: now}
}

func (k *catalogue) forget() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.at = time.Time{}
}

func (k *catalogue) schema(ctx context.Context, typ string) (*jsonschema.Schema, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.now().Sub(k.at) < catalogueAge {
		return k.schemas[typ], nil
	}
	rows, err := k.store.EventTypes(ctx)
	if err != nil {
		return nil, err
	}
	schemas := make(map[string]*jsonschema.Schema)
	for _, t := range rows {
		if !t.Validate {
			continue
		}
		if schemas[t.Name], err = compileSchema(t.Schema); err != nil {
			return nil, surehook.Errorf(surehook.Internal, "a stored schema can't be compiled").WithCause(err)
		}
	}
	k.schemas, k.at = schemas, k.now()
	return schemas[typ], nil
}

// check refuses data that its type's schema refuses. Numbers are compared as
// they are written, whatever their size.
func (k *catalogue) check(ctx context.Context, typ string, data []byte) error {
	schema, err := k.schema(ctx, typ)
	if err != nil || schema == nil || len(data) == 0 {
		return err
	}
	v, err := jsonschema.UnmarshalJSON(bytes.NewReader(data))
	if err != nil {
		return surehook.Invalid("data", "must be one JSON value")
	}
	err = schema.Validate(v)
	if err == nil {
		return nil
	}
	where := "data"
	if ve, ok := errors.AsType[*jsonschema.ValidationError](err); ok {
		for len(ve.Causes) > 0 {
			ve = ve.Causes[0]
		}
		where = clip(strings.Join(append([]string{"data"}, ve.InstanceLocation...), "."))
		return surehook.Invalid(where, "doesn't fit the event type's schema ("+strings.Join(ve.ErrorKind.KeywordPath(), "/")+")")
	}
	return surehook.Invalid(where, "doesn't fit the event type's schema")
}

// noRemote keeps schemas from reading files or fetching URLs.
type noRemote struct{}

func (noRemote) Load(string) (any, error) { return nil, errors.New("remote references aren't fetched") }

func compileSchema(raw []byte) (*jsonschema.Schema, error) {
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(raw))
	if err != nil {
		return nil, errors.New("it isn't JSON")
	}
	c := jsonschema.NewCompiler()
	c.UseLoader(noRemote{})
	const name = "schema.json"
	if err := c.AddResource(name, doc); err != nil {
		return nil, errors.New("it can't be read as a schema")
	}
	schema, err := c.Compile(name)
	if err != nil {
		return nil, errors.New("it doesn't compile")
	}
	return schema, nil
}
