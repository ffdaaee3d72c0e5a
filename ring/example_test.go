package ring_test

import (
	"fmt"

	"github.com/edgelimit/edge/ring"
)

// While a shard is out, other shards own its keys, and no other key moves.
func Example() {
	shards := map[string]string{"10.0.0.1:11211": "a", "10.0.0.2:11211": "b", "10.0.0.3:11211": "c"}
	var all, without ring.Ring[string]
	if err := all.Set(shards); err != nil {
		fmt.Println(err)
	}
	if err := without.Set(shards, "10.0.0.2:11211"); err != nil {
		fmt.Println(err)
	}
	moved := map[string]int{}
	for i := range byte(200) {
		key := [16]byte{i}
		before := all.Owner(key)
		if after := without.Owner(key); after != before {
			moved[before]++
		}
	}
	fmt.Println(len(moved), moved["b"] > 0)
	// Output: 1 true
}
