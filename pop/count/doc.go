// Package count counts requests in shards and finds out which keys exceed a limit.
//
// # One loop
//
// A request offers its key to a queue, which merges what comes in a few milliseconds. One
// goroutine, [Loop.Run], owns what is known of all keys, so that it needs no locks for that. It
// takes what the queue has gathered and evaluates each key by what this node knows for certain: the
// last answers of the shards and its own requests since, counted or not. That is a lower bound of the estimate, whatever
// the shards do. Then it sends each shard a batch, and goes on: the exchange is another goroutine's,
// which brings back the answers.
//
// A batch holds one INCR for each key and window, whose reply is what all nodes counted together,
// and for a key that is first seen in a window reads of the previous window and of its record. Keys
// near their threshold go first, then those that have waited longest. A key is in one batch at a time. What comes
// meanwhile waits for the answer.
//
// The same code runs without goroutines: [Loop.Flush], [Loop.Step].
//
// # Accounts
//
// Each request of each limit is in a counter, in the metric edge_increments_dropped_total by cause,
// or in an increment whose outcome is unknown. An increment is sent again only if it was provably
// not made. A shard that has no memory for a counter refuses it: then the node counts by itself
// until the window is over, under the cause shard_full.
//
// # Bounds
//
// Options.TrackedKeys bounds the keys in memory, whatever shards do. At the bound the key that was
// unused for longest goes, of those that are far from their threshold first. What it had not sent
// is dropped under the cause key_forgotten, or shard_unavailable.
//
// # Changes of the shards
//
// While a shard is out its keys belong to others: [Loop.SetOut], [Loop.SetShards]. No
// count is copied then. Each request is counted at one shard, the one that owned its key on
// the node that it came to, so that the number of a window is the sum of the numbers at all
// shards that owned the key in it, and that can never be more than was requested. A node
// remembers who owned what in the last 8 placements. It reads what a former owner has when
// it first counts a key after the change, and once more when all nodes have followed. What
// was provably not sent goes to the new owner; what was sent and not answered does not. A
// former owner that is dead keeps its last known number, as a lower bound.
//
// So a change lets a client pass the threshold once more at most. Nodes that have not
// followed it yet know of all that is counted at the former owner, which exceeds the
// threshold no more than ever; those that have know of all that is counted at the new one.
// Once the change has settled all nodes know of both. The same holds where the former owner
// is dead: then what a node never heard of it is lost, the threshold at most.
//
// # Without shards
//
// A node whose shards are all down or out counts by itself, with the same rules, and says so
// in its log and in the metric edge_counting_alone. Keys wait, within bounds, to be sent; a
// shard that is down is probed until it answers. Until then a key of a rule with
// on_failure: open is not mitigated anew: only what a shard has counted is held against it.
//
// # Clocks
//
// Windows are those of each node's clock: there is nobody to ask. Where clocks differ by d,
// a node that is behind finds in the window that begins what others have counted there for d
// already, and one that is ahead weighs the window before by less. So estimates differ by
// d/period of what was counted in that window. A client that sends n requests a period, evenly,
// is never refused while n·(1+d/period)+1 is within the threshold: with 200 ms and periods of
// 10 s and more, at 95% of thresholds from 34.
//
// While one node is in the next window and another is not, for d, each counts in its own. So
// clients that send at both may pass the threshold in each, twice the threshold in all. A node
// that is ahead reads the window before once more when the others have left it:
// [Options.Ahead]. Of 100 requests in 10 s, with clocks 200 ms apart and with equal ones,
// passed:
//
//	333 requests a second at both nodes while the edges pass      134   101
//	exhausts one node, then the one that is ahead                 104   101
//	100 at once around the edges                                  100   100
//	100, and half a window later at the one that is behind         52    53
//	100, and half a window later at the one that is ahead          54    53
//
// These are the scenarios clocks_edge and clocks_equal of package pop.
//
// # Sub-windows
//
// The number of a window may hold a count for each of its parts: see [counter.Layout]. One
// INCR carries what came in all of them, so that they cost no operation. What a node knows of
// them is added and compared field by field, and where a field cannot hold it stays at the
// most that it can, more than ten times the threshold.
//
// That no field at a shard overflows is proved in package counter, from rules that a tally
// keeps: a key is at work in one place at a time, so that one INCR is in flight; what exceeds
// the budget of a field waits for its reply, and what was sent without a reply takes up
// budget for the rest of the window. So a lost reply costs a few counts of room, and many of
// them leave the node with its own evidence alone. Senders are counted twice for each node of
// the PoP, and as 16 nodes at least: a node that restarts, has forgotten a key, or has set its
// clock by windows, does not know of its last INCRs. A key that comes back to a former owner
// finds its budget there as it left it.
//
// How many nodes there are is what a node is told, or the most that it has heard of at once,
// if that is more. One that starts has heard of none: a PoP of more than 16 nodes whose rules
// have sub-windows is to tell them all. A layout is for [MostNodes] at most, 128 for six
// sub-windows; [CheckNodes] refuses rules that have more. Where a node hears of more only
// later, it sends nothing to such numbers any more, so that no field overflows: it counts
// these limits by itself, with the cause too_many_nodes and the metric
// edge_limits_counted_alone, as it does without shards. What its rules have besides is counted
// as ever.
//
// A field that is full belongs to a client that is over by far. Its further requests are
// counted under the cause sub_window_full alone.
//
// # Other sub-windows
//
// A reload that changes the sub-windows of a limit leaves the counters behind. They are read
// once more with a key's next count, with each count for as long as other nodes may not have
// loaded the rules, and after that once. A period later they are left alone: nothing in them is
// in the period any more.
//
// Until then all that is known is added up in each of the layouts and estimated as it was by the
// rule that had it, and the limit is exceeded if one of these estimates says so. What was counted
// in other layouts is taken for requests of the sub-window in which its own begins. So it weighs
// no more than if it had been counted in this one, and a client that exceeds the limit by none of
// the estimates is not refused, however often they change. And no gate opens: in each layout all
// requests of the current window count whole, and where the sub-windows of one are parts of the
// other's, nothing is lost of what the latter would say if it had been the only one.
//
// A node that starts anew knows nothing of the rules before: while sub-windows change, reload
// rather than restart, or a client may pass the threshold once more.
//
// # Bounds of knowledge
//
// What a node knows of a key never exceeds what was really requested: unknown outcomes
// and lost counters make it less, nothing makes it more. So no client is refused for
// requests that it did not make.
package count
