package async_test

import (
	"fmt"
	"hash/maphash"
	"time"

	"github.com/edgelimit/edge/async"
)

// Offers of a key are merged while they wait.
func Example() {
	seed := maphash.MakeSeed()
	q := async.NewQueue(async.QueueOptions[string, int]{
		Hash:  func(key string) uint64 { return maphash.String(seed, key) },
		Merge: func(queued *int, offered int) { *queued += offered },
		Size:  func(n *int) uint64 { return uint64(*n) },

		Capacity: 1000,
		Interval: 2 * time.Millisecond,
	})
	for range 3 {
		q.Offer("192.0.2.1", 1, false)
	}
	waiting, _, ok := q.Offer("192.0.2.1", 10, false)
	fmt.Println(waiting, ok, q.Len())

	q.Flush(func(items []async.Item[string, int]) {
		for _, item := range items {
			fmt.Println(item.Key, item.Value)
		}
	})
	// Output:
	// 13 true 1
	// 192.0.2.1 13
}
