package limit

import (
	"bytes"
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"time"
)

// tailSize is how much of a body's end is kept, in bytes.
const tailSize = 16 << 10

// A tail is the end of an answer's body, for rules with a CostJSON.
type tail struct {
	format format
	kept   []byte
	cut    bool // the body is longer than kept
}

type format uint8

const (
	unread  format = iota // not one of the others
	object                // application/json
	events                // text/event-stream
	encoded               // compressed
)

// newTail returns the tail of an answer with these fields, which may be nil. The tail of a partial answer reads
// nothing, because the client chose the range.
func newTail(status int, fields Fields) *tail {
	t := new(tail)
	if status == http.StatusPartialContent {
		return t
	}
	for _, value := range valuesOf(fields, "Content-Type") {
		value, _, _ = strings.Cut(value, ";")
		value = strings.TrimSpace(value)
		if strings.EqualFold(value, "application/json") {
			t.format = object
		} else if strings.EqualFold(value, "text/event-stream") {
			t.format = events
		}
	}
	for _, value := range valuesOf(fields, "Content-Encoding") {
		if t.format != unread && !strings.EqualFold(value, "identity") {
			t.format = encoded
		}
	}
	return t
}

// valuesOf returns the values of the field called name, if any.
func valuesOf(fields Fields, name string) []string {
	if fields == nil || name == "" {
		return nil
	}
	return fields.Values(name)
}

// AwaitsBody reports whether a rule counts the request at the end of the answer's body, and reads whether it reads the
// body.
func (d *Decision) AwaitsBody() (awaits, reads bool) {
	return d.tail != nil, d.tail != nil && (d.tail.format == object || d.tail.format == events)
}

// Body keeps a copy of the end of an answer's body, for rules with a CostJSON. Call it with each part of the body,
// after Answered.
func (d *Decision) Body(part []byte) {
	t := d.tail
	if _, reads := d.AwaitsBody(); !reads {
		return
	}
	drop := max(0, len(t.kept)+len(part)-tailSize)
	t.cut = t.cut || drop > 0
	t.kept = append(slices.Delete(t.kept, 0, min(drop, len(t.kept))), part[max(0, len(part)-tailSize):]...)
}

// EndBody counts the request, for the rules with a CostJSON, when the body of its answer has ended or, if whole is not
// set, was cut off. It does nothing if no rule waits for that.
func (l *Limiter) EndBody(d *Decision, whole bool, now time.Time) {
	if t := d.tail; t != nil {
		if t.format == object && t.cut && !whole { // the last brace may end a member
			t.format = unread
		}
		missing := costMissing
		if t.format == encoded {
			missing = costEncoded
		}
		l.countWaiting(d, t.values, missing, now)
	}
}

// countWaiting counts for the rules that wait for the end of the body, by the values at their paths.
func (l *Limiter) countWaiting(d *Decision, values func(path string) []string, missing int, now time.Time) {
	d.tail = nil
	for i := range d.n {
		if c := d.at(i); c.waits {
			c.waits = false
			l.countAnswer(d, c, l.cost(c.rule, values(c.rule.CostJSON), missing), now)
		}
	}
}

// values returns the value at a path in the body, or in the last event that has it.
func (t *tail) values(path string) []string {
	switch t.format {
	case object:
		text := t.kept
		if t.cut {
			text = lastMembers(text)
		}
		return memberOf(text, path)
	case events:
		text := bytes.ReplaceAll(bytes.ReplaceAll(t.kept, []byte("\r\n"), []byte("\n")), []byte("\r"), []byte("\n"))
		list := bytes.Split(text, []byte("\n\n"))
		if t.cut {
			list = list[1:]
		}
		for _, event := range slices.Backward(list) {
			if values := memberOf(dataOf(event), path); values != nil {
				return values
			}
		}
	}
	return nil
}

// dataOf returns the data of an event.
func dataOf(event []byte) (data []byte) {
	for line := range bytes.SplitSeq(event, []byte("\n")) {
		if value, ok := bytes.CutPrefix(line, []byte("data:")); ok {
			data = append(append(data, value...), '\n')
		}
	}
	return data
}

// memberOf returns the text of the value at path in an object, unless it is null.
func memberOf(text []byte, path string) []string {
	for name := range strings.SplitSeq(path, ".") {
		var members map[string]json.RawMessage
		if json.Unmarshal(text, &members) != nil {
			return nil
		}
		text = members[name]
	}
	if text == nil || string(text) == "null" {
		return nil
	}
	return []string{string(text)}
}

// lastMembers returns an object with those members of another one that are complete in end, its last bytes. It reads
// backwards, because no string is open at the end: a quote after an even number of backslashes begins or ends a string.
func lastMembers(end []byte) []byte {
	from, depth, quoted := len(end), 0, false
	for i, c := range slices.Backward(end) {
		switch {
		case c == '"':
			before := end[:i]
			quoted = quoted != ((len(before)-len(bytes.TrimRight(before, `\`)))%2 == 0)
		case quoted:
		case c == '}' || c == ']':
			depth++
		case c == '{' || c == '[':
			depth--
		case c == ',' && depth == 1:
			from = i
		}
	}
	if from == len(end) {
		return nil
	}
	return append([]byte("{"), end[from+1:]...)
}
