// Package judge says what a PoP did wrong, from what was sent to it and what it answered.
//
// It shares no code with what it judges: its windows, estimate, keys, match and ends of
// mitigations are its own, slow and obvious, and written from the documentation. It imports
// nothing that nodes run but the parser of rules files, whose result it takes as plain data. A
// rule that says something that this package does not know is not judged, and [Score.NotJudged]
// names it.
//
// # Bounds
//
// A request may have arrived at any moment between the one when it was sent and the one when it
// was answered. For each key there are two counts: of requests that may have been counted, by
// their greatest contribution to the estimate, and of those that must have been, a lag after their
// answer, by their least. A mitigation may begin with the first request after which the greater
// one is over its threshold, and must have begun when the lesser one is; likewise for its end. A
// request that is refused when nothing may refuse it, or passes when it must be refused, is a
// violation, whichever way the requests met on their way. Requests without an answer, and those
// that a node answered for an origin that it did not reach, may have been counted or not.
//
// A limiter that keeps the time of every request, instead of an estimate, is right as well.
//
// # Faults
//
// Violations are named by what would explain them: mistakes that are known, such as a threshold
// that is greater by one, fixed windows or nodes that count apart, are put into the bounds in turn.
// A mistake is named if it explains nine tenths of what passes or of what is refused, and leads to
// hardly any other violation. It takes away only what it explains. What is left is named by when
// and where it happens: at one node, to one client, again and again, or at random.
//
// A mistake can hide behind the bound on the lag: a client that sends ten requests a second may
// send five more within 500 ms, and one of them for a threshold that is too high by one. So if
// nothing passes longer than the lag, the bounds are held to 30 ms. What passes then is a fault if
// one mistake explains nearly all of it, of ten crossings at least, and no constant lag does.
//
// Retry-After is held against the same bounds: it must not end before the mitigation must, nor
// after it may, and a client that comes back then has to be let through if nothing of its key has
// passed since.
//
// # What cannot be known
//
//   - What the target counted, and whom it mitigated, before the run: a run that repeats another
//     one has to wait for two periods, and for the mitigation timeout.
//   - What else comes to the target at the same time under the same keys.
//   - Counts that are lost, with a shard or since a bound is reached. More passes then, which is
//     named as a fault: nodes' metrics say why.
//   - How the origin answers requests that are refused, where a rule counts by that: for these
//     Answer.Expected is taken.
//   - Lists, rules and clocks that are not those that it is told.
//
// # Cost
//
// Judging takes no time while requests are sent. Its memory grows with the requests, the clients and
// the keys that exceed a threshold. If something is wrong, mistakes are compared by the first 100,000
// requests, or by more, until a thousand violations are among them.
package judge
