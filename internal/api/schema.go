package api

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"regexp/syntax"
	"slices"
	"strconv"
	"strings"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/santhosh-tekuri/jsonschema/v6/kind"
)

// noRemote keeps schemas from reading files or fetching URLs.
type noRemote struct{}

func (noRemote) Load(string) (any, error) { return nil, errors.New("remote references aren't fetched") }

// compileSchema reads a JSON Schema. Its error says what is wrong, and where:
// the place is a JSON pointer into the schema.
func compileSchema(raw []byte) (*jsonschema.Schema, error) {
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(raw))
	if err != nil {
		return nil, errors.New("it isn't JSON")
	}
	if hugeNumber(raw) {
		at, _ := search(doc, nil, func(_ string, v any) bool {
			n, ok := v.(json.Number)
			return ok && hugeNumber([]byte(n))
		})
		return nil, fault(at, "is a number that is too large")
	}
	c := jsonschema.NewCompiler()
	c.UseLoader(noRemote{})
	const name = "schema.json"
	if err := c.AddResource(name, doc); err != nil {
		return nil, explainSchema(doc, err)
	}
	schema, err := c.Compile(name)
	if err != nil {
		return nil, explainSchema(doc, err)
	}
	return schema, nil
}

// explainSchema words what the compiler found. Its own words would show where
// the process runs: it makes references absolute.
func explainSchema(doc any, err error) error {
	switch e := err.(type) { //nolint:errorlint // the compiler gives these as they are
	case *jsonschema.SchemaValidationError:
		if v, ok := errors.AsType[*jsonschema.ValidationError](e.Err); ok {
			return misfits(v)
		}
	case *jsonschema.LoadURLError:
		return fault(reference(doc, e.URL), "refers to another document, and none is fetched: bring it in under $defs")
	case *jsonschema.JSONPointerNotFoundError:
		return fault(reference(doc, e.URL), "refers to a place that isn't in this schema")
	case *jsonschema.AnchorNotFoundError:
		return fault(reference(doc, e.Reference), "refers to an anchor that isn't in this schema")
	case *jsonschema.InvalidRegexError:
		_, at, _ := strings.Cut(e.URL, "#")
		return fault(tokens(at), badPattern(e.Err))
	case *jsonschema.UnsupportedDraftError, *jsonschema.UnsupportedVocabularyError, *jsonschema.InvalidMetaSchemaURLError,
		*jsonschema.MetaSchemaCycleError, *jsonschema.MetaSchemaMismatchError:
		return fault([]string{"$schema"}, "isn't a draft that is known here: 4, 6, 7, 2019-09 and 2020-12 are")
	case *jsonschema.ParseIDError, *jsonschema.DuplicateIDError:
		return errors.New("an $id in it is malformed or given twice")
	case *jsonschema.ParseAnchorError, *jsonschema.DuplicateAnchorError:
		return errors.New("an $anchor in it is malformed or given twice")
	}
	return errors.New("it doesn't compile")
}

func fault(at []string, what string) error { return fmt.Errorf("%s %s", pointer(at), what) }

const maxMisfits = 5 // a schema that is none has one at every place

// misfits tells where a schema isn't what schemas must be.
func misfits(top *jsonschema.ValidationError) error {
	var places []string
	reasons := make(map[string][]string)
	var walk func(v *jsonschema.ValidationError)
	walk = func(v *jsonschema.ValidationError) {
		for _, c := range v.Causes {
			walk(c)
		}
		if len(v.Causes) > 0 {
			return
		}
		at, why := pointer(v.InstanceLocation), misfit(v.ErrorKind)
		if reasons[at] == nil {
			places = append(places, at)
		}
		if !slices.Contains(reasons[at], why) {
			reasons[at] = append(reasons[at], why)
		}
	}
	walk(top)
	slices.Sort(places) // the compiler ranges over maps
	lines := make([]string, 0, maxMisfits)
	for _, at := range places[:min(len(places), maxMisfits)] {
		slices.Sort(reasons[at])
		lines = append(lines, at+" "+strings.Join(reasons[at], ", or "))
	}
	return errors.New(strings.Join(lines, "; "))
}

// misfit words one of them, without the value that stands there.
func misfit(k jsonschema.ErrorKind) string {
	switch k := k.(type) {
	case *kind.Type:
		return "must be of type " + strings.Join(k.Want, " or ") + ", and is " + k.Got
	case *kind.Enum:
		words := make([]string, len(k.Want))
		for i, w := range k.Want {
			words[i] = fmt.Sprint(w)
		}
		return "must be one of " + strings.Join(words, ", ")
	case *kind.Format:
		if k.Want == "regex" {
			return badPattern(k.Err)
		}
		return "must be a " + k.Want
	case *kind.Required:
		return "lacks " + strings.Join(k.Missing, ", ")
	case *kind.Minimum, *kind.ExclusiveMinimum:
		return "is too small"
	case *kind.MinItems, *kind.MinProperties:
		return "must not be empty"
	case *kind.UniqueItems:
		return "holds the same value twice"
	}
	return "doesn't fit (" + strings.Join(k.KeywordPath(), "/") + ")"
}

func badPattern(err error) string {
	if e, ok := errors.AsType[*syntax.Error](err); ok {
		return "isn't a regular expression of Go's kind: " + e.Code.String()
	}
	return "isn't a regular expression of Go's kind"
}

// reference finds the place of a reference that couldn't be followed; url is
// what it resolved to.
func reference(doc any, url string) []string {
	at, _ := search(doc, nil, func(key string, v any) bool {
		s, ok := v.(string)
		return ok && s != "" && strings.HasSuffix(url, s) && slices.Contains([]string{"$ref", "$dynamicRef", "$recursiveRef", "$schema"}, key)
	})
	return at
}

// search gives the first place, in the order of the names, whose key and value
// are wanted.
func search(v any, at []string, wanted func(key string, v any) bool) ([]string, bool) {
	key := ""
	if len(at) > 0 {
		key = at[len(at)-1]
	}
	if wanted(key, v) {
		return at, true
	}
	below := func(key string, v any) ([]string, bool) { return search(v, append(at[:len(at):len(at)], key), wanted) }
	switch v := v.(type) {
	case map[string]any:
		for _, key := range slices.Sorted(maps.Keys(v)) {
			if found, ok := below(key, v[key]); ok {
				return found, true
			}
		}
	case []any:
		for i, item := range v {
			if found, ok := below(strconv.Itoa(i), item); ok {
				return found, true
			}
		}
	}
	return nil, false
}

var (
	escapeToken   = strings.NewReplacer("~", "~0", "/", "~1")
	unescapeToken = strings.NewReplacer("~1", "/", "~0", "~")
)

// pointer writes a JSON pointer; the whole schema's is /.
func pointer(tokens []string) string {
	if len(tokens) == 0 {
		return "/"
	}
	var b strings.Builder
	for _, t := range tokens {
		b.WriteString("/" + escapeToken.Replace(t))
	}
	return clip(b.String())
}

func tokens(pointer string) []string {
	if pointer == "" || pointer == "/" {
		return nil
	}
	parts := strings.Split(strings.TrimPrefix(pointer, "/"), "/")
	for i, p := range parts {
		parts[i] = unescapeToken.Replace(p)
	}
	return parts
}
