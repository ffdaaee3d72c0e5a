// Package translate translates the rate limits of other programs into rules files. As far as rules can
// express it, a translation refuses no client that the other program would let through. A limit that rules
// cannot express becomes a rule that only logs, with the difference in a comment, or is listed as not
// covered.
package translate

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/edgelimit/edge/internal/prose"
	"github.com/edgelimit/edge/internal/strictyaml"
	"github.com/edgelimit/edge/rule"
	rulefile "github.com/edgelimit/edge/rule/file"
)

// A File is a configuration file of another program.
type File struct {
	Name string // in errors and comments
	Text []byte
}

var byteOrderMark = []byte("\xef\xbb\xbf")

// kinds are the kinds of configuration that can be translated.
var kinds = []kind{
	{"nginx", translateNginx},
	{"ingress-nginx", translateIngress},
	{"envoy-ratelimit", translateRatelimit},
}

// A kind is a kind of configuration.
type kind struct {
	name      string
	translate func(*Translation, []File)
}

// Kinds returns the kinds of configuration that Files knows.
func Kinds() []string { return prose.Texts(kinds, func(k kind) string { return k.name }) }

// A Translation is a rules file made from a configuration of another program.
type Translation struct {
	kind    string
	files   []string
	rules   []*draft
	allow   []listed
	deny    []listed
	general prose.Phrases // differences that concern all rules
	missing prose.Phrases // what is not covered, each with its place
}

// A listed network is an entry of the allow or deny list.
type listed struct {
	prefix netip.Prefix
	why    string
}

// A match has the lists of a rule's match. An empty list matches everything.
type match [4][]string

const (
	byHost = iota
	byMethod
	byPath
	byHeader // patterns of a header
)

// matchKeys are the keys of a match in rules files.
var matchKeys = [...]string{byHost: "hosts", byMethod: "methods", byPath: "paths", byHeader: "headers"}

func (m *match) isEmpty() bool { return len(slices.Concat(m[:]...)) == 0 }

// A draft is a rule before it is written.
type draft struct {
	id              string
	from            string        // its source
	places          []string      // the positions of from
	zone            string        // the source of the zone, if it is nginx's
	notes           prose.Phrases // differences in meaning
	logs            prose.Phrases // why the rule only logs; if empty, it blocks
	match           match
	except          match  // each list is an exception
	headerName      string // whose patterns are in match and except
	reading         string // the path_reading, with exact paths; if empty, the defaults
	anyCase         bool   // despite reading, the case of letters does not matter
	characteristics []rule.Characteristic
	limits          []rule.Limit
	status          int
}

// Files translates files of a kind. For nginx it takes the main file, and reads the files that it includes.
// Errors in the files are [rulefile.Error].
func Files(kind string, files ...File) (t *Translation, err error) {
	defer func() {
		switch cause := recover().(type) {
		case nil:
		case *rulefile.Error: // see fail
			t, err = nil, cause
		default:
			panic(cause)
		}
	}()
	i := slices.Index(Kinds(), kind)
	if i < 0 {
		return nil, errors.New("translate: unknown kind " + kind)
	}
	t = &Translation{kind: kind, files: prose.Texts(files, func(f File) string { return f.Name })}
	kinds[i].translate(t, files)
	t.nameRules()
	if _, err := rulefile.Parse("the translation", t.Text()); err != nil {
		return nil, fmt.Errorf("translate: the translation is not valid, which is a bug in this program: %w", err)
	}
	return t, nil
}

// uncovered records something that no rule can express.
func (t *Translation) uncovered(where place, format string, args ...any) {
	t.missing.Add("%v: %s", where.at(), fmt.Sprintf(format, args...))
}

// list records a network on the allow or deny list.
func list(into *[]listed, prefix netip.Prefix, why string) {
	if i := slices.IndexFunc(*into, func(l listed) bool { return l.prefix == prefix }); i < 0 {
		*into = append(*into, listed{prefix, why})
	} else if (*into)[i].why != why && !strings.Contains((*into)[i].why, why) {
		(*into)[i].why += ", " + why
	}
}

