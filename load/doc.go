// Package load sends traffic of many clients to a PoP, and says what became of it.
//
// # Sending
//
// [Run] is an open loop: a [Source] says when each request is due, however fast the target
// answers. Latencies are counted from then on, so that one late answer does not hide those
// that waited behind it. Where requests are sent late that is counted, and whether the
// generator itself was too slow or no connection was free.
//
// Every connection goes to one target, as every connection of a client goes to one node of a
// PoP. All connections are opened before one is used again, and then they are used in turn.
//
// # The oracle
//
// [Log.Score] holds the answers of a run against rules. Three limiters look at every request
// at the moment when it was sent:
//
//   - an exact one, which is that of the replay (analysis.Exact): of [Log.Write]'s log a replay
//     says the same;
//   - one that estimates as nodes do, and knows everything at once;
//   - bounds on what any limiter may do, given what really passed.
//
// The bounds take each request to have arrived at any moment between the one when it was sent
// and the one when it was answered. A mitigation may begin with the first request after which,
// with all that may have arrived, the exact log or the estimate is over; it must have begun
// when, OracleOptions.Lag after the answer of a request, both are over with only what must
// have arrived. Likewise for its end. What is refused when nothing may refuse it, or passes
// when all must, is a fault, whichever way the requests met on their way: to tell
// a limiter that is off by one request needs no luck. Other differences from
// the exact limiter are explained by the estimate, where the second limiter decides so too,
// or else by the lag.
//
// Faults are named by what would explain them: bounds for thresholds that are greater or less
// by one, or for fixed windows, are tried until one leaves next to nothing unexplained.
//
// A client is innocent if no threshold is ever exceeded with all its requests counted, refused
// or not. If innocent clients are refused, and all is as it should be for one client that sends
// all the requests, the PoP does not learn who the clients are, and the fault says so.
//
// # Headers
//
// Status and headers are one statement. A refusal has a Retry-After and leaves nothing: those
// limits of which nothing remains are all back, by RateLimit or X-RateLimit-Reset, when
// Retry-After says. Headers that are not sent are not missed, but for Retry-After. Whoever
// comes back then, to rules of whose keys nothing has passed since, has to pass. An answer that
// passes has no Retry-After, does not say that nothing remains to a client that sent less than
// any threshold, and says of no limit that more remains than it is.
//
// # What the oracle cannot know
//
//   - What the target counted, and whom it mitigated, before the run: a run that repeats another
//     one has to wait for two periods, and for the mitigation timeout. If all that is wrong comes
//     so early, the fault says so.
//   - What else comes to the target at the same time under the same keys. It is counted there,
//     and not here.
//   - Counts that are lost, with a shard or since a bound is reached. More passes then, which is
//     named as a fault: the oracle says that it passes, and the nodes' metrics say why.
//   - What became of requests without an answer. They may have been counted or not.
//   - How the origin answers requests that are refused, where a rule counts by that: for these
//     Look.Status is taken.
//   - Lists, rules and clocks that are not those that it is told.
package load
