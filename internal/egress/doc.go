// Package egress performs exactly one delivery attempt: it judges a URL,
// resolves and dials under the guard, sends one request and reads a bounded
// answer.
//
// What it guarantees:
//
//   - No packet goes to an address that isn't public, unless the operator
//     allowed its network. Every address of an answer is judged, the connection
//     goes to a judged address, and the judgement is repeated on the address
//     that the kernel is asked to connect to. A pooled connection is reused
//     only while its peer is in the latest answer.
//   - One call of [Client.Do] puts at most one copy of the request on the wire.
//     Nothing is resent and no redirect is followed.
//   - One deadline covers resolving, connecting, TLS, writing and waiting. A
//     response body, slow, endless or cut, never changes the outcome that the
//     response head decided.
//   - The request target is the registered URL's path and query, byte for byte;
//     Content-Length is always sent.
//   - Neither path, query nor header values ever reach an error text.
package egress
