package gossip

import (
	"encoding/binary"
	"errors"
)

// The format of packets, without memberlist's header and encryption. All numbers are big endian.
//
//	 0  kind
//	 1  run of the sender
//	 9  run of the receiver
//	17  number, from 1, by sender and receiver
//	25  when the packet was sent, by the sender's wall clock, in microseconds
//	33  echo: the receiver's wall clock then, as the sender knows it; see clock
//	41  entries
const (
	headerSize = 41

	// maxBody keeps packets below 1,400 bytes, including the overhead of memberlist, encryption and a tunnel on the path.
	maxBody = 1200

	// MaxMessage is the maximum size of a message, in bytes.
	MaxMessage = MaxStatus - 2

	// MaxStatus is the maximum size of a status, in bytes.
	MaxStatus = maxBody - entryHead
)

// kinds of packets
const (
	kindNews   byte = 1 + iota // batches and summaries
	kindAsk                    // summaries, to ask for batches
	kindStatus                 // statuses
)

// A header is the header of a packet, in the order of its encoding.
type header struct {
	Kind     byte
	From, To uint64 // runs
	Number   uint64 // from 1, by sender and receiver
	At, Echo int64  // in microseconds
}

func (h header) packet() []byte {
	dst, _ := binary.Append(make([]byte, 0, headerSize+maxBody), binary.BigEndian, h) // never fails
	return dst
}

var errMalformed = errors.New("gossip: malformed packet")

// parsePacket decodes a packet. entries refer to b.
func parsePacket(b []byte) (h header, entries []entry, err error) {
	if _, err := binary.Decode(b, binary.BigEndian, &h); err != nil || h.Kind < kindNews || h.Kind > kindStatus {
		return h, nil, errMalformed
	}
	entries, err = parseEntries(b[headerSize:])
	return h, entries, err
}

// An entry is a part of a packet about one node, which need not be the sender: a batch, a summary or a
// status. Encoded, it is run, number, word, the length of bytes, in two bytes, and bytes.
type entry struct {
	run, number, word uint64
	bytes             []byte
}

const entryHead = 26

func (e entry) append(dst []byte) []byte {
	dst = binary.BigEndian.AppendUint64(dst, e.run)
	dst = binary.BigEndian.AppendUint64(dst, e.number)
	dst = binary.BigEndian.AppendUint64(dst, e.word)
	dst = binary.BigEndian.AppendUint16(dst, uint16(len(e.bytes)))
	return append(dst, e.bytes...)
}

// parseEntries splits entries. One with too many bytes to be passed on is malformed.
func parseEntries(b []byte) (all []entry, err error) {
	for len(b) > 0 {
		if len(b) < entryHead {
			return nil, errMalformed
		}
		end := entryHead + int(binary.BigEndian.Uint16(b[24:]))
		if end > len(b) || end > maxBody {
			return nil, errMalformed
		}
		all = append(all, entry{
			run: binary.BigEndian.Uint64(b), number: binary.BigEndian.Uint64(b[8:]), word: binary.BigEndian.Uint64(b[16:]),
			bytes: b[entryHead:end:end],
		})
		b = b[end:]
	}
	return all, nil
}
