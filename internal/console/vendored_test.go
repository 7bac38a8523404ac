package console_test

import (
	"crypto/sha256"
	"encoding/hex"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// vendored are the digests of others' files, as their packages have them.
var vendored = map[string]string{
	"static/htmx.min.js":     "d6fdc75f204e6bdefa99b69bf1e6d4ac69b8a364f77929f45c13476b4000f717",
	"static/htmx-sse.min.js": "98a46496de0c3605fbffdce9167ba427bdd9553184f83f149c261891a92c0136",
	"testdata/axe.min.js":    "29348999450cdf2849a8e70b7912fc2da85a849da39c0d0d5394f51d4a9ed95c",
}

// Others' files are as they were published, and named with their versions and
// licences.
func TestVendoredFiles(t *testing.T) {
	note, err := os.ReadFile(filepath.Join("static", "THIRD_PARTY.md"))
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range vendored {
		b, err := os.ReadFile(filepath.FromSlash(name))
		if err != nil {
			t.Fatal(err)
		}
		if sum := sha256.Sum256(b); hex.EncodeToString(sum[:]) != want {
			t.Errorf("%s isn't what its package has: take the whole file, and put its digest and version here and into THIRD_PARTY.md", name)
		}
		if !strings.Contains(string(note), filepath.Base(name)) {
			t.Errorf("THIRD_PARTY.md doesn't name %s", name)
		}
	}
	files, err := filepath.Glob("static/*.min.js")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		if vendored[filepath.ToSlash(f)] == "" {
			t.Errorf("%s has no digest here", f)
		}
	}
}
