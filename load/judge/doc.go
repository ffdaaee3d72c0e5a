// Package judge finds what a PoP did wrong, from the requests sent to it and its answers.
//
// It shares no code with nodes except the parser of rules files, whose result it uses as plain
// data. docs/judge.md explains how it decides and what it cannot know.
//
// Memory grows with the requests, the clients and the keys that exceed a threshold. Judging
// starts when all requests were sent.
package judge
