package api

import (
	"cmp"
	"fmt"
	"reflect"
	"strings"

	"github.com/surehook/surehook"
)

// refuseNUL refuses what no store of ours can hold or look for: a text with U+0000
// in it, wherever in the input of a route it stands. JSON that is kept as it came is
// none.
func refuseNUL(in any) error {
	if place, found := nulIn(reflect.ValueOf(in)); found {
		return surehook.Invalid(place, "must not hold U+0000")
	}
	return nil
}

// nulIn finds the first such text, and names its place as errors do: a.b[0].
func nulIn(v reflect.Value) (place string, found bool) {
	switch v.Kind() {
	case reflect.String:
		return "", strings.IndexByte(v.String(), 0) >= 0
	case reflect.Pointer:
		return nulIn(v.Elem()) // of nil: no value, and no kind
	case reflect.Slice:
		if v.Type().Elem().Kind() == reflect.Uint8 {
			return "", false
		}
		for i := range v.Len() {
			if at, ok := nulIn(v.Index(i)); ok {
				return join(fmt.Sprintf("[%d]", i), at), true
			}
		}
	case reflect.Map:
		for k, e := range v.Seq2() {
			if _, ok := nulIn(k); ok {
				return "", true // the name can't be told
			}
			if at, ok := nulIn(e); ok {
				return join(k.String(), at), true
			}
		}
	case reflect.Struct:
		for f, e := range v.Fields() {
			if !f.IsExported() {
				continue
			}
			if at, ok := nulIn(e); ok {
				return join(fieldName(f), at), true
			}
		}
	}
	return "", false
}

// fieldName is a field's name for the caller; none for what only holds others.
func fieldName(f reflect.StructField) string {
	name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
	return cmp.Or(f.Tag.Get("path"), f.Tag.Get("query"), f.Tag.Get("header"), name)
}

func join(name, at string) string {
	if name == "" || at == "" || at[0] == '[' {
		return name + at
	}
	return name + "." + at
}
