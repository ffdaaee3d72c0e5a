// Package load sends the traffic of many clients to a PoP and reports the results.
//
// # Sending
//
// [Run] is an open loop: a [Source] determines when each request is due, however fast the target
// answers. Latencies are measured from that moment, so that a late answer does not hide the
// requests that waited behind it. Requests that are sent late are counted by cause: the generator
// was too slow, or no connection was free.
//
// Every connection goes to one target, just as every connection of a client goes to one node of a
// PoP. All connections are opened before any is reused, and then they are used in turn.
//
// A request is sent at most once. An idle connection that the target has closed is replaced before
// anything is written to it. A request whose connection ends without an answer has failed: the
// target may have counted it.
//
// # The judge
//
// [Log.Score] passes a run to package judge, which shares no code with the nodes, and returns its
// findings. A replay of the log written by [Log.Write] makes the same exact decisions.
package load
