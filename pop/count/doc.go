// Package count counts requests in shards and finds out which keys exceed a limit.
//
// # One loop
//
// A request offers its key to a queue, which merges what comes within a few milliseconds. One
// goroutine, [Loop.Run], owns what is known of all keys, so it needs no locks for that. It takes
// what the queue has gathered and evaluates each key by what this node knows for certain: the
// last answers of the shards, and its own requests since. That is a lower bound of the estimate,
// whatever the shards do. Then it sends each shard a batch and goes on: another goroutine waits
// for the answers and brings them back.
//
// A batch holds one INCR for each key and window, whose reply is what all nodes counted together,
// and for a key that is first seen in a window reads of the previous window and of its record.
// Keys near their threshold go first, then those that have waited longest. A key is in one batch
// at a time; what comes meanwhile waits for the answer.
//
// The same code runs without goroutines: [Loop.Flush], [Loop.Step].
//
// # Accounts
//
// Each request of each limit is in a counter, in the metric edge_increments_dropped_total by cause,
// or in an increment whose outcome is unknown. An increment is sent again only if it was provably
// not made. What a node knows of a key never exceeds what was requested: unknown outcomes and lost
// counters make it less, nothing makes it more. So no client is refused for requests that it did
// not make.
//
// Options.TrackedKeys bounds the keys in memory, whatever shards do. At the bound the key that was
// unused for longest is forgotten, of those that are far from their threshold first.
//
// # Changes of the shards
//
// While a shard is out its keys belong to others: [Loop.SetOut], [Loop.SetShards]. No count is
// copied. Each request is counted at one shard, the one that owned its key on the node that it
// came to, so the number of a window is the sum of the numbers at all shards that owned the key
// in it. A node remembers the last 8 placements. It reads what a former owner has when it first
// counts a key after the change, and once more when all nodes have followed. A former owner that
// is dead keeps its last known number, as a lower bound. So a change lets a client pass the
// threshold once more at most.
//
// A node whose shards are all down or out counts by itself. Keys wait, within bounds, to be sent;
// a shard that is down is probed until it answers. Until then a key of a rule with on_failure:
// open is not mitigated anew.
//
// # Sub-windows
//
// The number of a window may hold a count for each of its parts: see [counter.Layout]. No field
// at a shard overflows. A key has one INCR in flight; what exceeds the budget of a field waits
// for its reply, and what was sent without a reply takes up budget for the rest of the window.
// Each node counts as two senders, since one that restarts, has forgotten a key, or has set its
// clock by windows does not know of its last INCRs. Where the PoP has more nodes than a layout
// has room for, each node counts such limits by itself, under the cause too_many_nodes. Requests
// that a full field does not take are counted under the cause sub_window_full alone: their
// client is over by far.
//
// A reload that changes the sub-windows of a limit leaves the counters behind. They are read
// until all nodes have loaded the rules and once after that, and count until nothing in them is in
// the period any more: all that is known is added up in each of the layouts, and the limit is
// exceeded if one of these estimates says so. What was counted in another layout is taken for
// requests of the sub-window in which its own begins, so it weighs no more than if it had been
// counted in this one: no innocent client is refused, and no gate opens. A node that starts anew
// knows nothing of the rules before: while sub-windows change, reload rather than restart.
package count
