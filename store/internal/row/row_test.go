package row

import (
	"math"
	"reflect"
	"testing"
	"time"

	"github.com/surehook/surehook"
)

// The forms are in files that exist: a change of one is a migration.
func TestForms(t *testing.T) {
	limits, err := Limits(surehook.Limits{Waits: []time.Duration{time.Second, time.Hour}, Attempts: 3, Timeout: 1500 * time.Millisecond, Rate: 0.5, Concurrency: 4})
	if err != nil {
		t.Fatal(err)
	}
	for got, want := range map[string]string{
		List(nil):                    "[]",
		List([]string{"a*", `b,"c`}): `["a*","b,\"c"]`,
		Headers(nil):                 "{}",
		Headers(map[string]string{"X-A": "\x00"}): `{"X-A":"\u0000"}`,
		limits: `{"waits":[1000,3600000],"attempts":3,"timeout":1500,"rate":0.5,"concurrency":4}`,
	} {
		if got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
	if _, err := Limits(surehook.Limits{Rate: math.NaN()}); err == nil {
		t.Error("a rate that is no number was stored")
	}
}

func TestFormsBackwards(t *testing.T) {
	list := []string{"a", "", "\x00", "ü"}
	if got, err := ParseList(List(list)); err != nil || !reflect.DeepEqual(got, list) {
		t.Errorf("list: %q, %v", got, err)
	}
	headers := map[string]string{"X-A": "1", "X-B": `"`}
	if got, err := ParseHeaders([]byte(Headers(headers))); err != nil || !reflect.DeepEqual(got, headers) {
		t.Errorf("headers: %q, %v", got, err)
	}
	limits := surehook.Limits{Waits: []time.Duration{time.Millisecond, time.Hour}, Rate: 1e-9}
	text, _ := Limits(limits) // the one above told
	if got, err := ParseLimits(text); err != nil || !reflect.DeepEqual(got, limits) {
		t.Errorf("limits: %+v, %v", got, err)
	}
	_, a := ParseList("{")
	_, b := ParseHeaders("[")
	_, c := ParseLimits("")
	for _, err := range []error{a, b, c} {
		if err == nil {
			t.Error("nonsense was read")
		}
	}
}

func TestCeilMillis(t *testing.T) {
	for ns, want := range map[int64]int64{0: 0, 1: 1, 999_999: 1, 1_000_000: 1, 1_000_001: 2, -1: 0, -1_000_001: -1} {
		if got := CeilMillis(time.Unix(0, ns)); got != want {
			t.Errorf("%d ns: %d, want %d", ns, got, want)
		}
	}
}

func TestBuckets(t *testing.T) {
	at := time.Unix(0, 0)
	got, err := Buckets(at, at.Add(61*time.Second), time.Minute)
	if err != nil || len(got) != 2 || !got[1].Start.Equal(at.Add(time.Minute)) {
		t.Errorf("%+v, %v", got, err)
	}
	if _, err := Buckets(time.Time{}, at.AddDate(9000, 0, 0), time.Minute); surehook.CodeOf(err) != surehook.InvalidRequest {
		t.Errorf("all time: %v", err)
	}
	for _, step := range []time.Duration{0, time.Microsecond, time.Millisecond} {
		if _, err := Buckets(at, at.Add(time.Hour), step); surehook.CodeOf(err) != surehook.InvalidRequest {
			t.Errorf("steps of %v: %v", step, err)
		}
	}
}
