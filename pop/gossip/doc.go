// Package gossip exchanges opaque messages between the nodes of a PoP and tracks which of them are alive.
//
// # Membership
//
// hashicorp/memberlist tracks which nodes are alive. It forgets dead nodes after half a minute
// and never contacts them again, so a longer partition would be permanent. Therefore seeds and
// nodes seen before are rejoined for as long as they are missing. If many packets are lost, live
// nodes may be declared dead. Messages are still exchanged with such a node for some seconds, so
// that it misses nothing if it is back by then.
//
// # Messages
//
// Send passes a message to every peer, SendTo to one. Messages are packed into packets of at most 1,400 bytes,
// and sent directly to their receivers over UDP. Nothing is acknowledged. Instead, for some seconds after a batch of
// messages to all, each node that has the batch sends a few random peers a summary of what it has, with as many
// batches as fit in the packet. A peer sends what a summary lacks, and asks for what it lacks itself. Sending never
// blocks: queues are bounded, and drops are counted. Messages may arrive in any order, but none arrives twice.
// Those of SendTo may be lost.
//
// # Security
//
// Keys encrypt and authenticate everything (AES-GCM, by memberlist). To prevent replays, each
// packet carries the run of the process that sent it, the run that it is for, and a number that is
// accepted only once. Without keys, nodes listen on the loopback interface only.
//
// Strangers cannot use up a node's memory: Options.MaxNodes bounds the TCP connections and what is read from each.
// If there are too many connections, the oldest one from the address with the most is closed.
// edge_gossip_connections_refused_total counts those that were closed. A received packet may have up to 64 KB.
//
// # Status and clocks
//
// Four times a second each node sends its Status to some peers, picked at random; up to 16 are all told. In
// larger PoPs those pass it on, in a PoP of up to 64 nodes each one, in one of a thousand nodes one every four
// seconds. The latest one applies. Peers that are told answer with their own, and from the times in both a node
// computes its clock's offset, as NTP does.
package gossip
