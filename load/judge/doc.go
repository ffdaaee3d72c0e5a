// Package judge says what a PoP did wrong, from what was sent to it and what it answered.
//
// It shares no code with what it judges, and imports nothing that nodes run but the parser of
// rules files, whose result it takes as plain data. docs/judge.md explains how it decides and what
// it cannot know.
//
// Memory grows with the requests, the clients and the keys that exceed a threshold. Nothing is
// judged while requests are sent.
package judge
