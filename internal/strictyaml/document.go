// Package strictyaml reads the YAML files that people write for edge: rules and their tests, traffic
// mixes, settings. It never reinterprets a value, such as 012 or yes, and ignores no key. It collects
// all errors of a file, each with file:line:column, what is wrong and what to do about it.
package strictyaml

import (
	"bytes"
	"cmp"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v4"

	"github.com/edgelimit/edge/internal/prose"
)

// MaxErrors is the maximum number of errors that are reported.
const MaxErrors = 20

// Enough is the number of errors at which reading a file, or a part of one, stops.
const Enough = 1000

// MaxStream is the maximum size of a file that is not a regular one, in bytes: a device or a pipe may never end.
const MaxStream = 32 << 20

// ReadFile is os.ReadFile with the bound MaxStream.
func ReadFile(name string) ([]byte, error) {
	if info, err := os.Stat(name); err != nil || info.Mode().IsRegular() {
		return os.ReadFile(name)
	}
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return Read(name, f)
}

// Read reads r to its end, which must come within MaxStream bytes. Errors call it name.
func Read(name string, r io.Reader) ([]byte, error) {
	text, err := io.ReadAll(io.LimitReader(r, MaxStream+1))
	if len(text) > MaxStream {
		err = fmt.Errorf("%s has more than %d MiB", name, MaxStream>>20)
	}
	return text, err
}

// A Document is a YAML file. It collects the errors in it.
type Document struct {
	File   string
	Bytes  []byte
	Errs   Errors
	fields []Field // of the whole document
}

// New returns a document of text. file is its name in errors.
func New(file string, text []byte) *Document {
	return &Document{File: file, Bytes: bytes.TrimPrefix(text, []byte("\xef\xbb\xbf"))} // byte order mark
}

// Read reads the whole document, a mapping with the keys of fields. hint says how to begin it, and
// empty what to do if the file is empty. If empty is "", the file may be empty.
func (d *Document) Read(hint, empty string, fields []Field) {
	d.fields = fields
	switch root := d.Parse(); {
	case len(d.Errs) > 0: // not YAML
	case root != nil && root.Kind == yaml.ScalarNode && root.ShortTag() != "!!null": // it may be a secret
		d.Fail(root, cmp.Or(hint, keysOf(fields)), "the file is a single value, not a mapping")
	case root != nil && !is(root, yaml.ScalarNode, "!!null"):
		d.Mapping(root, "the file", hint, fields)
	case empty != "":
		d.FailAt(0, 0, empty, "the file is empty")
	}
}

// Err returns the errors as [Errors], in the order of the lines, or nil if there are none.
func (d *Document) Err() error {
	if len(d.Errs) == 0 {
		return nil
	}
	return d.Errs.Report(Source{d.File, d.Bytes, d.fields})
}

// Fail records an error at node n.
func (d *Document) Fail(n *yaml.Node, hint, format string, args ...any) {
	d.FailAt(n.Line, n.Column, hint, format, args...)
}

// FailAt records an error at a line and column of Bytes, or about the whole file if line is 0.
func (d *Document) FailAt(line, column int, hint, format string, args ...any) {
	if d.full() {
		return
	}
	e := &Error{File: d.File, Message: fmt.Sprintf(format, args...), Hint: hint}
	if line > 0 {
		e.Line, e.Column = line, max(column, 1)
	}
	d.Errs = append(d.Errs, e)
}

// full reports whether there are [Enough] errors.
func (d *Document) full() bool { return len(d.Errs) >= Enough }

// is reports whether n is a node of the given kind and tag.
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

// A Field is a key that a mapping may have.
type Field struct {
	Name   string
	Need   string // how to write the key, if it is required
	Secret bool   // errors do not show its lines
	Read   func(n *yaml.Node)
}

// Whole returns the field of a whole number from low to high. It reads into to, which remains as it is
// after an error.
func Whole[T ~int | ~uint64](d *Document, name, need string, to *T, low, high uint64) Field {
	return Field{Name: name, Need: need, Read: func(n *yaml.Node) {
		if v, ok := d.Integer(n, name, low, high); ok {
			*to = T(v)
		}
	}}
}

// Word returns the field of one of words. It reads the index of the word into to, or 0 after an error.
func Word[T ~uint8](d *Document, name string, to *T, words []string) Field {
	return Field{Name: name, Read: func(n *yaml.Node) { *to = T(max(d.Choice(n, name, words), 0)) }}
}

func names(fields []Field) []string {
	return prose.Texts(fields, func(f Field) string { return f.Name })
}

func keysOf(fields []Field) string { return "its keys are " + prose.EnumerateAll(names(fields), "and") }

// Mapping reads the mapping n with the keys of fields, and reports whether n is a mapping. It reads the values in the
// order of fields, so that one may depend on those before it. subject is the mapping's name in errors. hint says how to
// write it. If hint is "", errors list the keys.
func (d *Document) Mapping(n *yaml.Node, subject, hint string, fields []Field) bool {
	if !IsMapping(n) {
		d.Fail(n, cmp.Or(hint, keysOf(fields)), "%s is %s, not a mapping", subject, KindOf(n))
		return false
	}
	index := func(key *yaml.Node) int {
		return slices.IndexFunc(fields, func(f Field) bool { return f.Name == key.Value && IsString(key) })
	}
	first := make([][]*yaml.Node, len(fields)) // by field, the first key and its value
	var meant []string                         // fields that unknown keys probably mean
	for pair := range slices.Chunk(n.Content, 2) {
		switch at := index(pair[0]); {
		case at < 0 && len(meant) < Enough:
			meant = append(meant, prose.Guess(underscored(pair[0].Value), names(fields)))
		case at >= 0 && first[at] == nil:
			first[at] = pair
		}
	}
	for i, f := range fields {
		if f.Need != "" && first[i] == nil && !slices.Contains(meant, f.Name) {
			d.Fail(n, "write "+f.Need, "%s has no %s", subject, f.Name)
		}
	}
	for pair := range slices.Chunk(n.Content, 2) {
		if d.full() {
			return true
		}
		key := pair[0]
		if at := index(key); at < 0 {
			d.unknown(key, subject, fields)
		} else if first[at][0] != key {
			d.Fail(key, "remove one of them", "%s is in %s twice, first on line %d", fields[at].Name, subject,
				first[at][0].Line)
		}
	}
	for i, f := range fields {
		if first[i] != nil && !d.full() {
			f.Read(first[i][1])
		}
	}
	return true
}

