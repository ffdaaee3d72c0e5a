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
// A request is sent at most once. An idle connection that the target has ended is replaced before
// anything is written to it. A request whose connection ends without an answer has failed: the
// target may have counted it.
//
// # The oracle
//
// [Log.Score] gives a run to package judge, which shares no code with the nodes, and says what it
// found. Of [Log.Write]'s log a replay makes the same exact decisions.
package load
