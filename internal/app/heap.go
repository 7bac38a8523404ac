package app

import "os"

// heapFloor is memory that is never touched, and so never resident. It counts
// as live all the same, so that the collector, which runs when the heap has
// doubled, doesn't run at every few megabytes of a small heap: that took a fifth
// of the time of a busy server. The heap gets at most this much larger by it.
var heapFloor []byte

// RaiseHeapFloor sets the floor once, unless GOGC is the operator's choice.
func RaiseHeapFloor() {
	if heapFloor == nil && os.Getenv("GOGC") == "" {
		heapFloor = make([]byte, 12<<20)
	}
}
