// Package receiver is for people who receive webhooks: an http.Handler that
// takes the raw body, verifies it, recognises what it has had before, and only
// then calls your code.
//
//	rc, err := receiver.New(receiver.Standard(secret), receiver.NewMemory(100_000, 24*time.Hour))
//	…
//	http.Handle("POST /hooks", rc.Handle(func(ctx context.Context, m receiver.Message) error {
//		return queue.Add(ctx, m.ID, m.Body) // take it over; do the work later
//	}))
//
// It guarantees:
//
//   - your code sees no request whose signature, time or size is wrong, and it
//     sees the very bytes that were signed;
//   - the sender gets a 2xx only after your code has returned without an error
//     and, with SQL, after the transaction that holds its effect and the
//     event's id is committed. In every other case the sender will try again;
//   - an event that has been done is answered 200 without calling your code;
//   - neither a body nor a secret is ever logged or part of an error.
//
// The scheme is chosen by the function that is called, never guessed from a
// header or from what a secret looks like. The package depends on the standard
// library and on package signing alone.
package receiver
