package api

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"

	"github.com/surehook/surehook"
	"github.com/surehook/surehook/engine"
)

const (
	streamBeat  = 15 * time.Second // between two signs of life, at each of which the key is looked at again
	streamWrite = 30 * time.Second // that a reader may take for what is written to it
)

// stream is one reader of an inbox by server-sent events. It holds a page at most: a
// reader that is slow is waited for, and cut off after streamWrite; what it hasn't
// acknowledged comes again.
type stream struct {
	w   http.ResponseWriter
	out *http.ResponseController
}

// write sends what is to be seen at once.
func (t *stream) write(b []byte) error {
	// Where there is no connection, there is no deadline either.
	if err := t.out.SetWriteDeadline(time.Now().Add(streamWrite)); err != nil && !errors.Is(err, http.ErrNotSupported) {
		return err
	}
	if _, err := t.w.Write(b); err != nil {
		return err
	}
	return t.out.Flush()
}

// lines are a message's data: each of its lines is one of the stream's.
func lines(b, data []byte) []byte {
	for line := range bytes.SplitSeq(data, []byte("\n")) {
		b = append(append(append(b, "data: "...), line...), '\n')
	}
	return append(b, '\n')
}

func (s *server) streamInbox(in *PullIn, pull pullFunc) *pullOut {
	return &pullOut{Body: func(hctx huma.Context) {
		r, w := humago.Unwrap(hctx)
		ctx, cancel := s.untilClosing(r.Context())
		defer cancel()
		t := &stream{w: w, out: http.NewResponseController(w)}
		h := w.Header()
		h.Set("Content-Type", eventStream)
		h.Set("X-Accel-Buffering", "no")
		_ = t.out.SetReadDeadline(time.Time{}) // nothing more is read
		req := in.request()
		if in.LastEventID != "" {
			req.Cursor, req.From = in.LastEventID, ""
		}
		if t.write([]byte("retry: 1000\n\n")) == nil {
			s.runStream(ctx, r, t, req, pull)
		}
	}}
}

// runStream goes on until the reader has gone, may read no more, or the server stops.
func (s *server) runStream(ctx context.Context, r *http.Request, t *stream, req engine.PullRequest, pull pullFunc) {
	id := requestID(r.Context())
	for {
		req.Wait = streamBeat
		page, err := pull(ctx, req)
		if gap, ok := errors.AsType[*engine.CursorError](err); ok {
			req.Cursor, req.From = "", gap.Next
			if t.write(fmt.Appendf(nil, "event: gap\nid: %s\ndata: {\"dropped\":%d,\"next_cursor\":\"%s\"}\n\n", gap.Next, gap.Dropped, gap.Next)) != nil {
				return
			}
			continue
		}
		if err != nil {
			if ctx.Err() == nil {
				t.fail(s.problem(id, err))
			}
			return
		}
		var b []byte
		for i := range page.Items {
			b = append(append(append(b, "id: "...), page.Items[i].Cursor...), '\n')
			b = lines(b, putItem(nil, &page.Items[i]))
		}
		if len(b) == 0 {
			b = []byte(": \n\n")
			if err := s.still(r, id); err != nil {
				t.fail(s.problem(id, err))
				return
			}
		}
		if t.write(b) != nil || ctx.Err() != nil {
			return
		}
		req.Cursor, req.From = "", page.Next
	}
}

// still tells whether the key that a stream was opened with may still read it.
func (s *server) still(r *http.Request, id string) error {
	c, err := s.authenticate(r, id)
	if err == nil && !c.may(surehook.PermEventsPull) {
		err = &denied{required: surehook.PermEventsPull}
	}
	return err
}

// fail tells why a stream ends, as a problem.
func (t *stream) fail(p *Problem) {
	var raw bytes.Buffer
	if err := format.Marshal(&raw, p); err == nil {
		_ = t.write(lines([]byte("event: error\n"), bytes.TrimSpace(raw.Bytes()))) // the reader may have gone
	}
}
