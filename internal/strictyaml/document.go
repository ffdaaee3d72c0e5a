package strictyaml

import (
	"bytes"
	"cmp"
	"fmt"
	"slices"
	"strings"

	"go.yaml.in/yaml/v4"
)

// MaxErrors is how many errors are reported.
const MaxErrors = 20

// Enough is the number of errors after which a file, or a part of one, is given up.
const Enough = 1000

// A Document is a YAML file, or a part of one, that is read strictly. It collects errors with
// their place and what to do about them.
type Document struct {
	File   string
	Bytes  []byte
	Offset int // lines of the file before the text
	Errs   Errors
	Broken bool // the text is not YAML

	// Parents are keys that are easily written a level too high or too low, and the keys that
	// they belong under.
	Parents map[string]string

	Hyphens Hyphens
}

// New returns a document of text; file stands for it in errors.
func New(file string, text []byte) *Document {
	return &Document{File: file, Bytes: bytes.TrimPrefix(text, []byte("\xef\xbb\xbf"))} // byte order mark
}

// Read reads the whole document, a mapping whose keys are those of fields. hint says how to begin
// it, and empty what to do if the file is empty; if it is "", the file may be empty.
func (d *Document) Read(hint, empty string, fields []Field) {
	switch root := d.Parse(); {
	case d.Broken:
	case root != nil && !is(root, yaml.ScalarNode, "!!null"):
		d.Mapping(root, "the file", hint, fields)
	case empty != "":
		d.FailAt(0, 0, empty, "the file is empty")
	}
}

// Err returns the errors, as [Errors] in the order of the lines, or nil.
func (d *Document) Err() error {
	if len(d.Errs) == 0 {
		return nil
	}
	return d.Errs.Report(Source{d.File, d.Bytes})
}

// Hyphens says which keys of a file have hyphens where keys have underscores: they are read all
// the same.
type Hyphens struct {
	First *Error // nil if there was no error
	Count int
}

// Note returns what to say of the keys, or nil.
func (h Hyphens) Note() error {
	if h.First == nil {
		return nil
	}
	note := *h.First
	if h.Count > 1 {
		note.Message += fmt.Sprintf("; %d such keys in all", h.Count)
	}
	return &note
}

// Add adds the keys of another part of the file, or of another file.
func (h *Hyphens) Add(other Hyphens) {
	if h.Count += other.Count; h.First == nil {
		h.First = other.First
	}
}

// Fail records an error at node n.
func (d *Document) Fail(n *yaml.Node, hint, format string, args ...any) {
	d.FailAt(n.Line, n.Column, hint, format, args...)
}

// FailAt records an error at a place in the text, or for the whole file if line is 0.
func (d *Document) FailAt(line, column int, hint, format string, args ...any) {
	if d.Full() {
		return
	}
	e := &Error{File: d.File, Message: fmt.Sprintf(format, args...), Hint: hint}
	if line > 0 {
		e.Line, e.Column = line+d.Offset, max(column, 1)
	}
	d.Errs = append(d.Errs, e)
}

// Full reports whether there are enough errors.
func (d *Document) Full() bool { return len(d.Errs) >= Enough }

// Resolve follows an alias.
func Resolve(n *yaml.Node) *yaml.Node {
	if n.Kind == yaml.AliasNode {
		return n.Alias
	}
	return n
}

// is reports whether n is a node of a kind with the tag that all nodes of that kind
// have, unless the file says another one.
func is(n *yaml.Node, kind yaml.Kind, tag string) bool {
	return n.Kind == kind && n.ShortTag() == tag
}

// IsMapping reports whether n is a mapping.
func IsMapping(n *yaml.Node) bool { return is(n, yaml.MappingNode, "!!map") }

// IsSequence reports whether n is a list.
func IsSequence(n *yaml.Node) bool { return is(n, yaml.SequenceNode, "!!seq") }

// IsString reports whether n is a string.
func IsString(n *yaml.Node) bool { return is(n, yaml.ScalarNode, "!!str") }

// IsInteger reports whether n is a whole number.
func IsInteger(n *yaml.Node) bool { return is(n, yaml.ScalarNode, "!!int") }

func isFloat(n *yaml.Node) bool { return is(n, yaml.ScalarNode, "!!float") }

// A Field is a key that a mapping may have.
type Field struct {
	Name string
	Need string // how to write it, where it is required
	Read func(n *yaml.Node)
}

// names returns the names of fields.
func names(fields []Field) []string {
	list := make([]string, len(fields))
	for i, f := range fields {
		list[i] = f.Name
	}
	return list
}

