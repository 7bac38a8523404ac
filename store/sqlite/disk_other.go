//go:build !unix

package sqlite

// diskFree isn't known here: a full disk is met when it is full.
func diskFree(string) (int64, bool) { return 0, false }
