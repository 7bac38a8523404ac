package console

import (
	"fmt"
	"net/http"
	"strconv"
	"strings"
)

// said is what a code of an attempt means, and what to do about it.
type said struct{ what, then string }

// codes says for every outcome what happened, in words for who runs the receiver.
var codes = map[string]said{
	"timeout":            {"The receiver didn't answer in time.", "Answer with 2xx as soon as the request is stored, and do the work afterwards."},
	"dns":                {"The receiver's host name has no address.", "Check the URL for a slip, and the name's DNS records."},
	"tls":                {"The TLS handshake failed, or the certificate was refused.", "Check that the certificate is valid, not expired, for this host name, and sent with its intermediates."},
	"connect":            {"No connection to the receiver could be made, or it broke before an answer.", "Check that the receiver runs, listens on this port, and that no firewall is in between."},
	"redirect":           {"The receiver answered with a redirect, which is never followed.", "Register the URL that the redirect leads to."},
	"status_4xx":         {"The receiver refused the request.", "See what it said. Often it is the signature: check the secret, and that the raw body is verified."},
	"status_410":         {"The receiver answered 410 Gone, which means: stop for ever.", "Enable the endpoint again once the receiver takes requests."},
	"status_429":         {"The receiver asked for fewer requests.", "Set a rate for the endpoint, or raise the receiver's limit."},
	"status_5xx":         {"The receiver failed while it handled the request.", "See what it said, and its log at that time."},
	"ssrf_blocked":       {"The host leads to an address that must not be reached, such as a private one.", "Use a host name with public addresses alone."},
	"invalid_url":        {"The URL isn't one that may be delivered to.", "Change the endpoint's URL."},
	"secret_unavailable": {"The endpoint's secret can't be unsealed: the master key is another one.", "Rotate the endpoint's secret, or start the server with the master key that sealed it."},
	"event_unavailable":  {"The event's data is gone: it was erased, or left retention.", "It can't be delivered any more. Publish a new event if it is still needed."},
	"endpoint_disabled":  {"The endpoint was disabled while the delivery waited.", "Enable the endpoint, then replay its dead letters."},
	"inbox_full":         {"Its inbox was full, and this was the oldest that waited.", "Pull more often. It can be replayed, which puts it at the end of the inbox."},
	"session_ended":      {"The session ended before it was pulled.", "Begin the session anew, enable what feeds it, then replay."},
	"sentinel_expired":   {"The sentinel's time was over before it was sent.", "Make the sentinel again with a later end if its events are still needed."},
	"sentinel_removed":   {"The sentinel was removed before it was sent.", "Nothing needs to be done, unless it was removed by mistake: then make another one."},
	"sentinel_full":      {"More waited for its sentinel than may wait, and this was the oldest.", "Repair the receiver, or raise --sentinel-queue."},
	"payload_too_large":  {"The body was larger than the profile allows.", "Publish less data, or use the thin envelope."},
	"crashed":            {"The server's process ended again and again during this delivery.", "See the server's log; replay the delivery alone."},
}

// reason says what an outcome's code means.
func reason(code any, status int) string {
	c := fmt.Sprint(code)
	s, ok := codes[c]
	if !ok {
		return c
	}
	if status == 0 {
		return s.what
	}
	return fmt.Sprintf("%s (%s)", strings.TrimSuffix(s.what, "."), strings.TrimSpace(strconv.Itoa(status)+" "+http.StatusText(status)))
}

// advice says what to do about it.
func advice(code any) string { return codes[fmt.Sprint(code)].then }

// disabledBecause says why an endpoint is disabled, and what ends that.
var disabledBecause = map[string]said{
	"manual":      {"Somebody disabled it.", "Enable it when it should get events again. What was published meanwhile isn't queued; replay brings it."},
	"failing":     {"It failed for too long, so it was disabled.", "Repair the receiver, send a test, then enable it and replay what it missed."},
	"gone":        {"The receiver answered 410 Gone, so it was disabled.", "Enable it if the receiver takes requests again."},
	"url_changed": {"Its URL was changed.", "Send a test: when it passes, the endpoint is enabled."},

	"session_not_alive": {"The session that pulled its events has ended.", "Have the session's reader begin it anew, then enable this."},
	"expired":           {"Its sentinel's time is over.", "Remove the sentinel; make another one to watch on."},
}

// watchStates say what a sentinel's status means, and what to do about it.
var watchStates = map[string]said{
	"paused":   {"It is paused.", "Nothing matches, and what happens meanwhile isn’t made up for. What was matched before is delivered."},
	"error":    {"Its provider can’t watch.", "Mend what it says; it tries again by itself. Events that come another way match all the same."},
	"orphaned": {"Its session has ended.", "Nothing matches any more. Remove it, and make another one for a session that lives."},
	"expired":  {"It has ended, as it was meant to.", "Nothing matches any more. It stays here until it is removed."},
}

// why puts the last error of a sentinel's deliveries in plain words.
func why(text any) string {
	code, status, _ := strings.Cut(strings.TrimPrefix(fmt.Sprint(text), "delivered_rejected: "), ": HTTP ")
	n, _ := strconv.Atoi(status) // 0: there was no answer
	return reason(code, n)
}

// done are the notes that a page shows after a change, by what its URL says.
var done = map[string]string{
	"created":     "The endpoint was created.",
	"saved":       "Saved.",
	"paused":      "Paused: deliveries wait until you resume.",
	"resumed":     "Resumed: what waited is being sent.",
	"enabled":     "Enabled.",
	"disabled":    "Disabled: nothing is queued for it any more.",
	"deleted":     "Deleted.",
	"revoked":     "The old secret doesn't sign any more.",
	"key":         "The key was revoked.",
	"unwatched":   "Paused: nothing matches until you resume.",
	"watched":     "Resumed: it watches again.",
	"secret":      "The callback passed the challenge, and the new secret signs. The old one signs beside it for 10 minutes.",
	"unwatching":  "Removed: its secret is gone, and nothing is watched.",
	"closed":      "Closed: nothing waits for it any more.",
	"replayed":    "Queued: the next attempts are on their way.",
	"started":     "The replay runs in the background; this page shows its progress.",
	"cancelled":   "The replay was cancelled. What it had queued stays queued.",
	"discarded":   "Discarded.",
	"in-progress": "An attempt is being made right now; nothing was changed.",
}
