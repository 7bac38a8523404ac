//go:build !race

package signing

// What Sign may allocate: the string that it returns.
const signAllocs = 1