// Mapping reads the mapping n, whose keys are those of fields. what names it in errors, and hint
// says how to write it; if it is "", errors list the keys. Mapping reports whether n is a mapping.
func (d *Document) Mapping(n *yaml.Node, what, hint string, fields []Field) bool {
	place := n
	if n = Resolve(n); !IsMapping(n) {
		if hint == "" {
			hint = "its keys are " + EnumerateAll(names(fields), "and")
		}
		d.Fail(place, hint, "%s is %s, not a mapping", what, KindOf(n))
		return false
	}
	index := func(key *yaml.Node) int {
		key = Resolve(key)
		name := underscored(key.Value)
		return slices.IndexFunc(fields, func(f Field) bool { return f.Name == name && IsString(key) })
	}
	var few [16]*yaml.Node
	first := few[:] // of the keys of each field
	if len(fields) > len(few) {
		first = make([]*yaml.Node, len(fields))
	}
	var meant []string // fields that unknown keys are probably meant for
	for i := 0; i+1 < len(n.Content); i += 2 {
		if at := index(n.Content[i]); at < 0 {
			key := underscored(Resolve(n.Content[i]).Value)
			meant = append(meant, Guess(key, names(fields)), d.Parents[key])
		} else if first[at] == nil {
			first[at] = n.Content[i]
		}
	}
	for i, f := range fields {
		if f.Need != "" && first[i] == nil && !slices.Contains(meant, f.Name) {
			d.Fail(place, "write "+f.Need, "%s has no %s", what, f.Name)
		}
	}
	for i := 0; i+1 < len(n.Content) && !d.Full(); i += 2 {
		key, value := n.Content[i], n.Content[i+1]
		switch at := index(key); {
		case at < 0:
			d.unknown(key, what, fields)
		case first[at] != key:
			d.Fail(key, "leave one of them out", "%s is in %s twice, first in line %d", fields[at].Name, what, first[at].Line+d.Offset)
		default:
			if given := Resolve(key).Value; given != fields[at].Name {
				d.Hyphens.Add(Hyphens{&Error{File: d.File, Line: key.Line + d.Offset, Column: key.Column,
					Message: fmt.Sprintf("%s is spelled %s, but is accepted", given, fields[at].Name)}, 1})
			}
			fields[at].Read(value)
		}
	}
	return true
}

// underscored returns key with underscores, as keys of files are spelled.
func underscored(key string) string { return strings.ReplaceAll(key, "-", "_") }

// unknown records that a mapping has a key that is not among fields.
func (d *Document) unknown(place *yaml.Node, what string, fields []Field) {
	key := Resolve(place)
	if key.Kind != yaml.ScalarNode {
		d.Fail(place, "the keys are "+EnumerateAll(names(fields), "and"), "a key of %s is %s", what, KindOf(key))
		return
	}
	hint := "the keys are " + EnumerateAll(names(fields), "and")
	if best := Guess(underscored(key.Value), names(fields)); best != "" {
		hint = "did you mean " + best + "?"
	}
	if parent := d.Parents[underscored(key.Value)]; parent != "" && slices.Contains(names(fields), parent) {
		hint = fmt.Sprintf("it belongs under %s", parent)
	} else if key.ShortTag() == "!!merge" {
		hint = "mappings cannot be merged: write its keys out"
	}
	d.Fail(place, hint, "unknown key %s in %s", Quote(key.Value), what)
}

// Sequence returns the elements of the sequence n, which must not be empty. hint says how to
// write it, and empty what to do instead of an empty list; if it is "", hint does.
func (d *Document) Sequence(n *yaml.Node, what, hint, empty string) []*yaml.Node {
	before := len(d.Errs)
	list := d.List(n, what, hint)
	if len(list) == 0 && len(d.Errs) == before {
		d.Fail(n, cmp.Or(empty, hint), "%s is an empty list", what)
	}
	return list
}

// List is Sequence for lists that may be empty.
func (d *Document) List(n *yaml.Node, what, hint string) []*yaml.Node {
	place := n
	if n = Resolve(n); IsSequence(n) {
		return n.Content
	}
	if n.Kind == yaml.ScalarNode && n.ShortTag() != "!!null" && n.Value != "" && len(n.Value) <= 60 {
		value := n.Value
		if strings.Trim(value, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-./") != "" {
			value = Quote(value)
		}
		hint = fmt.Sprintf("write a list: [%s]", value)
	}
	d.Fail(place, hint, "%s is %s, not a list", what, KindOf(n))
	return nil
}

