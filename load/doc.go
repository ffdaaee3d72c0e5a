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
package load
