package egress

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"
	"unicode/utf8"

	"github.com/surehook/surehook"
)

var (
	errClosed   = errors.New("the client is closed")
	errBusy     = errors.New("no free connection to the host")
	errInterim  = errors.New("too many interim answers")
	errNoStream = errors.New("the receiver allows no request on its connection")
	errProtocol = errors.New("the answer isn't valid HTTP: its protocol isn't HTTP/1")
	errStatus   = errors.New("the answer isn't valid HTTP: its status is below 100")
)

// longAgo, as a deadline, ends every wait.
var longAgo = time.Unix(1, 0)

type handshakeError struct{ err error }

func (e *handshakeError) Error() string { return e.err.Error() }
func (e *handshakeError) Unwrap() error { return e.err }

// fail turns an error into the outcome. The order matters: a deadline that
// passed is a timeout even if the context ended since, and only then is an
// ended context a cancellation.
func (c *Client) fail(ctx context.Context, a *attempt, err error) {
	res := &a.res
	var blocked *BlockedError
	var dns *dnsError
	var shake *handshakeError
	var remote *net.OpError
	ended := ctx.Err() != nil
	switch {
	case errors.As(err, &blocked):
		res.Code, res.Err = surehook.SSRFBlocked, blocked.Error()
	case !c.now().Before(a.deadline), ended && errors.Is(context.Cause(ctx), context.DeadlineExceeded):
		res.Code, res.Err = surehook.Timeout, "timed out "+a.phase
	case ended:
		// A code as well, so that nobody who overlooks the flag reads success.
		res.Cancelled, res.Code, res.Err = true, surehook.Connect, "cancelled "+a.phase
	case errors.As(err, &dns):
		res.Code, res.Err = surehook.DNS, dns.text
	case errors.As(err, &shake):
		res.Code, res.Err = surehook.TLS, tlsReason(shake.err)
	case errors.As(err, &remote) && remote.Op == "remote error":
		// TLS 1.3 refuses a client certificate only after the handshake.
		res.Code, res.Err = surehook.TLS, tlsReason(err)
	case errors.Is(err, os.ErrDeadlineExceeded) || errors.Is(err, context.DeadlineExceeded):
		res.Code, res.Err = surehook.Connect, "timed out "+a.phase
	default:
		res.Code, res.Err = surehook.Connect, reasonOf(err)
	}
}

// failResolve is fail for a look-up: one that outlasts its own bound, though
// not the attempt's, is a name server that doesn't answer.
func (c *Client) failResolve(ctx context.Context, a *attempt, err error) {
	if errors.Is(err, context.DeadlineExceeded) {
		err = &dnsError{"the name server didn't answer"}
	}
	c.fail(ctx, a, err)
}

// leaveToProxy reports whether a failed look-up is the proxy's business.
func (c *Client) leaveToProxy(ctx context.Context, a *attempt, err error) bool {
	var dns *dnsError
	return c.proxy != nil && !a.req.Target.lifted && errors.As(err, &dns) && ctx.Err() == nil
}

// reasonOf describes an error in our words. Library texts can hold addresses
// of our own side, the receiver's bytes, or the URL.
func reasonOf(err error) string {
	var phase *phaseError
	var dns *net.DNSError
	switch {
	case errors.As(err, &phase):
		return phase.Error()
	case errors.Is(err, errClosed), errors.Is(err, errBusy), errors.Is(err, errInterim),
		errors.Is(err, errNoStream), errors.Is(err, errHeadTooBig), errors.Is(err, errProtocol), errors.Is(err, errStatus):
		return err.Error()
	case errors.Is(err, syscall.ECONNREFUSED):
		return "connection refused"
	case errors.Is(err, syscall.ECONNRESET), errors.Is(err, syscall.EPIPE):
		return "the receiver broke the connection"
	case errors.Is(err, syscall.EHOSTUNREACH), errors.Is(err, syscall.ENETUNREACH):
		return "the address is unreachable"
	case errors.Is(err, syscall.EADDRNOTAVAIL):
		return "no local port or address is free"
	case errors.Is(err, syscall.EMFILE), errors.Is(err, syscall.ENFILE):
		return "too many open files on our side"
	case errors.As(err, &dns):
		return "the host can't be resolved"
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return "the receiver closed the connection before it answered"
	}
	return protocolReason(err.Error())
}

