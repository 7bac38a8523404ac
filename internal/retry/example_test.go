package retry_test

import (
	"fmt"
	"time"

	"github.com/surehook/surehook"
	"github.com/surehook/surehook/internal/retry"
)

// A receiver that asks for two minutes gets them; the table says five seconds.
func ExampleNext() {
	policy := surehook.RetryPolicy{
		Waits:            []time.Duration{5 * time.Second, 5 * time.Minute},
		JitterHigh:       0.2,
		HonourRetryAfter: true,
	}
	after := retry.After([]string{"120"}, time.Now())
	fmt.Println(retry.Next(policy, 1, 0, 0))
	fmt.Println(retry.Next(policy, 1, after, 0))
	fmt.Println(retry.Next(policy, 3, 0, 0))
	// Output:
	// 5s true
	// 2m0s true
	// 0s false
}
