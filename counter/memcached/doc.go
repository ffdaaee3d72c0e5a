// Package memcached counts in shards, memcached servers that own parts of a PoP's counters.
//
// A [Client] sends what a node counts to one shard: a [Batch] of increments, reads and records in
// one write, whose replies are read with bounds on every line and value. It never counts a
// request twice: an [Outcome] says of each operation whether it may be sent again. Rare
// operations, such as storing which shards are drained, use gomemcache.
//
// A counter belongs to one run of a server, an [Instance]; each reply comes over a [Link].
package memcached
