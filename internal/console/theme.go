package console

import (
	"fmt"
	"net/http"
	"os"
	"regexp"
	"strconv"
)

var colour = regexp.MustCompile(`^#[0-9a-fA-F]{6}$`)

const maxLogo = 256 << 10

func readLogo(path string) ([]byte, error) {
	if path == "" {
		return nil, nil
	}
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("the portal's logo: %w", err)
	}
	if len(b) > maxLogo {
		return nil, fmt.Errorf("the portal's logo has %d bytes; %d are allowed", len(b), maxLogo)
	}
	return b, nil
}

// themeCSS gives the accent's colour to the portal's pages. Texts on it are black or
// white, whichever can be read better.
func (s *site) themeCSS(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "text/css; charset=utf-8")
	accent := s.opt.Theme.Accent
	if !s.portal() || !colour.MatchString(accent) {
		return
	}
	on := "#ffffff"
	if luminance(accent) > 0.179 {
		on = "#000000"
	}
	fmt.Fprintf(w, ":root{--brand:%s;--on-brand:%s}\n", accent, on)
}

// luminance is the relative luminance of a colour, as WCAG has it.
func luminance(c string) float64 {
	part := func(i int) float64 {
		n, err := strconv.ParseUint(c[i:i+2], 16, 8)
		if err != nil {
			return 0
		}
		v := float64(n) / 255
		if v <= 0.04045 {
			return v / 12.92
		}
		x := (v + 0.055) / 1.055
		return x * x * (0.6 + 0.4*x) // x^2.4, near enough to choose between two
	}
	return 0.2126*part(1) + 0.7152*part(3) + 0.0722*part(5)
}

func (s *site) logoFile(w http.ResponseWriter, r *http.Request) {
	if !s.portal() || len(s.logo) == 0 {
		http.NotFound(w, r)
		return
	}
	media := http.DetectContentType(s.logo)
	if media != "image/png" && media != "image/jpeg" && media != "image/webp" {
		media = "image/svg+xml" // which no page runs: it is shown as a picture alone
	}
	w.Header().Set("Content-Type", media)
	w.Header().Set("Cache-Control", "max-age=3600")
	_, _ = w.Write(s.logo) // the reader may have gone
}
