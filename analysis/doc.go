// Package analysis determines from logs what rules would have done. Package analysis/accuracy measures the
// accuracy of rate estimates; package analysis/cases runs unit tests of rules.
//
// Requests from before 1970 are not supported: lines with such a time are malformed.
//
// # Enforcement
//
// An [Enforcer] plays a log through simulated PoPs: nodes that match, decide, count and mitigate with the packages
// of real nodes, on a virtual clock, with shards in memory. A single node that knows everything immediately needs
// no clock and no shards: its keys are distributed over all cores and counted in a table, with the same matching,
// keys and limits. A test compares its decisions with the simulated node's. Refused requests are not counted, as on
// a node, so each decision affects later ones. The correct decisions are those of a PoP that counts exactly and
// immediately: if, at the time t of a request, more counted requests than the threshold lie in (t−P, t], it
// mitigates the key until the rule's timeout is over and no more than the threshold are left.
//
// A [Comparer] plays a log through two PoPs with different rules.
//
// # Choosing a threshold
//
// A [Sweep] tries a grid of thresholds, periods and characteristics in one pass. Each cell is a separate rule
// on one node, and refuses exactly the requests that an Enforcer refuses with that rule. The sweep recommends the
// smallest threshold that affects few enough clients.
//
// # Output
//
// Every report is a struct with stable names in JSON. Its Document is built once, and package chart writes it as
// text, Markdown, JSON or one HTML file. Names of clients pass through a [Namer] before they enter a report, so
// [Pseudonyms] apply to all reports.
package analysis
