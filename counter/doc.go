// Package counter counts requests in windows that all nodes of a PoP share.
//
// # Windows and the estimate
//
// Time is cut into windows of one period, aligned to the Unix epoch. What is known of
// a key is two numbers: prev, how many requests came in the previous window, and cur,
// how many came in the current one so far. With elapsed the part of the current window
// that has passed, the number of requests in the period that ends now is estimated as
//
//	prev·(1−elapsed) + cur
//
// which takes the requests of the previous window as spread evenly. A [Limit] is
// exceeded when the estimate is greater than its threshold. Every decision is made in
// integers: times in microseconds, products in 128 bits. Floats appear only where a
// number is shown.
//
// # Layouts
//
// A number may hold more than one count: a [Layout] of n fields of b bits counts each
// nth of the window apart, so that only the sub-window in which the period begins is
// taken as evenly filled. [Plain], one count of 64 bits, is the estimate above. All
// arithmetic here is for any layout.
//
// # Where numbers are
//
// The numbers live in shards, memcached servers, under keys that a [Secret] makes:
// see [Secret.Tag] and [Secret.CounterKey]. A [Shard] counts in one of them, and never
// counts a request twice.
package counter
