// Package redis counts in shards that are Redis or Valkey servers.
//
// A [Client] exchanges batches as package wire does with any shard: all increments, stores and reads go in one pipeline
// on one connection, and after an error the client knows which commands were provably not sent. An INCRBY never misses:
// it creates the counter if the server has lost it, without an expiry. Its value shows that, and an EXPIRE follows. A
// script compares and replaces records. Numbers are signed, so the server refuses a counter that reaches 2^63, and each
// node then counts its key alone.
package redis
