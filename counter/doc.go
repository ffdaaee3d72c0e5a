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
// arithmetic here is for any layout: it decides as n+1 counters of an nth would. A [Kind]
// says what else may be made of the same numbers.
//
// # No field overflows
//
// Numbers grow by INCR alone, which knows no fields: a field that overflowed would carry
// into its neighbour. The ADD that makes a number counts as its first INCR. Senders keep to
// three rules, for each field of each number:
//
//  1. One INCR is on its way at a time. What is counted meanwhile waits for its reply.
//  2. An INCR adds no more than [Layout.Budget], B, less what INCRs without a reply were to
//     add: a shard that has stalled may still execute those.
//  3. While the last reply has the field at [Layout.Stop], S, or above, no INCR adds to it.
//
// Let an INCR be the first to bring the field to S. Before it the field is S − 1 at most.
// What one sender adds from then on, that INCR included, is what it had on its way: INCRs
// without a reply and at most one more, together B at most by the second rule. For when the
// latter is answered, the reply shows S or more, since a field never falls, and by the third
// rule the sender is done; when it is not, it takes up its part of B. So N senders
// leave the field at
//
//	S − 1 + N·B ≤ 3·2^(b−2) − 1 + 2^(b−2) = 2^b − 1
//
// which fits. No time is part of this: clocks may differ, and senders and shards pause for as
// long as they like. A number that is lost, since its shard restarts or it is deleted, begins
// again at 0, where the same holds. A node that restarts forgets what was without a reply, and
// is another sender; N has to provide for that.
//
// A field that is not counted further is at S ≥ 8·threshold, or more. As long as it is
// counted whole, the limit is exceeded whatever else there is. When it is the oldest one,
// that goes on for seven eighths of its time; had all been counted, for some of the last
// eighth too.
//
// # Where numbers are
//
// The numbers live in shards, memcached servers, under keys that a [Secret] makes:
// see [Secret.Tag] and [Secret.CounterKey]. A [Shard] counts in one of them, and never
// counts a request twice. A number belongs to one run of a server, an [Instance]; each reply
// says over which [Link] it came.
package counter
