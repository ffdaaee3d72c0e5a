// Package async counts requests off the request path, in shards, and mitigates the keys that exceed
// a limit.
//
// # One loop
//
// A request offers its key to a [Queue], which merges the offers of a few milliseconds. One
// goroutine, [Loop.Run], owns the state of all keys, so that state needs no locks. It drains the
// queue and evaluates each key by what this node knows for certain: the last answers of the
// shards and its own requests since. That is a lower bound of the estimate, whatever the shards
// do. Then it sends each shard a batch and continues. Other goroutines wait for the answers and
// return them to the loop.
//
// A batch holds one INCR for each key and window; its reply is the count of all nodes. For a key
// that is new in a window, the batch also reads the previous window and the record. Keys near
// their threshold go first, then those that have waited longest. A key is in one batch at a time;
// later requests wait for the answer.
//
// If an estimate exceeds its threshold, a record is merged into this node's table, sent to the
// peers, and stored alongside the counters.
//
// [Loop.Flush] and [Loop.Step] run the same code without goroutines.
//
// # Accounting
//
// For each limit, each request is counted in a counter or as a drop in edge_increments_dropped_total, or
// its increment has an unknown outcome. An increment is retried only if it was provably
// not made. A node's count of a key never exceeds the requests that were made: unknown outcomes
// and lost counters lower it, nothing raises it. So no client is refused for requests that it did
// not make.
//
// Options.TrackedKeys bounds the keys in memory, whatever the shards do. At the bound, a key that was
// not used recently is evicted, preferably one that is far from its threshold.
//
// # Counters that are no longer incremented
//
// While a shard is out, other shards own its keys: [Loop.SetOut], [Loop.SetShards]. A reload that
// changes the sub-windows of a limit starts new counters: [Loop.SetRules]. Counts are never
// copied: the former counters still count until they have left the period. They are read with
// the key's counts until all nodes have made the change, and once after that. The last known value
// of a dead shard still counts, as a lower bound. So a change lets through at most one more threshold's worth
// of a client's requests. A node remembers the last 8 placements of keys; after a restart it knows neither
// former placements nor former rules. To change sub-windows, reload rather than restart.
//
// The counts of former layouts are added to the others in each of the layouts, and the limit is
// exceeded if one of these estimates exceeds it. Requests from another layout count in the field
// in which their own sub-window begins, so they never weigh more than if they had been counted
// there: no innocent client is refused, and none is missed because of the change.
//
// A node whose shards are all down or out counts alone. A bounded number of keys waits to be sent;
// a shard that is down is probed until it answers. Until then, keys of a rule with on_failure:
// open get no new mitigations.
//
// # Sub-windows
//
// The value of a window may hold a count for each of its sub-windows: see [counter.Layout]. No
// field at a shard overflows. A key has one INCR in flight; requests beyond the budget of a field
// wait for its reply, and an INCR without a reply uses up budget for the rest of the window. Each
// node counts as two senders, since a node that restarts, evicts a key, or moves its clock by
// whole windows forgets its last INCRs. If the PoP has more nodes than a layout has room for,
// each node counts such limits alone, under the cause too_many_nodes. Requests that do not fit a
// full field are counted only under the cause sub_window_full: their client is far over its limit.
package async
