package console

import (
	"errors"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
)

// endpointForm is what a person typed; it is shown again as it was when something in
// it is refused.
type endpointForm struct {
	URL, Description        string
	Types                   []string // ticked
	Others                  string   // typed
	Subjects                string
	Tenant                  string
	Profile, Envelope       string
	Signature, Ordering     string
	Timeout, Rate, Requests string
	Attempts                string
	Once                    string
	Pull                    bool // events wait in an inbox
	Session, Urgency        string
}

// formPage shows the form.
type formPage struct {
	ID       string // empty: a new endpoint
	Form     endpointForm
	Problems map[string]string // by field
	Problem  string            // of the whole
	Types    []eventType
}

// Ticked tells whether a type is chosen.
func (p formPage) Ticked(name word) bool { return slices.Contains(p.Form.Types, string(name)) }

func split(s string) []string {
	return strings.FieldsFunc(s, func(r rune) bool { return r == ',' || r == ' ' || r == '\n' || r == '\t' || r == '\r' })
}

func readEndpointForm(q url.Values) endpointForm {
	t := func(name string) string { return strings.TrimSpace(q.Get(name)) }
	return endpointForm{URL: t("url"), Description: t("description"), Types: q["types"], Others: t("other_types"), Subjects: t("subjects"), Tenant: t("tenant_id"),
		Profile: t("profile"), Envelope: t("envelope"), Signature: t("signature"), Ordering: t("ordering"), Timeout: t("timeout"), Rate: t("rate"), Requests: t("concurrency"),
		Attempts: t("attempts"), Once: t("once"), Pull: t("target") == "pull", Session: t("session_id"), Urgency: t("urgency")}
}

// input is what the API is asked for.
func (f endpointForm) input() (map[string]any, map[string]string) {
	in, problems := map[string]any{"url": f.URL, "description": f.Description}, map[string]string{}
	if types := append(slices.Clone(f.Types), split(f.Others)...); len(types) > 0 {
		in["event_types"] = slices.Compact(slices.Sorted(slices.Values(types)))
	} else {
		in["event_types"] = []string{"*"}
	}
	if subjects := split(f.Subjects); len(subjects) > 0 {
		in["subjects"] = subjects
	} else {
		in["subjects"] = nil
	}
	for name, x := range map[string]string{"envelope": f.Envelope, "ordering": f.Ordering} {
		if x != "" {
			in[name] = x
		}
	}
	if f.Pull { // the rest is about requests
		delete(in, "url")
		delete(in, "ordering")
		return in, problems
	}
	limits := map[string]any{}
	number := func(field, name, text string, scale float64) {
		if text == "" {
			return
		}
		n, err := strconv.ParseFloat(text, 64)
		if err != nil {
			problems[field] = "must be a number"
			return
		}
		limits[name] = n * scale
	}
	number("timeout", "timeout_ms", f.Timeout, 1000)
	number("rate", "rate_per_second", f.Rate, 1)
	number("concurrency", "concurrency", f.Requests, 1)
	number("attempts", "attempts", f.Attempts, 1)
	in["limits"] = limits
	return in, problems
}

// fields turns the API's names of what it refused into the form's.
func fields(p *problem) map[string]string {
	out := map[string]string{}
	names := map[string]string{"limits.timeout_ms": "timeout", "limits.rate_per_second": "rate", "limits.concurrency": "concurrency", "limits.attempts": "attempts"}
	for _, f := range p.Fields {
		name, _, _ := strings.Cut(f.Path, "[")
		if other, ok := names[name]; ok {
			name = other
		}
		out[name] = f.Message
	}
	return out
}