// parseNetwork parses a network or an address. It ignores bits beyond the prefix.
func parseNetwork(text string) (netip.Prefix, bool) {
	if p, err := netip.ParsePrefix(text); err == nil {
		text = p.Masked().String()
	}
	p, err := rule.ParsePrefix(text)
	return p, err == nil
}

// nameRules makes the IDs of the rules valid and unique.
func (t *Translation) nameRules() {
	next := map[string]int{} // the number that makes an ID unique
	for _, r := range t.rules {
		base := strings.Trim(regexp.MustCompile(`[^A-Za-z0-9_.]+`).ReplaceAllString(r.id, "-"), "-_.")
		base = cmp.Or(strings.TrimRight(base[:min(len(base), rule.MaxID-4)], "-_."), "rule")
		for r.id = base; next[r.id] > 0; r.id = fmt.Sprintf("%s-%d", base, next[base]) {
			next[base]++
		}
		next[r.id]++
	}
}

// Text returns the rules file.
func (t *Translation) Text() []byte {
	var b bytes.Buffer
	comment(&b, "", "", fmt.Sprintf("Made from %s by 'edge import %s'. Comments say where a rule differs from its "+
		"original. Before you enforce the rules, see what they would have refused: edge replay rules FILE access.log",
		strings.Join(t.files, ", "), t.kind))
	remark := func(title string, list []string) {
		for i, text := range unique(list) {
			if i == 0 {
				b.WriteString(title)
			}
			comment(&b, "", "- ", text)
		}
	}
	remark("#\n# Differences that concern all rules:\n", t.general)
	b.WriteString("\nrules:")
	if len(t.rules) == 0 {
		b.WriteString(" []\n")
	}
	for _, r := range t.rules {
		b.WriteString("\n")
		r.write(&b)
	}
	for i, list := range [][]listed{t.allow, t.deny} {
		if len(list) > 0 {
			fmt.Fprintf(&b, "\n%s:\n", []string{"allow", "deny"}[i])
		}
		for _, entry := range list {
			comment(&b, "  ", "", entry.why)
			fmt.Fprintf(&b, "  - %s\n", scalar(entry.prefix.String()))
		}
	}
	remark("\n# Not covered:\n", t.missing)
	return b.Bytes()
}

// readsPaths reports whether r depends on paths.
func (r *draft) readsPaths() bool {
	return len(r.match[byPath])+len(r.except[byPath]) > 0 || r.countsBy(rule.Characteristic{Kind: rule.Path})
}

// closingStatuses are statuses for which nginx closes the connection without an answer.
var closingStatuses = []int{408, 444, 499}

// write writes the rule as an element of the list of rules.
func (r *draft) write(b *bytes.Buffer) {
	comment(b, "  ", "", fmt.Sprintf("%s (%s)%s", r.from, strings.Join(r.places, ", "), r.zone))
	for _, text := range r.notes {
		comment(b, "  ", "- ", text)
	}
	fmt.Fprintf(b, "  - id: %s\n", scalar(r.id))
	block := func(head, indent string, lists match) {
		for i, list := range lists {
			if len(list) > 0 {
				text := sequence(list)
				if i == byHeader {
					text = fmt.Sprintf("{%s: [%s]}", scalar(r.headerName), strings.Join(prose.Texts(list, scalar), ", "))
				}
				fmt.Fprintf(b, "%s%s%s: %s\n", head, indent, matchKeys[i], text)
				head = ""
			}
		}
	}
	block("    match:\n", "      ", r.match)
	if r.reading != "" && r.readsPaths() {
		if r.match.isEmpty() {
			b.WriteString("    match:\n")
		}
		if !r.anyCase {
			b.WriteString("      path_case: exact\n")
		}
		fmt.Fprintf(b, "      path_trailing_slash: exact\n      path_parameters: exact\n      path_reading: %s\n", r.reading)
	}
	block("    except:\n", "      - ", r.except)
	var list []string
	for _, c := range r.characteristics {
		if c.Skip {
			list = append(list, fmt.Sprintf("{%v: %s, missing: skip}", c.Kind, scalar(c.Name)))
		} else {
			list = append(list, scalar(c.String()))
		}
	}
	fmt.Fprintf(b, "    characteristics: [%s]\n    limits:\n", strings.Join(list, ", "))
	for _, l := range r.limits {
		fmt.Fprintf(b, "      - {threshold: %d, period: %s}\n", l.Threshold, rule.FormatDuration(l.Period))
	}
	closes := slices.Contains(closingStatuses, r.status)
	if r.status != 0 && !closes {
		fmt.Fprintf(b, "    response: {status: %d}\n", r.status)
	}
	for _, text := range r.logs {
		comment(b, "    ", "- ", "only logs: "+text)
	}
	if len(r.logs) > 0 {
		b.WriteString("    action: log\n")
	} else if closes {
		b.WriteString("    action: close\n")
	}
}

