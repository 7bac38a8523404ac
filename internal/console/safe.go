package console

import (
	"net/http"
	"strings"
)

// secure sets the headers of every answer. Nothing runs or is loaded but our own
// files; nobody frames the console, and the portal only those that may.
func (c *Console) secure(w http.ResponseWriter, r *http.Request) {
	frames := "'none'"
	if strings.HasPrefix(r.URL.Path, "/portal") && len(c.opt.Theme.Frames) > 0 {
		frames = strings.Join(c.opt.Theme.Frames, " ")
	}
	h := w.Header()
	h.Set("Content-Security-Policy", "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors "+frames)
	if frames == "'none'" {
		h.Set("X-Frame-Options", "DENY")
	}
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	h.Set("Permissions-Policy", "camera=(), geolocation=(), microphone=(), payment=(), usb=()")
	h.Set("Cache-Control", "no-store")
}