// form shows the form, new or again.
func (v *visit) form(id string, f endpointForm, err error) error {
	if f.Once == "" {
		f.Once = newToken()
	}
	p := formPage{ID: id, Form: f, Problems: map[string]string{}}
	status := http.StatusOK
	if err != nil {
		refused, ok := errors.AsType[*problem](err)
		if !ok || refused.Status >= 500 {
			return err
		}
		status, p.Problems, p.Problem = refused.Status, fields(refused), refused.words()
	}
	types, err := get[list[eventType]](v, "/v1/event-types", nil)
	if err != nil {
		return err
	}
	p.Types = types.Items
	if err == nil && status == http.StatusOK && id != "" {
		// Types that aren't in the catalogue go to the text field.
		known := func(name string) bool {
			return slices.ContainsFunc(p.Types, func(t eventType) bool { return string(t.Name) == name })
		}
		var others []string
		for _, t := range f.Types {
			if !known(t) && t != "*" {
				others = append(others, t)
			}
		}
		if len(others) > 0 {
			p.Form.Others = strings.Join(others, ", ")
		}
	}
	return v.showAs(status, "endpoint-form.html", p)
}

func refusedForm(problems map[string]string) error {
	p := &problem{Status: http.StatusBadRequest, Detail: "Some fields need another look."}
	for name, why := range problems {
		p.Fields = append(p.Fields, fieldError(name, why))
	}
	return p
}

func (v *visit) createEndpoint() error {
	f := readEndpointForm(v.r.PostForm)
	in, problems := f.input()
	if len(problems) > 0 {
		return v.form("", f, refusedForm(problems))
	}
	more := map[string]string{"profile": f.Profile, "signature": f.Signature, "tenant_id": f.Tenant}
	if f.Pull {
		more = map[string]string{"profile": f.Profile, "tenant_id": f.Tenant, "target": "pull", "session_id": f.Session, "urgency": f.Urgency}
	}
	for name, x := range more {
		if x != "" {
			in[name] = x
		}
	}
	if in["subjects"] == nil {
		delete(in, "subjects")
	}
	var made endpoint
	if err := v.ask(http.MethodPost, "/v1/webhooks", in, &made, v.once()...); err != nil {
		return v.form("", f, err)
	}
	v.r.SetPathValue("id", string(made.ID))
	return v.showEndpoint(http.StatusCreated, endpointPage{Secret: v.first(made.Secret), Again: v.again})
}

func (v *visit) editEndpoint() error {
	e, err := v.endpointOf()
	if err != nil {
		return err
	}
	f := endpointForm{Pull: e.Pulled(), URL: string(e.URL), Description: string(e.Description), Subjects: joined(e.Subjects), Envelope: string(e.Envelope), Ordering: string(e.Ordering)}
	for _, t := range e.EventTypes {
		f.Types = append(f.Types, string(t))
	}
	text := func(n float64) string {
		if n == 0 {
			return ""
		}
		return strconv.FormatFloat(n, 'f', -1, 64)
	}
	f.Timeout, f.Rate, f.Requests, f.Attempts = text(float64(e.Limits.TimeoutMS)/1000), text(e.Limits.Rate), text(float64(e.Limits.Concurrency)), text(float64(e.Limits.Attempts))
	return v.form(string(e.ID), f, nil)
}

func (v *visit) saveEndpoint() error {
	id := v.r.PathValue("id")
	f := readEndpointForm(v.r.PostForm)
	in, problems := f.input()
	if len(problems) > 0 {
		return v.form(id, f, refusedForm(problems))
	}
	e, err := v.endpointOf()
	if err != nil {
		return err
	}
	if f.URL == string(e.URL) {
		delete(in, "url") // it may be hidden in part, and the same one needs no test
	}
	if f.Envelope == string(e.Envelope) {
		delete(in, "envelope") // a profile may have one of its own for the standard one
	}
	if l, ok := in["limits"].(map[string]any); ok && len(e.Limits.WaitsMS) > 0 {
		l["waits_ms"] = e.Limits.WaitsMS // the form doesn't show them
	}
	if err := v.ask(http.MethodPatch, "/v1/webhooks/"+seg(id), in, nil); err != nil {
		return v.form(id, f, err)
	}
	return v.redirect("/endpoints/" + seg(id) + "?done=saved")
}