// Text returns the string n, and reports whether it is one. Plain scalars that YAML
// takes for numbers, dates or truth values are refused, so that nothing is read in
// another spelling than the file has.
func (d *Document) Text(n *yaml.Node, what string) (string, bool) {
	place := n
	if n = Resolve(n); IsString(n) {
		return n.Value, true
	}
	hint := ""
	if n.Kind == yaml.ScalarNode && n.ShortTag() != "!!null" {
		hint = "quote it: " + Quote(n.Value)
	}
	d.Fail(place, hint, "%s is %s, not a string", what, KindOf(n))
	return "", false
}

// Choice returns which of words the string n is, or -1.
func (d *Document) Choice(n *yaml.Node, what string, words []string) int {
	place := n
	n = Resolve(n)
	if !IsString(n) {
		d.Fail(place, "write "+Enumerate(words, "or"), "%s is %s, not a string", what, KindOf(n))
		return -1
	}
	at := slices.Index(words, n.Value)
	if at < 0 {
		d.Fail(place, DidYouMean(n.Value, words, "write", "or"), "%s cannot be %s", what, Quote(n.Value))
	}
	return at
}

// Boolean returns the value of n: true or false. It returns true for anything else, after an error.
func (d *Document) Boolean(n *yaml.Node, what, hint string) bool {
	place := n
	n = Resolve(n)
	if is(n, yaml.ScalarNode, "!!bool") && (n.Value == "true" || n.Value == "false") {
		return n.Value == "true"
	}
	d.Fail(place, hint, "%s is %s, not true or false", what, KindOf(n))
	return true
}

// Integer returns the whole number n, and reports whether it is one between low and
// high.
func (d *Document) Integer(n *yaml.Node, what string, low, high uint64) (uint64, bool) {
	place := n
	n = Resolve(n)
	number := IsInteger(n) || isFloat(n)
	v, ok := ParseDigits(n.Value)
	if number && ok && low <= v && v <= high {
		return v, true
	}
	hint := fmt.Sprintf("write a whole number from %d to %d", low, high)
	switch {
	case number && (strings.Trim(n.Value, "-0123456789") != "" || len(n.Value) > 1 && n.Value[0] == '0'):
		hint += ", in plain decimal digits"
	case IsString(n) && ok:
		hint = "write it without quotes: " + n.Value
	}
	if number {
		d.Fail(place, hint, "%s cannot be %s", what, Short(n.Value))
	} else {
		d.Fail(place, hint, "%s is %s, not a whole number", what, KindOf(n))
	}
	return 0, false
}

// Scalar returns a value as the file spells it, and whether it is a single one.
func Scalar(n *yaml.Node) (string, bool) {
	n = Resolve(n)
	return n.Value, n.Kind == yaml.ScalarNode && slices.Contains([]string{"!!str", "!!int", "!!float", "!!bool", "!!timestamp"}, n.ShortTag())
}

// Pairs returns the keys and values of a mapping with any keys.
func (d *Document) Pairs(n *yaml.Node, what, hint string) (pairs [][2]*yaml.Node) {
	place := n
	if n = Resolve(n); !IsMapping(n) {
		d.Fail(place, hint, "%s is %s, not a mapping", what, KindOf(n))
		return nil
	}
	for i := 0; i+1 < len(n.Content); i += 2 {
		pairs = append(pairs, [2]*yaml.Node{n.Content[i], n.Content[i+1]})
	}
	return pairs
}

// ParseDigits reads decimal digits only; what else YAML takes for an integer (octal,
// underscores, signs) is refused.
func ParseDigits(s string) (v uint64, ok bool) {
	if s == "" || len(s) > 18 || len(s) > 1 && s[0] == '0' {
		return 0, false
	}
	for i := range len(s) {
		if s[i] < '0' || s[i] > '9' {
			return 0, false
		}
		v = v*10 + uint64(s[i]-'0')
	}
	return v, true
}

// KindOf describes a node for an error message.
func KindOf(n *yaml.Node) string {
	switch {
	case IsMapping(n):
		return "a mapping"
	case IsSequence(n):
		return "a list"
	case n.Kind != yaml.ScalarNode:
		return "tagged " + Short(n.Tag)
	}
	switch tag := n.ShortTag(); tag {
	case "!!null":
		return "empty"
	case "!!int", "!!float":
		return "the number " + Short(n.Value)
	case "!!bool":
		return "the truth value " + Short(n.Value)
	case "!!timestamp":
		return "the date " + Short(n.Value)
	case "!!str", "!!merge":
		return "the string " + Quote(n.Value)
	default:
		return "tagged " + Short(tag)
	}
}

// short is quote for what reads well without quotes.
func Short(s string) string {
	if quoted := Quote(s); s == "" || strings.Contains(s, " ") || quoted != `"`+s+`"` {
		return quoted
	}
	return s
}
