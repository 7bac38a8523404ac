package app

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/surehook/surehook/internal/config"
)

const hookSecret = "a secret of GitHub's webhook"

// hooked is a server with what cfg is changed to; post sends it a webhook.
func hooked(t *testing.T, change func(*config.Config)) (a *App, base string) {
	t.Helper()
	cfg := config.Default()
	cfg.Listen, cfg.Data, cfg.GHCommand = "127.0.0.1:0", t.TempDir(), "off"
	change(&cfg)
	a, err := Start(t.Context(), cfg, Options{Version: "test"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := a.Stop(context.WithoutCancel(t.Context())); err != nil {
			t.Error(err)
		}
	})
	return a, "http://" + a.Addr.String()
}

func postHook(t *testing.T, url, secret, id string, body []byte) (status int, answer string) {
	t.Helper()
	mac := hmac.New(sha256.New, []byte(secret))
	mac.Write(body)
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, bytes.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	for name, v := range map[string]string{"Content-Type": "application/json", "X-GitHub-Event": "pull_request", "X-GitHub-Delivery": id, "X-Hub-Signature-256": "sha256=" + hex.EncodeToString(mac.Sum(nil))} {
		req.Header.Set(name, v)
	}
	return ask(t, req)
}

func ask(t *testing.T, req *http.Request) (int, string) {
	t.Helper()
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	var b bytes.Buffer
	if _, err := b.ReadFrom(res.Body); err != nil {
		t.Fatal(err)
	}
	return res.StatusCode, b.String()
}

func get(t *testing.T, url, key string) (int, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+key)
	return ask(t, req)
}

// A webhook of GitHub's is answered when its event is stored; sent again, it is the
// same event.
func TestGitHubRoute(t *testing.T) {
	body, err := os.ReadFile("../sentinel/github/testdata/pull_request.closed.json")
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(file, []byte(hookSecret+"\nthe secret of before\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, change := range map[string]func(*config.Config){
		"environment": func(c *config.Config) { c.GitHubWebhookSecret = "the secret of before\n" + hookSecret },
		"file":        func(c *config.Config) { c.GitHubWebhookSecretFile = file },
		"elsewhere":   func(c *config.Config) { c.GitHubWebhookSecretFile, c.GitHubWebhookPath = file, "/providers/x" },
		"a tenant's":  func(c *config.Config) { c.GitHubWebhookSecret, c.GitHubWebhookTenant = hookSecret, "acme" },
	} {
		t.Run(name, func(t *testing.T) {
			path := "/providers/webhook/github"
			a, base := hooked(t, func(c *config.Config) {
				change(c)
				path = c.GitHubWebhookPath
			})
			for _, duplicate := range []string{"false", "true"} {
				if status, answer := postHook(t, base+path, hookSecret, "72d3162e-cc78-11e3-81ab-4c9367dc0958", body); status != 202 || !strings.Contains(answer, `"duplicate":`+duplicate) {
					t.Error(status, answer)
				}
			}
			status, answer := get(t, base+"/v1/events/gh:72d3162e-cc78-11e3-81ab-4c9367dc0958", a.AdminKey)
			if status != 200 || !strings.Contains(answer, `"github.pull_request.closed"`) || strings.Contains(answer, `"acme"`) != (name == "a tenant's") {
				t.Error(status, answer)
			}
			if status, answer := postHook(t, base+path, "a wrong one of some length", "1", body); status != 401 || strings.Contains(answer, "secret of") {
				t.Error(status, answer)
			}
			if status, answer := get(t, base+path, a.AdminKey); status != 405 {
				t.Error(status, answer)
			}
			if status, _ := get(t, base+"/healthz", ""); status != 200 {
				t.Error(status)
			}
		})
	}
}

func TestGitHubRouteNeedsASecret(t *testing.T) {
	_, base := hooked(t, func(*config.Config) {})
	if status, answer := postHook(t, base+"/providers/webhook/github", hookSecret, "1", []byte(`{}`)); status != 404 {
		t.Error(status, answer)
	}
	empty := filepath.Join(t.TempDir(), "empty")
	if err := os.WriteFile(empty, []byte("\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for want, change := range map[string]func(*config.Config){
		"16 characters at least": func(c *config.Config) { c.GitHubWebhookSecret = "short-secret" },
		"no such file":           func(c *config.Config) { c.GitHubWebhookSecretFile = empty + "2" },
		"the file is empty":      func(c *config.Config) { c.GitHubWebhookSecretFile = empty },
		"more than 8":            func(c *config.Config) { c.GitHubWebhookSecret = strings.Repeat(hookSecret+"\n", 9) },
	} {
		cfg := config.Default()
		cfg.Listen, cfg.Data = "127.0.0.1:0", t.TempDir()
		change(&cfg)
		if _, err := Start(t.Context(), cfg, Options{}); err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "short-secret") {
			t.Errorf("%s: %v", want, err)
		}
	}
}
