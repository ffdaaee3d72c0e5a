package judge

import (
	"cmp"
	"slices"
)

// classify groups the violations that no mistake explains by when and where they happened, and reports the groups.
func (v *investigation) classify() {
	// The requests to compare a violation with, by its key and leak, in the order in which they were sent: the refusals
	// of the key and, unless it is a leak, its requests that passed.
	lines := map[violation][]*request{}
	for _, w := range v.left {
		lines[violation{key: w.key, leak: true}], lines[violation{key: w.key}] = nil, nil
	}
	for _, q := range v.j.sent {
		for _, k := range v.j.keys.of(q) {
			for _, shape := range []violation{{key: k, leak: true}, {key: k}} {
				if line, ok := lines[shape]; ok && (q.outcome == refused || q.outcome == passed && !shape.leak) {
					lines[shape] = append(line, q)
				}
			}
		}
	}
	var all []surroundings
	clients, individual, others := map[uint64]bool{}, 0, 0 // individual: refusals with no other refusal next to them
	for i := range v.left {
		s := v.surroundings(&v.left[i], lines)
		all = append(all, s)
		switch {
		case s.leak || s.key == nil || s.key.sheds():
		case s.before || s.after:
			others++
		default:
			individual++
			clients[s.request.Client] = true
		}
	}
	// A few random refusals, too, come next to one another, or next to a mitigation.
	random := len(clients) >= 3 && individual > 2*others
	for _, row := range situations {
		var requests []*request
		all = slices.DeleteFunc(all, func(s surroundings) bool {
			s.random = random
			fits := row.leak == s.leak && row.fits(s)
			if fits {
				requests = append(requests, s.request)
			}
			return fits
		})
		if len(requests) > 0 {
			v.add(row.name, requests, "%s", row.text)
		}
	}
}

// surroundings examines the requests before and after a violation.
func (v *investigation) surroundings(w *violation, lines map[violation][]*request) surroundings {
	line := lines[violation{key: w.key, leak: w.leak}]
	s := surroundings{violation: w, never: len(lines[violation{key: w.key, leak: true}]) == 0}
	s.over = slices.ContainsFunc(v.j.keys.of(w.request), (*key).over)
	at, found := slices.BinarySearchFunc(line, w.request, func(a, b *request) int { return cmp.Compare(a.i, b.i) })
	s.before = at > 0 && line[at-1].outcome == refused && (!w.leak || line[at-1].Sent >= w.since)
	if found {
		at++
	}
	s.after = at < len(line) && line[at].outcome == refused && (!w.leak || line[at].Sent <= w.until)
	return s
}
