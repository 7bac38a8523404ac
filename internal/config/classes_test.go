package config

import (
	"reflect"
	"strings"
	"testing"
)

func TestEventClasses(t *testing.T) {
	c, err := Load(Source{Flags: flags(t, "--event-class", "inbound=message.received,message.quarantined money=invoice.*,refund")})
	if err != nil {
		t.Fatal(err)
	}
	want := EventClasses{{"inbound", []string{"message.received", "message.quarantined"}}, {"money", []string{"invoice.*", "refund"}}}
	if !reflect.DeepEqual(c.EventClasses, want) {
		t.Errorf("%+v", c.EventClasses)
	}
	for typ, class := range map[string]string{"message.received": "inbound", "message.quarantined": "inbound", "message.received.twice": "other",
		"message": "other", "invoice.paid": "money", "invoice.line.added": "money", "invoice": "other", "invoices.paid": "other", "refund": "money",
		"refund.made": "other", "": "other"} {
		if got := c.EventClasses.Of(typ); got != class {
			t.Errorf("%s is %s, not %s", typ, got, class)
		}
	}
	if got := strings.Join(c.EventClasses.Names(), " "); got != "inbound money other" {
		t.Error(got)
	}
	if c := Default(); c.EventClasses.Of("message.received") != "other" {
		t.Error("a class that nobody configured")
	}
}

// The names become labels, so there are few of them and no stranger makes one.
func TestEventClassesThatAreRefused(t *testing.T) {
	many := make([]string, maxClasses+1)
	for i := range many {
		many[i] = "c" + strings.Repeat("x", i) + "=a"
	}
	for _, bad := range []string{"message.received", "In=a", "1n=a", "=a", "in=", "in=a b..c", "in=*", "in=a.*.b", "other=a", "in=a,in=b",
		strings.Repeat("a", 33) + "=b", strings.Join(many, ","), "in=" + strings.Repeat("a,", maxClassed+1)} {
		if _, err := Load(Source{Environ: []string{"SUREHOOK_EVENT_CLASS=" + bad}}); err == nil || !strings.Contains(err.Error(), "SUREHOOK_EVENT_CLASS") {
			t.Errorf("%.60s: %v", bad, err)
		}
	}
}
