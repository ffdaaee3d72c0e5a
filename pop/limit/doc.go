// Package limit decides about requests, and counts them.
//
// # The decision
//
// [Limiter.Decide] matches a request against the rules, makes the key of each rule that
// concerns it and looks the key up in the table of mitigations. It reads memory only: it
// never waits, never allocates for ordinary requests and never returns an error. Trouble
// in the infrastructure is counted, and the request passes: the limiter fails open.
//
// # The counting work
//
// What passes is offered to a queue. [Limiter.Run] flushes the queue every few
// milliseconds: one INCR for each key and window, sent to the shard that owns the key,
// whose reply is what all nodes counted together. Where the estimate is above a
// threshold, a record is merged into this node's table, passed on to the other nodes, and
// stored beside the counters.
//
// What a node knows of a key never exceeds what was really requested: unknown outcomes
// and lost counters make it less, nothing makes it more. So no client is refused for
// requests that it did not make.
package limit
