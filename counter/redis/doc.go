// Package redis counts in shards that are Redis or Valkey servers.
//
// A [Client] exchanges batches as package wire does with any shard: all increments, stores and reads in one pipeline on
// one connection, of which it knows which commands were provably not sent. An INCRBY never misses: it makes a counter
// that the server has lost anew, without an end. Its value shows that, and an EXPIRE follows. A record is compared and
// replaced by a script. Numbers are signed, so a counter that reaches 2^63 is refused, and each node counts alone for
// it.
package redis
