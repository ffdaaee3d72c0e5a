// Package limit decides whether requests pass.
//
// # The decision
//
// [Limiter.Decide] matches a request against the rules, makes the key of each matching rule and
// looks it up in the table of mitigations. It reads memory only: it never waits, never allocates
// for ordinary requests and never returns an error. Infrastructure failures are counted, and the
// request passes: the limiter fails open, except for rules with on_failure: closed. While the
// shard that owns the key of such a rule is unavailable, a request that no mitigation refuses has
// the verdict [Unavailable] and is not counted. That check reads the ring's table and a flag of
// the shard.
//
// Requests that pass are offered to package count, which calls back when the counts of a key
// exceed a limit. Then a record is merged into this node's table, sent to the peers, and stored
// beside the counters. A request starts the mitigation at once if it exceeds a limit together
// with the known counts of its key and the requests that wait to be counted.
package limit
