package gossip

import (
	"bytes"
	"log"
	"net"
	"time"
)

// A logReader passes on memberlist's log, and finds in it what memberlist could not decrypt: that is reported nowhere
// else.
type logReader struct {
	g  *Gossip
	to *log.Logger
}

func (r logReader) Write(line []byte) (int, error) {
	_, from, known := bytes.Cut(line, []byte("from="))
	if known && bytes.Contains(line, []byte("[ERR] memberlist: ")) && bytes.Contains(line, []byte("crypt")) {
		r.g.metrics.refused.WithLabelValues(otherKey).Inc()
		// Anybody can send a packet with the address of a node, but not connect from there.
		if bytes.Contains(line, []byte("failed to receive: ")) {
			r.g.mu.Lock()
			r.g.wrongKey.note(string(bytes.TrimSpace(from)), time.Now())
			r.g.mu.Unlock()
		}
	}
	return r.to.Writer().Write(line)
}

// A wrongKey notices nodes with another key. Unlike a sender of some garbage, they connect again and again, to join.
type wrongKey struct {
	from        string // address of the last connection
	first, last time.Time
}

const (
	// keyPatience is how long data that cannot be decrypted must arrive before it is a problem.
	keyPatience = 3 * time.Second

	// keyPause is the pause after which the problem has passed.
	keyPause = 10 * time.Second
)

// note records that something from an address, IP:PORT, cannot be decrypted.
func (w *wrongKey) note(from string, now time.Time) {
	if now.Sub(w.last) > keyPause {
		w.first = now
	}
	w.from, w.last = from, now
}

// problem describes a node with another key, or returns "".
func (w *wrongKey) problem(now time.Time) string {
	if now.Sub(w.last) > keyPause || w.last.Sub(w.first) < keyPatience {
		return ""
	}
	host, _, _ := net.SplitHostPort(w.from) // the port may be that of a connection
	return "cannot decrypt what the node at " + host + " sends, so counts are split: give all nodes the same gossip key"
}
