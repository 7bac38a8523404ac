package audit

import "fmt"

// The rules of labels.
const (
	MaxLabels     = 32   // of one event
	MaxLabelKey   = 63   // bytes
	MaxLabelValue = 1024 // bytes
	MaxLabelBytes = 4096 // keys and values of one event
	Reserved      = "purple_wolf."
)

// CheckLabel says what is wrong with a label; it never shows the value.
func CheckLabel(key, value string) error {
	switch {
	case !labelKey(key):
		return fmt.Errorf("a label's name must be 1 to %d of a-z 0-9 _ . - and begin with a letter", MaxLabelKey)
	case len(key) >= len(Reserved) && key[:len(Reserved)] == Reserved:
		return fmt.Errorf("names that begin with %s are reserved", Reserved)
	case len(value) > MaxLabelValue:
		return fmt.Errorf("a label's value must be at most %d bytes", MaxLabelValue)
	}
	return nil
}

func labelKey(s string) bool {
	if len(s) == 0 || len(s) > MaxLabelKey || s[0] < 'a' || s[0] > 'z' {
		return false
	}
	for i := range len(s) {
		if c := s[i]; (c < 'a' || c > 'z') && (c < '0' || c > '9') && c != '_' && c != '.' && c != '-' {
			return false
		}
	}
	return true
}

// Add gives an event a label, unless it has one of that name, or it breaks a
// rule, or there is no room. It tells whether it did.
func (ev *Event) Add(key, value string) bool {
	if _, has := ev.Labels[key]; has || CheckLabel(key, value) != nil || len(ev.Labels) >= MaxLabels {
		return false
	}
	size := len(key) + len(value)
	for k, v := range ev.Labels {
		size += len(k) + len(v)
	}
	if size > MaxLabelBytes {
		return false
	}
	if ev.Labels == nil {
		ev.Labels = make(map[string]string)
	}
	ev.Labels[key] = value
	return true
}
