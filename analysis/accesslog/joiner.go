package accesslog

import "bytes"

// A joiner joins the parts of lines that container engines have split. A line whose last part does not come within
// the maximum length of a line is lost.
type joiner struct {
	max   int
	lost  func(line int64, part []byte)
	parts [2]openPart // of standard output and standard error
}

type openPart struct {
	text []byte
	at   int   // offset of the first part in the block
	line int64 // index of its line in the block
	open bool
}

// expire drops the parts whose lines would be too long if they ended at end.
func (j *joiner) expire(end int) {
	for i := range j.parts {
		if p := &j.parts[i]; p.open && end-p.at > j.max {
			if p.open = false; j.lost != nil {
				j.lost(p.line, p.text)
			}
		}
	}
}

// join adds s, a line of a block that ends at end. If s is the last part of a line, or not a part, join returns the
// whole line; otherwise it reports false.
func (j *joiner) join(s []byte, line int64, end int) (joined []byte, whole bool) {
	j.expire(end)
	stream, rest, whole, ok := cutPart(s)
	switch p := &j.parts[stream]; {
	case !ok || whole && !p.open:
		return s, true
	case whole:
		p.open = false
		p.text = append(p.text, rest...)
		return p.text, true
	case !p.open:
		*p = openPart{append(p.text[:0], rest...), end - len(s), line, true}
	default:
		p.text = append(p.text, rest...)
	}
	return nil, false
}

// wholeLines returns the length of the beginning of text that has no part of a line whose last part may follow text.
// text must consist of whole lines; read is the number of bytes read, which include text.
func wholeLines(text []byte, read, maxLine int) int {
	if !bytes.Contains(text, []byte(" P ")) && !bytes.Contains(text, []byte(" P:")) {
		return len(text)
	}
	j := joiner{max: maxLine}
	for at := 0; at < len(text); {
		end := at + bytes.IndexByte(text[at:], '\n')
		if line := bytes.TrimSuffix(text[at:end], []byte("\r")); len(line) > 0 {
			j.join(line, 0, at+len(line))
		}
		at = end + 1
	}
	j.expire(read)
	first := len(text)
	for _, p := range j.parts {
		if p.open {
			first = min(first, p.at)
		}
	}
	return first
}
