// Package memcached counts in shards, memcached servers that own parts of a PoP's counters.
//
// A [Client] sends a node's counts to one shard. It writes a [Batch] of increments, reads and
// records together, and limits the size of every line and value that it reads. It never counts a
// request twice: the [counter.Outcome] of each operation tells whether it may be sent again. Rare
// operations, such as storing which shards are drained, use gomemcache.
package memcached
