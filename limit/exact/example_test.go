package exact_test

import (
	"fmt"

	"github.com/edgelimit/edge/limit/exact"
)

// Four requests, at 0, 10, 20 and 65 s, counted over a minute.
func Example() {
	const second, minute = 1_000_000, 60_000_000
	var log exact.Log
	for _, t := range []int64{0, 10 * second, 20 * second, 65 * second} {
		fmt.Print(log.Add(t, minute), " ")
	}
	fmt.Println(log.Over(2, 71*second, minute), log.Back(1, minute)/second)
	// Output: 1 2 3 3 false 80
}
