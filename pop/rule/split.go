package rule

import (
	"bytes"

	"github.com/edgelimit/edge/internal/strictyaml"
)

// A tree of YAML nodes takes thirty times the bytes of its file and is built on one core. So large files
// are split between rules, and several parts are parsed and read at once. A rule begins at a dash in the
// column of the first one, since everything else in a rule is indented further. If that assumption fails,
// a part does not parse, and the file is read as a whole.
const (
	largeFile = 4 << 20   // minimum size of a file that is split, in bytes
	partSize  = 256 << 10 // minimum size of a part, in bytes
)

// A part is a part of a file that is read separately.
type part struct {
	text   []byte
	before int  // number of lines before it in the file
	rules  bool // it is a list of rules; otherwise it is everything else in the file
}

// split splits a file. It returns nil if the file is small or has an unusual form: several documents, or no
// line with only the key "rules:".
func split(text []byte, large, size int) []part {
	if len(text) < large || oddBreaks(text) {
		return nil
	}
	var parts []part
	var around []byte // the file with an empty list, and its lines empty
	indent, inList := -1, false
	begin, before := 0, 0 // of the current part
	cut := func(at, lines int) {
		if at > begin {
			parts = append(parts, part{text[begin:at], before, true})
		}
		begin, before = at, lines
	}
	lines := 0
	for at, end := 0, 0; at < len(text); at, lines = end, lines+1 {
		if end = at + bytes.IndexByte(text[at:], '\n') + 1; end == at {
			end = len(text)
		}
		line := bytes.TrimRight(text[at:end], " \r\n")
		body := bytes.TrimLeft(line, " ")
		column := len(line) - len(body)
		comment := len(body) == 0 || body[0] == '#'
		dash := string(body) == "-" || bytes.HasPrefix(body, []byte("- "))
		switch {
		// Another document, or a tab, which is valid YAML only after certain lines.
		case bytes.HasPrefix(line, []byte("---")) || bytes.HasPrefix(line, []byte("...")) || bytes.HasPrefix(body, []byte("\t")):
			return nil
		case isRulesKey(line) && indent >= 0: // a second list, which is an error
			return nil
		case !inList && isRulesKey(line):
			inList = true
			begin, before = end, lines+1
			around = append(around, "rules: []\n"...)
			continue
		case !inList || comment:
		case indent < 0 && !dash:
			return nil
		case indent < 0:
			indent = column
		case column < indent || column == indent && !dash:
			cut(at, lines)
			inList = false
		case column == indent && at-begin >= size:
			cut(at, lines)
		}
		if inList {
			around = append(around, '\n')
		} else {
			around = append(around, text[at:end]...)
		}
	}
	if indent < 0 || bytes.IndexByte(around, '&') >= 0 {
		return nil // an alias in a part may refer to an anchor here
	}
	if inList {
		cut(len(text), lines)
	}
	return append(parts, part{text: around})
}

// isRulesKey reports whether line has only the key of the list, and perhaps a comment.
func isRulesKey(line []byte) bool {
	rest, ok := bytes.CutPrefix(line, []byte("rules:"))
	return ok && (len(rest) == 0 || bytes.HasPrefix(bytes.TrimLeft(rest, " "), []byte("#")) && rest[0] == ' ')
}

// oddBreaks reports whether text has line breaks of YAML that split does not recognize.
func oddBreaks(text []byte) bool {
	return bytes.Count(text, []byte("\r")) != bytes.Count(text, []byte("\r\n")) ||
		bytes.Contains(text, []byte("\u0085")) || bytes.Contains(text, []byte("\u2028")) || bytes.Contains(text, []byte("\u2029"))
}

// read reads p, a part of file.
func (p part) read(file string) *reader {
	r := newReader(file, p.text, p.before)
	switch root := r.Parse(); {
	case r.Broken || root == nil: // blank, or an error
	case !p.rules:
		// After an error here, such as a second key "rules", the whole file may have other errors than its parts.
		r.Broken = !r.Mapping(root, "the file", "", r.topFields()) || len(r.Errs) > 0
	case strictyaml.IsSequence(root):
		r.ruleList(root)
	default:
		r.Broken = true
	}
	return r
}
