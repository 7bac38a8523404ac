package postgres

import (
	"strings"
	"testing"
)

func TestAddressNamesNoPassword(t *testing.T) {
	got, err := Address("postgres://surehook:hunter2@db:6432/app", Options{Schema: "hooks"})
	if err != nil || got != "db:6432/app, schema hooks" {
		t.Error(got, err)
	}
	if _, err := Address("postgres://surehook:hunter2@db:port/app", Options{}); err == nil || strings.Contains(err.Error(), "hunter2") {
		t.Error(err)
	}
}
