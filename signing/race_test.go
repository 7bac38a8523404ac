//go:build race

package signing

// The race detector makes sync.Pool drop things at random.
const signAllocs = 6
