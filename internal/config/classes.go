package config

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/surehook/surehook/internal/accept"
)

const (
	maxClasses   = 16 // each is a series of its own in the metrics
	maxClassed   = 200
	defaultClass = "other"
)

var className = regexp.MustCompile(`^[a-z][a-z0-9_]{0,31}$`)

// EventClasses are the classes that metrics sum event types by.
type EventClasses []EventClass

// EventClass is a name, and the types that it stands for: exact, or everything
// below one as "order.*".
type EventClass struct {
	Name  string
	Types []string
}

// Names lists the classes, that of all other types last.
func (cs EventClasses) Names() []string {
	var out []string
	for _, c := range cs {
		out = append(out, c.Name)
	}
	return append(out, defaultClass)
}

// Of finds an event type's class: the first that has it.
func (cs EventClasses) Of(eventType string) string {
	for _, c := range cs {
		if slices.ContainsFunc(c.Types, func(p string) bool {
			below, wild := strings.CutSuffix(p, "*")
			return p == eventType || wild && strings.HasPrefix(eventType, below)
		}) {
			return c.Name
		}
	}
	return defaultClass
}

// eventClasses reads name=type,type,name=type.
func eventClasses(v string) (EventClasses, error) {
	var out EventClasses
	types := 0
	for _, item := range items(v) {
		name, typ, begins := strings.Cut(item, "=")
		if !begins {
			typ = name
		}
		switch {
		case begins && (!className.MatchString(name) || name == defaultClass):
			return nil, fmt.Errorf("a class's name must have 1 to 32 lower-case letters, digits and _, begin with a letter, and not be %q", defaultClass)
		case begins && slices.Contains(out.Names(), name):
			return nil, fmt.Errorf("the class %q is there twice: give its types after one =", name)
		case begins:
			out = append(out, EventClass{Name: name})
		case len(out) == 0:
			return nil, errors.New("must begin with a class's name and =, such as inbound=message.received,message.quarantined")
		}
		if !accept.Dotted(strings.TrimSuffix(typ, ".*")) {
			return nil, errors.New("a class's types must be event types, such as message.received, or all below one, such as message.*")
		}
		c := &out[len(out)-1]
		c.Types = append(c.Types, typ)
		types++
	}
	if len(out) > maxClasses || types > maxClassed {
		return nil, fmt.Errorf("must be at most %d classes and %d types in all", maxClasses, maxClassed)
	}
	return out, nil
}
