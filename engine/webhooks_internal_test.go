package engine

import (
	"errors"
	"strings"
	"testing"

	"github.com/surehook/surehook"
)

func TestCheckHeaders(t *testing.T) {
	for _, c := range []struct {
		headers map[string]string
		path    string // "": they are fine
	}{
		{nil, ""},
		{map[string]string{"X-A": "1", "X-B": "1", "Authorization": "Basic eDp5", "Accept": "*/*"}, ""},
		{map[string]string{"x-a": "1", "X-A": "2"}, "headers.x-a"},
		{map[string]string{"X-a": "1", "X-A": "1", "x-A": "1"}, "headers.X-a"},
		{map[string]string{"content-encoding": "gzip"}, "headers.content-encoding"},
		{map[string]string{"Content-Length": "1"}, "headers.Content-Length"},
		{map[string]string{"Transfer-Encoding": "chunked"}, "headers.Transfer-Encoding"},
		{map[string]string{"CONNECTION": "close"}, "headers.CONNECTION"},
		{map[string]string{"Host": "x"}, "headers.Host"},
		{map[string]string{"TE": "trailers"}, "headers.TE"},
		{map[string]string{"trailer": "x"}, "headers.trailer"},
		{map[string]string{"Upgrade": "h2c"}, "headers.Upgrade"},
		{map[string]string{"expect": "100-continue"}, "headers.expect"},
		{map[string]string{"Webhook-Id": "1"}, "headers.Webhook-Id"},
		{map[string]string{"webhook-anything": "1"}, "headers.webhook-anything"},
		{map[string]string{"Surehook-Attempt": "1"}, "headers.Surehook-Attempt"},
		{map[string]string{" host ": "x"}, "headers"},
		{map[string]string{"": "x"}, "headers"},
		{map[string]string{"X-A": "a\r\nHost: b"}, "headers"},
		{map[string]string{"X-" + strings.Repeat("a", 99): "1"}, "headers"},
		{map[string]string{"X-A": strings.Repeat("a", 1025)}, "headers"},
	} {
		err := checkHeaders(c.headers)
		if c.path == "" {
			if err != nil {
				t.Errorf("%v: %v", c.headers, err)
			}
			continue
		}
		e, ok := errors.AsType[*surehook.Error](err)
		if !ok || len(e.Fields) != 1 || e.Fields[0].Path != c.path {
			t.Errorf("%v: got %+v, want one field, %s", c.headers, err, c.path)
		}
	}
}
