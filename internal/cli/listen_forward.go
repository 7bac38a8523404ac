package cli

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"maps"
	"net/http"
	"net/textproto"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/surehook/surehook/signing"
)

// hopByHop are the headers of one connection; everything else is passed on.
var hopByHop = []string{"Connection", "Keep-Alive", "Proxy-Authenticate", "Proxy-Authorization", "Proxy-Connection", "Te", "Trailer", "Transfer-Encoding", "Upgrade"}

// ours are the headers that package http writes itself, whatever their spelling.
var ours = []string{"Host", "Content-Length", "User-Agent"}

// forwarder changes nothing: no redirect is followed, nothing is unpacked.
var forwarder = &http.Client{Timeout: 30 * time.Second, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	Transport: &http.Transport{DisableCompression: true, MaxIdleConnsPerHost: 16, IdleConnTimeout: time.Minute}}

// onward makes the request that goes on: the body's bytes and the headers as
// they came. The target's query is its own, or else the request's.
func onward(ctx context.Context, to *url.URL, r *received) (*http.Request, error) {
	target := *to
	if target.RawQuery == "" {
		target.RawQuery = r.Query
	}
	req, err := http.NewRequestWithContext(ctx, r.Method, target.String(), bytes.NewReader(r.body()))
	if err != nil {
		return nil, err
	}
	req.Header = r.Header.Clone()
	if r.sent != nil {
		req.Header = r.sent.Clone()
	}
	for _, name := range append(slices.Clone(hopByHop), strings.Split(r.Header.Get("Connection"), ",")...) {
		maps.DeleteFunc(req.Header, func(have string, _ []string) bool { return strings.EqualFold(have, strings.TrimSpace(name)) })
	}
	// Names that package http looks for are found under its own spelling alone.
	for _, name := range ours {
		for have, values := range req.Header {
			if have != name && strings.EqualFold(have, name) {
				delete(req.Header, have)
				req.Header[name] = values
			}
		}
	}
	if _, there := req.Header["User-Agent"]; !there {
		req.Header["User-Agent"] = nil // or this program's would be sent
	}
	return req, nil
}

const maxAnswer = 1 << 20 // of the target's answer, in bytes

// sendOn gives the request to the target, and its answer to the sender.
func (l *listener) sendOn(w http.ResponseWriter, in *http.Request, r *received) {
	r.Status = http.StatusBadGateway
	req, err := onward(in.Context(), l.forward, r)
	if err != nil {
		l.c.say("surehook: --forward: %s", err)
		w.WriteHeader(r.Status)
		return
	}
	resp, err := forwarder.Do(req)
	if err != nil {
		l.c.say("surehook: the target of --forward doesn't answer: %s", unreached(err))
		w.WriteHeader(r.Status)
		return
	}
	defer func() { _ = resp.Body.Close() }() // it was only read
	r.Status = resp.StatusCode
	if !l.wait(in) {
		return
	}
	for name, values := range resp.Header {
		if !slices.Contains(hopByHop, name) {
			w.Header()[name] = values
		}
	}
	w.Header().Del("Content-Length") // the body may be cut
	for _, name := range []string{"Date", "Content-Type"} {
		if _, there := resp.Header[name]; !there {
			w.Header()[name] = nil // or this server would add its own
		}
	}
	w.WriteHeader(r.Status)
	_, _ = io.Copy(w, io.LimitReader(resp.Body, maxAnswer)) // the sender reads the status
}

// unreached words an error without the URL.
func unreached(err error) error {
	if e, ok := errors.AsType[*url.Error](err); ok {
		return e.Err
	}
	return err
}

// replay goes through a recorded file.
func (l *listener) replay(ctx context.Context, fl *listenFlags) error {
	if fl.again && (l.forward == nil || len(l.secrets) == 0) {
		return usage("--sign-again goes with --forward, and needs the secret to sign with")
	}
	f, err := os.Open(fl.replay)
	if err != nil {
		return fail(exitUsage, "", "--replay: %w", err)
	}
	defer func() { _ = f.Close() }() // it was only read
	in := bufio.NewScanner(f)
	in.Buffer(nil, 4*maxListened)
	failed := 0
	for n := 1; in.Scan(); n++ {
		if len(bytes.TrimSpace(in.Bytes())) == 0 {
			continue
		}
		var r received
		if err := json.Unmarshal(in.Bytes(), &r); err != nil || r.Method == "" || r.Header == nil {
			return fail(exitUsage, "it must be a file that --record wrote", "line %d of --replay isn't a recorded request", n)
		}
		if err := l.replayed(ctx, &r, fl.again); err != nil {
			return err
		}
		if r.Status < 200 || r.Status > 299 {
			failed++
		}
		if l.left > 0 {
			select {
			case <-l.done:
				return nil
			default:
			}
		}
	}
	if err := in.Err(); err != nil {
		return fail(exitFailed, "", "--replay: %w", err)
	}
	if failed > 0 && l.forward != nil {
		return fail(exitFailed, "", "%s no 2xx", plural(failed, "request got", "requests got"))
	}
	return nil
}

// replayed shows one request as of the time when it came, or sends it on.
func (l *listener) replayed(ctx context.Context, r *received, again bool) error {
	canonical := http.Header{}
	for name, values := range r.Header {
		canonical[textproto.CanonicalMIMEHeaderKey(name)] = values
	}
	r.Header = canonical
	if l.forward == nil {
		l.now = func() time.Time { return r.Time }
		r.Causes = nil
		l.judge(r)
		l.print(r)
		return nil
	}
	if again {
		if err := l.signAgain(r); err != nil {
			return err
		}
	}
	l.judge(r)
	req, err := onward(ctx, l.forward, r)
	if err != nil {
		return fail(exitUsage, "", "--forward: %w", err)
	}
	resp, err := forwarder.Do(req)
	if err != nil {
		return fail(exitUnavailable, "is it running?", "the target of --forward doesn't answer: %w", unreached(err))
	}
	_ = resp.Body.Close()
	r.Status = resp.StatusCode
	l.print(r)
	return nil
}

// signAgain gives a recorded request a fresh timestamp and signature.
func (l *listener) signAgain(r *received) error {
	now := l.now().Unix()
	switch l.scheme {
	case "standard":
		ks, err := keys(l.secrets[:1])
		if err != nil {
			return err
		}
		signer, err := signing.NewSigner(ks...)
		if err != nil {
			return badSecret(err)
		}
		r.Header.Set(signing.HeaderTimestamp, strconv.FormatInt(now, 10))
		r.Header.Set(signing.HeaderSignature, signer.Sign(r.Header.Get(signing.HeaderID), now, r.body()))
	case "purple-wolf":
		key, err := signing.RawSecret([]byte(l.secrets[0]))
		if err != nil {
			return badSecret(err)
		}
		signer, err := signing.NewPurpleWolf(key)
		if err != nil {
			return badSecret(err)
		}
		r.Header.Set(signing.PurpleWolfTimestamp, strconv.FormatInt(now, 10))
		r.Header.Set(signing.PurpleWolfSignature, signer.Sign("", now, r.body()))
	default:
		return usage("--sign-again signs as standard and purple-wolf do")
	}
	return nil
}