// comment writes text as a comment of several lines. The first line begins with mark.
func comment(b *bytes.Buffer, indent, mark, text string) {
	for _, line := range prose.Wrapped(text, 108-len(indent)-len(mark)) {
		b.WriteString(indent + "# " + mark + prose.Printable(line) + "\n")
		mark = strings.Repeat(" ", len(mark))
	}
}

var (
	plainScalar = regexp.MustCompile(`^([A-Za-z/][A-Za-z0-9/._*-]*(:[A-Za-z0-9/._*-]+)*|[0-9]+(\.[0-9]+){3}(/[0-9]+)?)$`)
	notString   = regexp.MustCompile(`(?i)^(y|n|yes|no|true|false|on|off|null)$`)
)

// scalar formats a string, in quotes unless YAML reads it as a string without them.
func scalar(text string) string {
	if plainScalar.MatchString(text) && !notString.MatchString(text) {
		return text
	}
	return strconv.Quote(text)
}

// sequence formats a list, on one line if it is short.
func sequence(list []string) string {
	words := prose.Texts(list, scalar)
	if text := "[" + strings.Join(words, ", ") + "]"; len(text) < 90 {
		return text
	}
	return "\n        - " + strings.Join(words, "\n        - ")
}

// expressible reports whether a rule's match can have values as the list of the given index.
func expressible(index int, values ...string) bool {
	inner := func(v string) bool { return strings.Contains(strings.Trim(v, "*"), "*") } // only rules have such stars
	if index == byPath && slices.ContainsFunc(values, inner) {
		return false
	}
	match := matchKeys[index] + ": [" + strings.Join(prose.Texts(values, scalar), ", ") + "]"
	_, err := rulefile.Parse("", fmt.Appendf(nil,
		"rules: [{id: x, match: {%s}, characteristics: [ip], limits: [{threshold: 1, period: 1s}]}]", match))
	return err == nil
}

// A position is a place in a file.
type position struct {
	file         *File
	line, column int // from 1, or 0 for the whole file
}

func (p position) String() string { return fmt.Sprintf("%s:%d:%d", p.file.Name, p.line, p.column) }

// A place is something in a file.
type place interface{ at() position }

func (p position) at() position { return p }

// fail ends the translation with an error at a position: it panics with it, and Files recovers.
func fail(where place, hint, format string, args ...any) {
	p := where.at()
	e := &rulefile.Error{File: p.file.Name, Line: p.line, Column: p.column, Message: fmt.Sprintf(format, args...),
		Hint: hint}
	text := bytes.TrimPrefix(p.file.Text, byteOrderMark) // which no column counts
	panic(rulefile.Errors{e}.Report(strictyaml.Source{Name: p.file.Name, Bytes: text})[0])
}

// require fails unless ok is true.
func require(ok bool, where place, hint, format string, args ...any) {
	if !ok {
		fail(where, hint, format, args...)
	}
}

// The lowest and the highest status of a refusal in nginx.
const minStatus, maxStatus = 400, 599

// wholeNumber parses text, the value of name at a place.
func wholeNumber(where place, name, text string, low, high uint64) uint64 {
	n, err := strconv.ParseUint(strings.TrimSpace(text), 10, 64)
	require(err == nil && low <= n && n <= high, where,
		fmt.Sprintf("write a whole number from %d to %d", low, high), "invalid %s %q", name, text)
	return n
}

// unique returns the elements of list without duplicates.
func unique(list []string) (rest []string) {
	seen := make(map[string]bool, len(list))
	for _, text := range list {
		if !seen[text] {
			seen[text], rest = true, append(rest, text)
		}
	}
	return rest
}
