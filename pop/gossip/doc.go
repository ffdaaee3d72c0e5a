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
// Send passes a message to every peer, SendTo to one. Messages are packed into packets
// of at most 1,400 bytes, sent directly to their receivers over UDP, and retried until they are
// acknowledged, at intervals that grow with the round-trip time. After at most two seconds they
// are dropped and counted. Sending never blocks: queues are bounded, and drops are counted.
// Messages may arrive in any order, but none arrives twice.
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
// Four times a second each node sends its Status to every other node, unacknowledged; the latest
// one applies. These packets carry the times from which a node computes its clock's offset, as
// NTP does.
package gossip
