// Package analysis answers from logs what rules would have done, and how accurate an
// estimate of the rate is.
//
// # Accuracy
//
// An [Accuracy] compares estimators with the exact sliding log, request by request, in the
// manner of the analysis that this design is known for. With t the time of a request and P
// the period, the exact number of its client's requests is that in (t−P, t], the request
// itself counted, others at the same moment by their order in the log. The estimate is
// taken right after the request was counted. Over means greater than the threshold. A
// request is wrongly allowed where the exact number is over and the estimate is not, and
// wrongly limited where it is the other way round.
//
// There is no feedback: every request is counted, also those that a limiter would have
// refused. All decisions are made in integers by [counter.Estimate], and relative errors
// are summed in multiples of 2^−32, so that results depend neither on the number of
// goroutines nor on the order in which clients are looked at.
//
// # Enforcement
//
// An [Enforcer] plays a log through simulated PoPs: nodes that match, decide, count and
// mitigate by the packages that real nodes are made of, on a virtual clock, with shards in
// memory. Here there is feedback: what is refused is not counted. Which decisions are wrong
// is judged by a PoP that differs in counting exactly and at once: with t the time of a
// request, more than the threshold of the requests that it counted lie in (t−P, t], and it
// mitigates the key from then on, until the rule's timeout is over and no more than the
// threshold are left.
//
// A [Comparer] plays a log through two PoPs that differ in their rules. [Cases] are unit tests
// of rules, played to one node.
//
// # Choosing a threshold
//
// A [Sweep] tries a grid of thresholds, periods and characteristics in one pass. Each cell
// is a rule by itself on one node, and refuses the very requests that an Enforcer refuses
// with that rule. It recommends the smallest threshold that touches few enough clients.
//
// # Output
//
// Every report is a struct with stable names in JSON, writes itself as text with WriteText,
// and tells its Sections, of which package page makes one HTML file. Names of clients pass
// through a [Namer] before they enter a report, so that [Pseudonyms] hold in all of them.
package analysis
