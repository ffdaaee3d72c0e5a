// Package analysis determines from logs what rules would have done. Package analysis/accuracy
// measures how accurate rate estimates are; package analysis/cases runs unit tests of rules.
//
// # Enforcement
//
// An [Enforcer] plays a log through simulated PoPs: nodes that match, decide, count and
// mitigate by the packages that real nodes are made of, on a virtual clock, with shards in
// memory. One node that knows everything at once needs neither: its keys are spread over all
// cores and counted in a table, by the same matching, keys and limits. A test checks that it
// decides like the simulated node. There is feedback: refused requests are not counted. Which
// decisions are wrong is judged by a PoP that differs in counting exactly and at once: with t
// the time of a request, more than the threshold of the requests that it counted lie in
// (t−P, t], and it mitigates the key from then on, until the rule's timeout is over and no
// more than the threshold are left.
//
// A [Comparer] plays a log through two PoPs that differ in their rules.
//
// # Choosing a threshold
//
// A [Sweep] tries a grid of thresholds, periods and characteristics in one pass. Each cell
// is a rule by itself on one node, and refuses the very requests that an Enforcer refuses
// with that rule. It recommends the smallest threshold that touches few enough clients.
//
// # Output
//
// Every report is a struct with stable names in JSON. Its Document is built once, and package
// page writes it as text, Markdown, JSON or one HTML file. Names of clients pass
// through a [Namer] before they enter a report, so that [Pseudonyms] hold in all of them.
package analysis