// protocolReason picks the few library texts that are worth telling apart.
func protocolReason(text string) string {
	switch {
	case strings.Contains(text, "Content-Length"):
		return "the answer has a bad or contradictory Content-Length"
	case strings.Contains(text, "malformed"), strings.Contains(text, "transfer encoding"):
		return "the answer isn't valid HTTP"
	case strings.Contains(text, "GOAWAY"), strings.Contains(text, "http2:"), strings.Contains(text, "stream error"):
		return "the receiver ended the HTTP/2 stream or connection"
	}
	return "the connection failed"
}

func tlsReason(err error) string {
	var host x509.HostnameError
	var unknown x509.UnknownAuthorityError
	var invalid x509.CertificateInvalidError
	var record tls.RecordHeaderError
	var op *net.OpError
	switch {
	case errors.As(err, &host):
		return "the certificate is for another host"
	case errors.As(err, &unknown):
		return "the certificate is signed by an unknown authority"
	case errors.As(err, &invalid) && invalid.Reason == x509.Expired:
		return "the certificate has expired or is not yet valid"
	case errors.As(err, &invalid):
		return "the certificate is invalid"
	case errors.As(err, &record):
		return "the receiver doesn't speak TLS"
	case errors.As(err, &op) && op.Op == "remote error":
		return "the receiver refused: " + strings.TrimPrefix(op.Err.Error(), "tls: ")
	case errors.Is(err, io.EOF), errors.Is(err, syscall.ECONNRESET):
		return "the receiver broke off the TLS handshake"
	}
	return "the TLS handshake failed"
}

// answered records what the answer's head says, which decides the outcome.
func (a *attempt) answered(resp *http.Response) {
	res := &a.res
	res.Status, res.Proto = resp.StatusCode, resp.Proto
	res.Code = codeOf(resp.StatusCode)
	switch res.Code {
	case surehook.OK:
	case surehook.Redirect:
		res.Err = "answered " + strconv.Itoa(res.Status) + "; redirects aren't followed, register the final URL"
	default:
		res.Err = "answered " + strconv.Itoa(res.Status)
	}
	if ct := resp.Header["Content-Type"]; len(ct) > 0 {
		res.ContentType = printable(ct[0], 128)
	}
	for i, v := range resp.Header["Retry-After"] {
		if i == 4 {
			break
		}
		res.RetryAfter = append(res.RetryAfter, printable(v, 64))
	}
}

func codeOf(status int) surehook.Code {
	switch {
	case status >= 200 && status < 300:
		return surehook.OK
	case status >= 300 && status < 400:
		return surehook.Redirect
	case status == http.StatusGone:
		return surehook.Status410
	case status == http.StatusTooManyRequests:
		return surehook.Status429
	case status >= 400 && status < 500:
		return surehook.Status4xx
	}
	return surehook.Status5xx
}

// printable makes a receiver's text safe to store and show: no control
// characters, valid UTF-8, at most limit bytes.
func printable(s string, limit int) string {
	clean := len(s) <= limit
	for i := 0; clean && i < len(s); i++ {
		clean = s[i] >= ' ' && s[i] < 0x7f
	}
	if clean {
		return s
	}
	s = strings.ToValidUTF8(strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f || r == utf8.RuneError {
			return '?'
		}
		return r
	}, s), "?")
	for len(s) > limit {
		_, n := utf8.DecodeLastRuneInString(s)
		s = s[:len(s)-n]
	}
	return s
}
