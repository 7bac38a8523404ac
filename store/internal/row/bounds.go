package row

import (
	"slices"

	"github.com/surehook/surehook"
)

// OutboxBytes bounds the data that one reading of the outbox gives: it is held in
// memory, and goes into one transaction.
const OutboxBytes = 4 << 20

// ErrLastAdmin refuses to revoke the key that all others are made with.
var ErrLastAdmin = surehook.Errorf(surehook.Conflict, "this is the last admin key; make another one first")

// Admin tells a platform key that can make others.
func Admin(k *surehook.APIKey) bool {
	return k.RevokedAt.IsZero() && k.Tenant == "" && slices.Contains(k.Permissions, surehook.PermAdmin)
}

// TooManyWatch refuses another sentinel on a subject.
func TooManyWatch() error {
	return surehook.Errorf(surehook.LimitReached, "%d sentinels watch this subject already", surehook.MaxPollSentinels)
}

// ErrNumber refuses a number that an inbox hasn't given out.
var ErrNumber = surehook.Errorf(surehook.CursorExpired, "the inbox hasn't come to this cursor")

// NumberStep is how many rows of an inbox get their numbers at once, where so many
// have come: more than a small page needs, so that the next ones find theirs.
const NumberStep = 1000
