package gossip

import (
	"encoding/binary"
	"errors"
	"iter"
	"time"
)

// Packets, inside what memberlist encrypts. All numbers are big endian.
//
//	 0  version
//	 1  kind
//	 2  run of the sender
//	10  run of the receiver
//	18  number, from 1, by sender and receiver
//	26  when the sender was given the body, by its wall clock, in microseconds
//	34  body
//
// The body of messages is each message after its length, of two bytes; that of
// acknowledgements the numbers of the packets; that of a status its times, see clock, and
// the status.
const (
	packetVersion = 1
	headerSize    = 34

	// maxBody keeps packets below 1,400 bytes, including what memberlist, encryption
	// and a tunnel on the path add.
	maxBody = 1200

	// MaxMessage is the maximum size of a message, in bytes.
	MaxMessage = maxBody - 2

	// MaxStatus is the maximum size of a status, in bytes.
	MaxStatus = maxBody - timesSize

	// maxAcks is the maximum number of packets that one packet acknowledges.
	maxAcks = maxBody / 8
)

// kinds of packets
const (
	kindMessages byte = 1 + iota
	kindAcks
	kindStatus
)

// A header is the header of a packet.
type header struct {
	kind     byte
	from, to uint64 // runs
	number   uint64
	at       int64
}

func (h header) packet() []byte {
	dst := []byte{packetVersion, h.kind}
	dst = binary.BigEndian.AppendUint64(dst, h.from)
	dst = binary.BigEndian.AppendUint64(dst, h.to)
	dst = binary.BigEndian.AppendUint64(dst, h.number)
	return binary.BigEndian.AppendUint64(dst, uint64(h.at))
}

var errMalformed = errors.New("gossip: malformed packet")

// parsePacket splits a packet. body is part of b.
func parsePacket(b []byte) (h header, body []byte, err error) {
	if len(b) < headerSize || b[0] != packetVersion || b[1] < kindMessages || b[1] > kindStatus {
		return h, nil, errMalformed
	}
	h = header{
		kind:   b[1],
		from:   binary.BigEndian.Uint64(b[2:]),
		to:     binary.BigEndian.Uint64(b[10:]),
		number: binary.BigEndian.Uint64(b[18:]),
		at:     int64(binary.BigEndian.Uint64(b[26:])),
	}
	body = b[headerSize:]
	switch h.kind {
	case kindMessages:
		for rest := body; len(rest) > 0; {
			if len(rest) < 2 || len(rest)-2 < int(binary.BigEndian.Uint16(rest)) {
				return h, nil, errMalformed
			}
			rest = rest[2+binary.BigEndian.Uint16(rest):]
		}
	case kindAcks:
		if len(body)%8 != 0 {
			return h, nil, errMalformed
		}
	case kindStatus:
		if len(body) < timesSize {
			return h, nil, errMalformed
		}
	}
	return h, body, nil
}

// messages returns the messages of a body that parsePacket returned.
func messages(body []byte) iter.Seq[[]byte] {
	return func(yield func([]byte) bool) {
		for len(body) > 0 {
			end := 2 + int(binary.BigEndian.Uint16(body))
			if !yield(body[2:end:end]) {
				return
			}
			body = body[end:]
		}
	}
}

// A body is what a packet carries.
type body struct {
	at    int64 // when its messages were given, by our wall clock
	bytes []byte
}

// pack puts messages that were given at a time into as few bodies as their order allows.
func pack(messages [][]byte, at time.Time) (bodies []body) {
	var bytes []byte
	for _, m := range messages {
		if len(bytes)+2+len(m) > maxBody {
			bodies = append(bodies, body{at.UnixMicro(), bytes})
			bytes = nil
		}
		bytes = binary.BigEndian.AppendUint16(bytes, uint16(len(m)))
		bytes = append(bytes, m...)
	}
	if bytes != nil {
		bodies = append(bodies, body{at.UnixMicro(), bytes})
	}
	return bodies
}
