package limit

import (
	"net/netip"

	"github.com/edgelimit/edge/counter"
	"github.com/edgelimit/edge/rule"
)

// An ID identifies the cause of a refusal to people.
type ID = counter.ID

// ID returns the ID of the mitigated key, or of the entry of the deny list, that refuses the request of a client. It is
// zero if the request passes, is malformed, or waits for a shard. All nodes of a PoP have the same IDs. It does not
// allocate.
func (l *Limiter) ID(d *Decision, client netip.Addr) (id ID) {
	switch {
	case d.Verdict == Denied && d.Record == nil:
		if entry, access := l.Rules().Entry(client); access == rule.Denied { // else the rules have changed
			id = l.o.Secret.ID(l.entryKey(entry))
		}
	case d.Verdict.Refused() && d.Record != nil:
		id = d.Record.ID
	}
	return id
}

// DenyEntry returns the entry of the deny list that has an ID, and reports whether there is one.
func (l *Limiter) DenyEntry(id ID) (netip.Prefix, bool) {
	for entry, access := range l.Rules().Entries() {
		if access == rule.Denied && l.o.Secret.ID(l.entryKey(entry)) == id {
			return entry, true
		}
	}
	return netip.Prefix{}, false
}

// entryKey returns the key that stands for an entry of the deny list. Nothing is counted under it.
func (l *Limiter) entryKey(entry netip.Prefix) counter.Key {
	var buf [64]byte
	return l.o.Secret.Tag(entry.AppendTo(append(buf[:0], "deny "...)))
}
