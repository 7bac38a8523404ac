package surehook

import (
	"context"
	"time"
)

// Poll is how far a provider that looks for events itself has looked at a subject,
// for all sentinels that watch it.
type Poll struct {
	Provider  string
	Subject   string
	Sentinels []string // ids of those that watch it, in the order in which they came
	State     []byte   // the provider's own
	Due       time.Time
	Failures  int    // in a row
	Error     string // of the last look, for people; never a secret
}

// MaxPollSentinels bounds how many sentinels may share a poll.
const MaxPollSentinels = 10_000

// Polls keeps polls.
type Polls interface {
	// WatchPoll has a sentinel share the poll of a subject; the first one makes it,
	// with this state, due after wait. A sentinel that does already changes nothing.
	WatchPoll(ctx context.Context, provider, subject, sentinel string, state []byte, wait time.Duration) error
	// UnwatchPoll ends that, if it was so. The last one takes the poll with it.
	UnwatchPoll(ctx context.Context, provider, subject, sentinel string) error
	// ClaimPolls gives polls of a provider, the longest due first, and puts each off
	// by hold, so that no other node looks meanwhile: at most limit of those that are
	// due, or, with subjects, those whether due or not. next is how long it is until
	// the next one is due, held ones included; negative: there are no polls.
	ClaimPolls(ctx context.Context, provider string, subjects []string, hold time.Duration, limit int) (polls []*Poll, next time.Duration, err error)
	// SavePoll stores State, Failures and Error of a poll as it was claimed, and makes
	// it due after wait. It does nothing, and says so, when the poll is gone or was
	// claimed again meanwhile.
	SavePoll(ctx context.Context, p *Poll, wait time.Duration) (saved bool, err error)
}
