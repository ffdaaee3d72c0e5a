package mitigation_test

import (
	"fmt"
	"time"

	"github.com/edgelimit/edge/counter"
	"github.com/edgelimit/edge/mitigation"
)

// Two nodes exchange records in any order, and agree.
func Example() {
	now := time.Now()
	key := counter.Key{1}
	start := mitigation.Record{Key: key, Start: now.UnixMicro(), Lifetime: time.Minute, Node: 1, Deadline: now.Add(time.Minute)}
	lift := start
	lift.Lifted = true

	one := mitigation.New(mitigation.Options{})
	two := mitigation.New(mitigation.Options{})
	fmt.Println(one.Merge(start, now), one.Merge(lift, now))
	fmt.Println(two.Merge(lift, now), two.Merge(start, now)) // the start arrives late and changes nothing

	acts := func(*mitigation.Record) bool { return true }
	fmt.Println(one.Get(key, now, acts) != nil, two.Get(key, now, acts) != nil, one.Digest() == two.Digest())
	// Output:
	// true true
	// true false
	// false false true
}
