package accesslog

import "bytes"

// pairs parses text such as method=GET path="/a b", and stores the members of o in slots.
// Words that are not pairs are skipped.
func (o *objects) pairs(s []byte, slots []value) {
	for {
		if s = trimSpaces(s); len(s) == 0 {
			return
		}
		end := bytes.IndexAny(s, "= ")
		if end < 0 {
			return
		}
		if s[end] == ' ' {
			s = s[end:]
			continue
		}
		slot, known := o.members[string(s[:end])]
		var v value
		if s = s[end+1:]; len(s) > 0 && s[0] == '"' {
			p := scanner{s: s[1:]}
			text, escaped, ok := p.text()
			if !ok {
				return // cut off
			}
			v, s = value{text, true, escaped}, p.s
		} else {
			v.text, s = cutSpace(s)
		}
		if known && slot >= 0 {
			slots[slot] = v
		}
	}
}

// leadingTime parses the time in the prefix of syslog or Heroku, which may follow a length, and a priority and a
// version. It reports whether it found one.
func (r *record) leadingTime(s []byte) bool {
	for range 3 {
		t, n, ok := r.clock.stamp(s)
		if ok && n < len(s) && s[n] == ' ' {
			r.time = t
			return true
		}
		if s = skipWords(s, 1); len(s) == 0 {
			return false
		}
	}
	return false
}
