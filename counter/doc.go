// Package counter has the windows, estimates, layouts and keys by which the nodes of a PoP count together. Packages
// memcached and redis send the counts.
//
// # Windows and the estimate
//
// Time is divided into windows of one period, aligned to the Unix epoch. Each key has two values: prev, the number of
// requests in the previous window, and cur, the number in the current one so far. If elapsed is the fraction of the
// current window that has passed, the number of requests in the period that ends now is estimated to be
//
//	prev·(1−elapsed) + cur
//
// which assumes that the requests of the previous window were spread evenly. A [Limit] is exceeded when the estimate is
// greater than its threshold. All decisions use integer arithmetic: times in microseconds, products in 128 bits. Floats
// are only for display.
//
// # Layouts
//
// A value may hold more than one count: a [Layout] of n fields of b bits counts each 1/n of the window separately, so
// that only the sub-window in which the period begins is assumed to be filled evenly. [Plain], one count of 64 bits,
// gives the estimate above. All arithmetic here works for any layout: it decides like n+1 separate counters, each for
// 1/n of a window. A [Kind] selects the estimate.
//
// # No field overflows
//
// Values grow only by INCR, which knows nothing of fields: a field that overflowed would carry
// into its neighbor. The ADD that creates a counter counts as its first INCR. Senders follow
// three rules, for each field of each value:
//
//  1. One INCR is in flight at a time. Further requests wait for its reply.
//  2. An INCR adds at most [Layout.Budget], B, less the sum of the INCRs that got no reply:
//     a stalled shard may still execute those.
//  3. If the field in the last reply is [Layout.Stop], S, or more, no INCR adds to it.
//
// Consider the first INCR that brings the field to S. Before it the field is at most S − 1. From then on, including
// that INCR, each sender adds only what it had in flight: INCRs without a reply and at most one more, together at most
// B by the second rule. If the latter gets a reply, that shows S or more, since a field never falls, and by the third
// rule the sender stops; if it gets none, it uses up its part of B. So N senders leave the field at
//
//	S − 1 + N·B ≤ 3·2^(b−2) − 1 + 2^(b−2) = 2^b − 1
//
// which fits. The proof does not depend on time: clocks may differ, and senders and shards may pause. A counter that is
// lost, because its shard restarts or evicts it, starts again at 0, and the proof with it. A node that restarts forgets
// its INCRs without a reply, so it is another sender; N must allow for that.
//
// A full field holds at least S ≥ 8·threshold. While it counts as a whole, the limit is exceeded whatever the other
// fields hold. While it is the oldest field, the limit stays exceeded for the first seven eighths of that time; only in
// the last eighth do uncounted requests matter.
//
// # Where counters are
//
// Counters live in shards, servers of memcached or Redis, under items that a [Secret] derives: see
// [Secret.Tag] and [Secret.CounterItem].
package counter
