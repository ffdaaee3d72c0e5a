package file

import (
	"bytes"
	"regexp"
	"slices"
	"strings"

	"github.com/edgelimit/edge/internal/strictyaml"
)

// A tree of YAML nodes takes thirty times as much memory as its file. So large files are split between rules, and
// read part by part. A rule begins with a dash in the column of the first one, since everything else in a
// rule is indented further. If that assumption fails, a part does not parse, and the file is read as a whole.
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
	key, begin, end := at[0], at[2], len(text)
	dash := "\n" + string(text[at[2]:at[3]])
	line := begin
	for list := range bytes.Lines(text[begin:]) {
		if strings.IndexByte(" -#\r\n", list[0]) < 0 { // the next key of the file
			end = line
			break
		}
		line += len(list)
	}
	around := slices.Concat(text[:key], []byte("rules: []"), bytes.Repeat([]byte("\n"), bytes.Count(text[key:end], []byte("\n"))), text[end:])
	if bytes.IndexByte(around, '&') >= 0 {
		return nil // an alias in a part may refer to an anchor here
	}
	parts := []part{{text: around}}
	for before := bytes.Count(text[:begin], []byte("\n")); begin < end; {
		next := end
		from := min(begin+size-1, end)
		if i := bytes.Index(text[from:end], []byte(dash)); i >= 0 {
			next = from + i + 1
		}
		parts = append(parts, part{text[begin:next], before, true})
		before += bytes.Count(text[begin:next], []byte("\n"))
		begin = next
	}
	return parts
}

// indentedByTab matches a line that a tab indents, which YAML allows only after certain lines.
var indentedByTab = regexp.MustCompile(`(?m)^ *\t`)

// part reads p, a part of file.
func (l *loader) part(file string, p part) *reader {
	r := l.reader(file, p.text, p.before)
	switch root := r.Parse(); {
	case r.Broken || root == nil: // blank, or an error
	case !p.rules:
		// After an error here, such as a second key "rules", the whole file may have different errors than its parts.
		r.Broken = !r.Mapping(root, "the file", "", r.fields()) || len(r.Errs) > 0
	case strictyaml.IsSequence(root):
		r.ruleList(root)
	default:
		r.Broken = true
	}
	return r
}
