// Package gossip carries opaque bytes between the nodes of a PoP, and knows who they are.
//
// # Membership
//
// hashicorp/memberlist says who is alive. It forgets dead nodes after half a minute and
// then never speaks to them again, so that a longer partition would last for ever: nodes
// that were seen once, and the seeds, are joined again for as long as they are missing.
// Where many packets are lost, nodes are found dead that live. Such a node is still spoken
// with for some seconds, so that it misses nothing if it is back by then.
//
// # Messages
//
// Send passes a message to every member, SendTo to one. Messages are packed into packets
// that fit a path's limit, sent straight to their receivers by UDP, and sent again until
// they are acknowledged, the more patiently the longer packets are under way: after two
// seconds at the latest they are given up, which is counted. Sending never blocks: queues
// are bounded, and what does not fit is counted. Messages may arrive in any order; none
// arrives twice.
//
// # Security
//
// Keys encrypt and authenticate everything (AES-GCM, by memberlist). Since that does not
// keep anybody from sending an old packet again, each packet names the run of the process
// that sent it, the run that it is for, and a number that is accepted once. Without keys,
// nodes listen on the loopback network only.
//
// # Status and clocks
//
// Four times a second each node tells each other its Status, unacknowledged, the latest
// holds. These packets carry the times from which a node computes its clock's offset, as
// NTP does.
package gossip