func underscored(key string) string { return strings.ReplaceAll(key, "-", "_") }

// unknown records an error about a key that is not in fields.
func (d *Document) unknown(key *yaml.Node, subject string, fields []Field) {
	hint := "the keys are " + prose.EnumerateAll(names(fields), "and")
	if key.Kind != yaml.ScalarNode {
		d.Fail(key, hint, "a key of %s is %s", subject, KindOf(key))
		return
	}
	d.Fail(key, cmp.Or(prose.Meant(underscored(key.Value), names(fields)), hint), "unknown key %s in %s",
		prose.Quote(key.Value), subject)
}

// Sequence returns the elements of the sequence n, which must not be empty. hint says how to write it,
// and empty what to write instead of an empty list. If empty is "", hint says that, too.
func (d *Document) Sequence(n *yaml.Node, subject, hint, empty string) []*yaml.Node {
	before := len(d.Errs)
	list := d.List(n, subject, hint)
	if len(list) == 0 && len(d.Errs) == before {
		d.Fail(n, cmp.Or(empty, hint), "%s is an empty list", subject)
	}
	return list
}

// List is like Sequence, but the list may be empty.
func (d *Document) List(n *yaml.Node, subject, hint string) []*yaml.Node {
	if !IsSequence(n) {
		d.Fail(n, hint, "%s is %s, not a list", subject, KindOf(n))
		return nil
	}
	return n.Content
}

// Text returns the string n, and reports whether it is one. It rejects plain scalars that YAML reads as
// numbers, dates or truth values.
func (d *Document) Text(n *yaml.Node, subject string) (string, bool) {
	if IsString(n) {
		return n.Value, true
	}
	hint := ""
	if n.Kind == yaml.ScalarNode && n.ShortTag() != "!!null" {
		hint = "quote it: " + prose.Quote(n.Value)
	}
	d.Fail(n, hint, "%s is %s, not a string", subject, KindOf(n))
	return "", false
}

// Choice returns the index of the string n in words, or -1 after an error.
func (d *Document) Choice(n *yaml.Node, subject string, words []string) int {
	if !IsString(n) {
		d.Fail(n, "write "+prose.Enumerate(words, "or"), "%s is %s, not a string", subject, KindOf(n))
		return -1
	}
	at := slices.Index(words, n.Value)
	if at < 0 {
		d.Fail(n, cmp.Or(prose.Meant(n.Value, words), "write "+prose.Enumerate(words, "or")), "%s cannot be %s", subject,
			prose.Quote(n.Value))
	}
	return at
}

// Boolean returns the value of n, which must be true or false. After an error, it returns true.
func (d *Document) Boolean(n *yaml.Node, subject, hint string) bool {
	if is(n, yaml.ScalarNode, "!!bool") && (n.Value == "true" || n.Value == "false") {
		return n.Value == "true"
	}
	d.Fail(n, hint, "%s is %s, not true or false", subject, KindOf(n))
	return true
}

// Integer returns the whole number n, and reports whether it is one from low to high.
func (d *Document) Integer(n *yaml.Node, subject string, low, high uint64) (uint64, bool) {
	number := IsInteger(n) || is(n, yaml.ScalarNode, "!!float")
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
		d.Fail(n, hint, "%s cannot be %s", subject, Short(n.Value))
	} else {
		d.Fail(n, hint, "%s is %s, not a whole number", subject, KindOf(n))
	}
	return 0, false
}

// Scalar returns the single value n as the file spells it, and reports whether it is one.
func Scalar(n *yaml.Node) (string, bool) {
	return n.Value, n.Kind == yaml.ScalarNode &&
		slices.Contains([]string{"!!str", "!!int", "!!float", "!!bool", "!!timestamp"}, n.ShortTag())
}

// Pairs returns the keys and values of the mapping n, which may have any keys.
func (d *Document) Pairs(n *yaml.Node, subject, hint string) [][]*yaml.Node {
	if !IsMapping(n) {
		d.Fail(n, hint, "%s is %s, not a mapping", subject, KindOf(n))
		return nil
	}
	return slices.Collect(slices.Chunk(n.Content, 2))
}

// ParseDigits parses a number of at most 18 decimal digits. It rejects other forms that YAML has for
// integers: octal, underscores, signs.
func ParseDigits(s string) (v uint64, ok bool) {
	if len(s) > 18 || len(s) > 1 && s[0] == '0' {
		return 0, false
	}
	v, err := strconv.ParseUint(s, 10, 64)
	return v, err == nil
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
		return "the string " + prose.Quote(n.Value)
	default:
		return "tagged " + Short(tag)
	}
}

// Short is like Quote, but adds no quotes to words that need none.
func Short(s string) string {
	if quoted := prose.Quote(s); s == "" || strings.Contains(s, " ") || quoted != `"`+s+`"` {
		return quoted
	}
	return s
}
