package file

import (
	"bytes"
	"regexp"
	"slices"
)

// A tree of YAML nodes takes thirty times as much memory as its file. So large files are split between rules, and
// read part by part. A rule begins with a dash in the column of the first one, since everything else in a
// rule is indented further. If that assumption fails, a part does not parse, and the file is read as a whole.
const (
	largeFile = 4 << 20   // minimum size of a file that is split, in bytes
	partSize  = 256 << 10 // minimum size of a part, in bytes
)

// A part is a part of a file that is read separately. The first one has everything but the rules, and each further one
// has some of them.
type part struct {
	text   []byte
	before int // number of lines in the file before it and the line "rules:"
}

// beginning matches a line with only the key "rules:", blank lines, and the dash of the first rule.
var beginning = regexp.MustCompile(`(?m)^rules:(?: *| +#.*)\r?\n(?: *(?:#.*)?\r?\n)*( *- )`)

// split splits a file. It returns nil if the file is small or has an unusual form.
func split(text []byte, large, size int) []part {
	if len(text) < large || bytes.IndexByte(text, '\t') >= 0 && indentedByTab.Match(text) {
		return nil
	}
	at := beginning.FindSubmatchIndex(text)
	if at == nil {
		return nil
	}
	begin, end, dash := at[2], at[2], text[at[2]:at[3]]
	lines := bytes.Count(text[:begin], []byte("\n")) // before end
	parts, before := make([]part, 1), lines
	add := func() {
		parts = append(parts, part{text[begin:end], before - 1})
		begin, before = end, lines
	}
	for line := range bytes.Lines(text[begin:]) {
		if line[0] != ' ' && nextKey.Match(line) {
			break
		}
		if end-begin >= size && bytes.HasPrefix(line, dash) {
			add()
		}
		end, lines = end+len(line), lines+1
	}
	add()
	blank := bytes.Repeat([]byte("\n"), bytes.Count(text[at[0]:end], []byte("\n")))
	parts[0].text = slices.Concat(text[:at[0]], []byte("rules: []"), blank, text[end:])
	if bytes.IndexByte(parts[0].text, '&') >= 0 {
		return nil // an alias in a part may refer to an anchor here
	}
	return parts
}

// nextKey matches a line that is neither blank nor of a list of rules.
var nextKey = regexp.MustCompile(`^(?:[^-#\r\n ]|-[^\r\n ])`)

// indentedByTab matches a line that a tab indents, which YAML allows only after certain lines.
var indentedByTab = regexp.MustCompile(`(?m)^ *\t`)
