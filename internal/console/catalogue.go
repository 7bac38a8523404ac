package console

import (
	"bytes"
	"encoding/json"
	"errors"
	"net/http"
	"strings"

	"github.com/surehook/surehook"
)

// eventType is an entry of the catalogue.
type eventType struct {
	Name        word            `json:"name"`
	Description word            `json:"description"`
	Example     json.RawMessage `json:"example"`
	Schema      json.RawMessage `json:"schema"`
	Validate    bool            `json:"validate"`
	Requires    word            `json:"requires"`
	CreatedAt   stamp           `json:"created_at"`
	UpdatedAt   stamp           `json:"updated_at"`
}

// Pretty writes JSON with line breaks.
func (eventType) Pretty(raw json.RawMessage) string {
	var b bytes.Buffer
	if json.Indent(&b, raw, "", "  ") != nil {
		return inert(string(raw))
	}
	return inert(b.String())
}

// typeForm is an event type as somebody typed it.
type typeForm struct {
	Name, Description, Example, Schema, Requires string
	Validate                                     bool
}

// typesPage is the catalogue.
type typesPage struct {
	Types    []eventType
	Form     typeForm
	Problems map[string]string
	Problem  string
}

func (v *visit) types() error { return v.showTypes(http.StatusOK, typesPage{}) }

func (v *visit) showTypes(status int, p typesPage) error {
	l, err := get[list[eventType]](v, "/v1/event-types", nil)
	if err != nil {
		return err
	}
	p.Types = l.Items
	return v.showAs(status, "types.html", p)
}

// typePage is one event type.
type typePage struct {
	Type     eventType
	Form     typeForm
	Problems map[string]string
	Problem  string
}

func (v *visit) eventType() error {
	t, err := get[eventType](v, "/v1/event-types/"+seg(v.r.PathValue("name")), nil)
	if err != nil {
		return err
	}
	return v.show("type.html", typePage{Type: t, Form: typeForm{Name: string(t.Name), Description: string(t.Description), Example: t.Pretty(t.Example), Schema: t.Pretty(t.Schema),
		Requires: string(t.Requires), Validate: t.Validate}})
}

// saveType makes or changes an event type.
func (v *visit) saveType() error {
	q := v.r.PostForm
	f := typeForm{Name: strings.TrimSpace(q.Get("name")), Description: strings.TrimSpace(q.Get("description")), Example: strings.TrimSpace(q.Get("example")),
		Schema: strings.TrimSpace(q.Get("schema")), Requires: strings.TrimSpace(q.Get("requires")), Validate: q.Get("validate") == "yes"}
	in, problems := map[string]any{"description": f.Description, "validate": f.Validate, "requires": f.Requires}, map[string]string{}
	for name, text := range map[string]string{"example": f.Example, "schema": f.Schema} {
		switch {
		case text == "":
		case !json.Valid([]byte(text)):
			problems[name] = "isn't JSON"
		default:
			in[name] = json.RawMessage(text)
		}
	}
	if f.Name == "" {
		problems["name"] = "is required"
	}
	var err error
	if len(problems) > 0 {
		err = refusedForm(problems)
	} else {
		err = v.ask(http.MethodPut, "/v1/event-types/"+seg(f.Name), in, nil)
	}
	if refused, ok := errors.AsType[*problem](err); ok && refused.Status < 500 {
		return v.showTypes(refused.Status, typesPage{Form: f, Problems: fields(refused), Problem: refused.words()})
	}
	if err != nil {
		return err
	}
	return v.redirect("/event-types/" + seg(f.Name) + "?done=saved")
}

func (v *visit) deleteType() error {
	if err := v.ask(http.MethodDelete, "/v1/event-types/"+seg(v.r.PathValue("name")), nil, nil); err != nil {
		return err
	}
	return v.redirect("/event-types?done=deleted")
}

func fieldError(path, message string) surehook.FieldError {
	return surehook.FieldError{Path: path, Message: message}
}
