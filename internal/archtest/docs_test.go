package archtest

import (
	"os"
	"strings"
	"testing"

	"github.com/surehook/surehook/internal/config"
)

// The page of settings is generated; this is where a stale one shows.
func TestSettingsAreDocumented(t *testing.T) {
	page, err := os.ReadFile("../../docs/configuration.md")
	if err != nil {
		t.Fatal(err)
	}
	if !strings.HasSuffix(strings.TrimSpace(string(page)), strings.TrimSpace(config.Markdown())) {
		t.Error("docs/configuration.md is stale: put the output of `surehook serve --print-settings` below its introduction")
	}
}
