package app

import (
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/surehook/surehook/internal/config"
	"github.com/surehook/surehook/internal/console"
)

// A server with a login provider offers it, though it can't be reached, and says at
// its start what is wrong with the secret's file.
func TestLoginProvider(t *testing.T) {
	dir := t.TempDir()
	secret := filepath.Join(dir, "secret")
	if err := os.WriteFile(secret, []byte("its-secret\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	rule, err := console.ParseRule("groups=ops=admin")
	if err != nil {
		t.Fatal(err)
	}
	login := func(c *config.Config) {
		c.OIDCIssuer, c.OIDCClientID, c.OIDCRules, c.OIDCClientSecretFile = "https://login.invalid", "us", []console.Rule{rule}, secret
		c.PublicURL = &url.URL{Scheme: "https", Host: "hooks.example.com"}
	}
	a, base := hooked(t, login)
	if status, page := get(t, base+"/console/login", a.AdminKey); status != 200 || !strings.Contains(page, "Sign in at login.invalid") {
		t.Error(status, page)
	}
	if status, page := get(t, base+"/console/oidc", a.AdminKey); status != 502 || strings.Contains(page, "its-secret") {
		t.Error(status, page)
	}
	if err := os.WriteFile(secret, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for want, path := range map[string]string{"the file is empty": secret, "no such file": secret + "2"} {
		cfg := config.Default()
		cfg.Listen, cfg.Data = "127.0.0.1:0", t.TempDir()
		login(&cfg)
		cfg.OIDCClientSecretFile = path
		if _, err := Start(t.Context(), cfg, Options{}); err == nil || !strings.Contains(err.Error(), "oidc-client-secret-file: ") || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", want, err)
		}
	}
}
