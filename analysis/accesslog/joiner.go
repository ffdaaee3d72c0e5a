package accesslog

import "bytes"

// A joiner joins the parts of lines that container engines have cut. A part whose last one does not come within
// the length that a line may have is lost.
type joiner struct {
	max   int
	lost  func(line int64, part []byte)
	parts [2]openPart // of the standard output and the standard error
}

type openPart struct {
	text []byte
	at   int   // where the first begins in the block
	line int64 // its line in the block, from 0
	open bool
}

// expire gives up the parts whose lines would be too long at end.
func (j *joiner) expire(end int) {
	for i := range j.parts {
		if p := &j.parts[i]; p.open && end-p.at > j.max {
			if p.open = false; j.lost != nil {
				j.lost(p.line, p.text)
			}
		}
	}
}

// join takes the line of a block, which ends at end. It returns the line that s is the last part of; nothing if
// the line goes on.
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

// wholeLines returns how much of text, which is whole lines, is before the first part of a line whose last
// part may come in what follows. read is how much is known to be there.
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
