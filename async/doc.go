// Package async counts requests off the request path, in shards, and mitigates the keys that exceed
// a limit.
//
// # Steps
//
// A request is offered to a queue (offer.go, queue.go), which merges the offers of a few milliseconds. One goroutine,
// [Loop.Run], owns the state of all keys (track.go): only it changes that state. Requests read the counts
// under a lock. The loop
//
//   - flushes the queue into the tracks of their keys (loop.go), and evaluates each by the counts that this node is
//     sure of, whatever the shards do;
//   - sends each shard a batch (batch.go): an INCR for each key and window and, for a key that is new in a window,
//     reads of the previous window and of the record. Keys near their threshold go first, then those that have waited
//     longest. Counts of networks and labels, to which many requests belong, are held for up to 100 ms (shards.go);
//   - handles the answers (batch.go), for which other goroutines wait;
//   - evaluates (evaluate.go), and mitigates a key that exceeds a limit (mitigate.go): a record is merged into this
//     node's table, sent to the peers, and stored alongside the counters.
//
// [Loop.Flush] and [Loop.Step] run the same code without goroutines.
//
// # What a node knows
//
// For each key and window, a node knows the size of a set of requests that the PoP received and that do not wait at
// this node (batch.go). Own requests join the set when they are sent, and leave it if they were provably not counted;
// otherwise the set only grows. A reply v is the size of another such set: the requests that some server has counted,
// each once, and those with which the counter was created, which another server had counted before. Neither set
// contains requests that wait here. So the greater of the two sizes is valid, whichever server has answered, and no
// client is refused for requests that it did not make. This holds field by field, under four conditions:
//
//   - a reply counts only for the state that sent the operation: see slot;
//   - a key is in one batch at a time, its increments before its reads, on one connection;
//   - nothing repeats an INCR, unless it was provably not made;
//   - an offer reads the known and the waiting counts while its stripe is locked, so no request is in both or in
//     neither.
//
// A counter that must be created starts with the greatest value of any reply, so that counts survive restarts,
// evictions and changes of the ring. If a node that knows less creates it, a client gets its threshold at most once
// more.
//
// # Accounting
//
// For each limit, each request is counted in a counter or as a drop in edge_increments_dropped_total, or
// its increment has an unknown outcome.
//
// Options.TrackedKeys bounds the keys in memory, whatever the shards do. At the bound, a key that was
// not used recently is evicted, preferably one that is far from its threshold.
//
// A node whose shards are all down or out counts alone. It keeps a bounded number of keys that wait to be sent, and
// probes a shard that is down until it answers. Until then, keys of a rule with on_failure: open get no new
// mitigations.
//
// # Sub-windows
//
// The value of a window may hold a count for each of its sub-windows: see [counter.Layout]. No field at a shard
// overflows. A key has one INCR in flight; requests beyond the budget of a field wait for its reply, and an INCR
// without a reply uses up budget for the rest of the window. Each node counts as two senders, since a node that
// restarts, evicts a key, or moves its clock by whole windows forgets its last INCRs. If the PoP has more nodes than a
// layout has room for, each node counts such limits alone, under the cause too_many_nodes. Requests that do not fit in
// a full field are counted only under the cause sub_window_full: their client is far over its limit.
//
// If a reload changes the sub-windows of a limit, the result is a new limit, with new counters.
package async
