package source

import (
	"context"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/synctest"
)

func TestStdin(t *testing.T) {
	text := "something\n" + audited("a") + "\r\n" + long(2*MaxLine) + "\n" + audited("b")[:75] + "\n" + strings.Repeat(audited("c")+"\n", 300) + audited("last")
	s := stream(strings.NewReader(text))
	var sum counts
	ids := map[string]bool{}
	for {
		b, err := s.Next(t.Context())
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		for _, ev := range b.Events {
			ids[ev.ID] = true
		}
		sum.add(b)
		if err := s.Committed(t.Context(), b); err != nil {
			t.Fatal(err)
		}
	}
	if len(ids) != 302 || sum.Lines != 305 || sum.NotAudit != 1 || sum.Malformed != 1 || sum.TooLong != 1 {
		t.Errorf("%d events, %+v", len(ids), sum)
	}
	if s.ID() != "stdin" || s.Close(t.Context()) != nil {
		t.Error("id or close")
	}
}

// What was read before the end of ctx is given all the same.
func TestStdin_GivesWhatItReadBeforeItEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, w := io.Pipe()
		s := stream(r)
		go func() { _, _ = io.WriteString(w, strings.Repeat(audited("a")+"\n", 400)) }()
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		n := 0
		for n < 400 {
			b, err := s.Next(ctx)
			if err != nil {
				t.Fatalf("%v after %d", err, n)
			}
			n += len(b.Events)
			cancel()
		}
		if _, err := s.Next(ctx); !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		_ = w.Close()
		_ = s.Close(t.Context())
	})
}

func TestStdin_AnErrorIsTheEnd(t *testing.T) {
	broken := errors.New("broken")
	s := stream(io.MultiReader(strings.NewReader(audited("a")+"\n"), errReader{broken}))
	if b, err := s.Next(t.Context()); err != nil || len(b.Events) != 1 {
		t.Fatal(err)
	}
	if _, err := s.Next(t.Context()); !errors.Is(err, broken) {
		t.Error(err)
	}
}

type errReader struct{ err error }

func (r errReader) Read([]byte) (int, error) { return 0, r.err }
