// Package gossip exchanges opaque messages between the nodes of a PoP and tracks which of them are alive.
//
// # Membership
//
// hashicorp/memberlist tracks which nodes are alive. It forgets dead nodes after half a minute and never contacts them
// again, so a longer partition would be permanent. Therefore a node keeps trying to join missing seeds and former
// peers. If many packets are lost, live nodes may be declared dead. Such a node still gets messages for some seconds,
// so that it misses nothing if it is back by then.
//
// # Messages
//
// Send passes a message to every peer, SendTo to one. The sender packs messages into packets of at most 1,400 bytes,
// and sends these directly to their receivers over UDP. Nothing is acknowledged. Instead, for some seconds after a
// batch of messages to all, each node that has the batch sends a few random peers a summary of its batches, with as
// many of them as fit in the packet. A peer sends the batches that a summary lacks, and asks for those that it lacks
// itself. Sending never blocks: queues are bounded, and drops are counted. Messages may arrive in any order, but none
// arrives twice. Messages of SendTo may be lost.
//
// # Security
//
// Keys encrypt and authenticate everything (AES-GCM, by memberlist). To prevent replays, each packet carries the runs
// (random IDs) of the sending and the receiving process, and a number that is accepted only once. Without keys, nodes
// listen on the loopback interface only.
//
// Strangers cannot use up a node's memory: Options.MaxNodes bounds the number of TCP connections and the bytes read
// from each. If there are too many connections, the node closes the oldest one from the address that has the most, and
// counts it in edge_gossip_connections_refused_total. A received packet has at most 64 KB.
//
// # Status and clocks
//
// Four times a second each node sends its Status to some random peers, or to all if there are at most 16. If there are
// more, the receivers pass statuses on: every one in a PoP of up to 64 nodes, one every four seconds in a PoP of a
// thousand. The latest status of a node applies. Receivers answer with their own; from the times in both statuses, a
// node computes the offset of its clock, as NTP does.
package gossip
