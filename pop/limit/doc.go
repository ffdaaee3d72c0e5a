// Package limit decides about requests.
//
// # The decision
//
// [Limiter.Decide] matches a request against the rules, makes the key of each rule that
// concerns it and looks the key up in the table of mitigations. It reads memory only: it
// never waits, never allocates for ordinary requests and never returns an error. Trouble
// in the infrastructure is counted, and the request passes: the limiter fails open, but for
// rules that say on_failure: closed. While the shard that owns the key of such a rule is
// unavailable, a request that no mitigation refuses has the verdict [Unavailable] and is
// counted by none. What is looked at for that is the ring's table and a flag of the shard.
//
// What passes is offered to package count, which calls back where the counts of a key exceed a
// limit. Then a record is merged into this node's table, passed on to the other nodes, and stored
// beside the counters. A request that shows by itself that its key is over, together with those
// that wait to be counted and what is known, starts the mitigation at once.
package limit
