package move

// The keys of a store that keeps days apart begin with the time: milliseconds
// since KeyEpoch, and KeyBits of a number.
const (
	KeyBits    = 22
	KeyEpoch   = 1_577_836_800_000              // 2020-01-01 in Unix ms
	LastMoment = KeyEpoch + 1<<(63-KeyBits) - 1 // that a key has room for
)
