package console

import (
	"bytes"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/surehook/surehook"
)

const (
	liveEvery = 2 * time.Second
	liveBeat  = 20 * time.Second // proxies close streams on which nothing comes
	liveWrite = 10 * time.Second // a reader that takes nothing for so long is gone
)

// stream sends the overview's numbers whenever they change, until the reader goes,
// its session ends, or the server stops.
func (v *visit) stream() error {
	who := string(v.session.KeyHash) + string(v.session.Tenant) + "\x00" + v.session.Subject
	if !v.places.take(who) {
		return surehook.Errorf(surehook.Unavailable, "too many pages show live numbers at once; reload to see the present ones")
	}
	defer v.places.leave(who)
	if v.Console.live.Err() != nil {
		return surehook.Errorf(surehook.Stopping, "the server is stopping")
	}
	v.streams.Add(1)
	defer v.streams.Done()
	out := http.NewResponseController(v.w)
	h := v.w.Header()
	h.Set("Content-Type", "text/event-stream")
	h.Set("X-Accel-Buffering", "no")
	var last string
	beat := v.now()
	tick := time.NewTicker(liveEvery)
	defer tick.Stop()
	for {
		text, err := v.liveNumbers()
		if err != nil {
			text = "event: over\ndata: \n\n" // the page looks for itself why
		}
		if text == last {
			text = ""
			if v.now().Sub(beat) >= liveBeat {
				text = ": here\n\n"
			}
		} else {
			last = text
		}
		if text != "" {
			beat = v.now()
			if out.SetWriteDeadline(time.Now().Add(liveWrite)) != nil {
				return errGone
			}
			if _, err := fmt.Fprint(v.w, text); err != nil || out.Flush() != nil { //nolint:gosec // html/template made the text
				return errGone
			}
		}
		if err != nil {
			return errGone
		}
		select {
		case <-tick.C:
		case <-v.r.Context().Done():
			return errGone
		case <-v.Console.live.Done():
			return errGone
		}
		if _, _, err := v.find(v.r.Context(), v.r); err != nil {
			last = ""
			v.key = &surehook.APIKey{} // what comes next is refused
			v.api = http.NotFoundHandler()
		} else if v.api, v.key, err = v.opt.API(v.r.Context(), v.session); err != nil {
			v.key, v.api = &surehook.APIKey{}, http.NotFoundHandler()
		}
	}
}

// liveNumbers is the overview's part as an event.
func (v *visit) liveNumbers() (string, error) {
	st, err := get[standing](v, "/v1/overview", nil)
	if err != nil {
		return "", err
	}
	x := v.view(v.r, st)
	x.Form, x.Key, x.Live = formToken(v.token), v.key, true
	var b bytes.Buffer
	if err := v.pages["overview.html"].ExecuteTemplate(&b, "numbers", x); err != nil {
		return "", err
	}
	return "event: numbers\ndata: " + strings.ReplaceAll(strings.TrimSpace(b.String()), "\n", "\ndata: ") + "\n\n", nil
}
