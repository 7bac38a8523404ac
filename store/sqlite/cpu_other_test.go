//go:build !unix

package sqlite

import "time"

// cpuTime isn't measured here.
func cpuTime() time.Duration { return 0 }
