// Package judge finds the faults of a PoP by examining the requests sent to it and its answers.
//
// The only code it shares with nodes is the parser of rules files, whose result it uses as plain
// data. docs/judge.md explains how it decides and what it cannot know.
//
// Memory use grows with the number of requests, clients, and keys that exceed a threshold.
// Judging starts after all requests have been sent.
package judge
