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
	for _, r := range []mitigation.Record{start, lift} {
		one.Merge(r, now)
	}
	for _, r := range []mitigation.Record{lift, start} { // the start arrives late
		changed, _ := two.Merge(r, now)
		fmt.Println(changed)
	}

	acts := func(*mitigation.Record) bool { return true }
	fmt.Println(one.Get(key, now, acts) != nil, two.Get(key, now, acts) != nil, one.Digest() == two.Digest())
	// Output:
	// true
	// false
	// false false true
}
