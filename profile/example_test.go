package profile_test

import (
	"fmt"

	"github.com/surehook/surehook"
	"github.com/surehook/surehook/profile"
)

// The same answer means different things to different systems.
func ExampleClassify() {
	for _, name := range profile.Names() {
		p, _ := profile.ByName(name)
		fmt.Println(name, profile.Classify(p, surehook.Status410, 410), profile.Classify(p, surehook.Status4xx, 404))
	}
	// Output:
	// standard disable retry
	// pylota disable retry
	// sentinel dead retry
	// purple-wolf dead dead
}
