// Package signing signs webhooks and verifies them: Standard Webhooks v1
// (HMAC-SHA256) and v1a (ed25519), and the purple-wolf relay's format. For
// people who receive from elsewhere it also verifies GitHub, Stripe, Shopify
// and Slack.
//
// It guarantees:
//
//   - the signature covers exactly the bytes it is given: nothing is decoded,
//     escaped or trimmed on the way;
//   - a key that can't be read for certain is refused with a reason, never
//     guessed at, and no error, log line or dump of a value holds a key;
//   - signatures are compared in constant time, and a key is never taken from
//     the request.
//
// The scheme is chosen by the constructor or function that is called, never
// inferred from what a secret looks like: Stripe's secrets begin with whsec_
// as well, and mean something else.
//
// The package depends on the standard library alone.
package signing
