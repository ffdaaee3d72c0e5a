package rule

import (
	"fmt"
	"slices"
	"strings"

	"go.yaml.in/yaml/v4"
)

const (
	maxErrors = 20   // errors that are reported
	enough    = 1000 // errors after which a file, or a part of one, is given up
)

// A decoder reads YAML nodes strictly and collects errors with their place.
type decoder struct {
	file   string
	offset int // lines before the text that nodes were parsed from
	errs   Errors
	broken bool // the text is not YAML

	hyphens Hyphens
}

// Hyphens says which keys of a file have hyphens where keys have underscores: they are read all
// the same.
type Hyphens struct {
	First *Error // the first one; nil if there is none
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

func (h *Hyphens) add(other Hyphens) {
	if h.Count += other.Count; h.First == nil {
		h.First = other.First
	}
}

// fail records an error at node n.
func (d *decoder) fail(n *yaml.Node, hint, format string, args ...any) {
	d.failAt(n.Line, n.Column, hint, format, args...)
}

// failAt records an error at a place in the text, or for the whole file if line is 0.
func (d *decoder) failAt(line, column int, hint, format string, args ...any) {
	if d.full() {
		return
	}
	e := &Error{File: d.file, Message: fmt.Sprintf(format, args...), Hint: hint}
	if line > 0 {
		e.Line, e.Column = line+d.offset, max(column, 1)
	}
	d.errs = append(d.errs, e)
}

// full reports whether there are enough errors.
func (d *decoder) full() bool { return len(d.errs) >= enough }

// resolve follows an alias.
func resolve(n *yaml.Node) *yaml.Node {
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

func isMapping(n *yaml.Node) bool  { return is(n, yaml.MappingNode, "!!map") }
func isSequence(n *yaml.Node) bool { return is(n, yaml.SequenceNode, "!!seq") }
func isString(n *yaml.Node) bool   { return is(n, yaml.ScalarNode, "!!str") }
func isInteger(n *yaml.Node) bool  { return is(n, yaml.ScalarNode, "!!int") }
func isFloat(n *yaml.Node) bool    { return is(n, yaml.ScalarNode, "!!float") }

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

// mapping reads the mapping n, whose keys are those of fields. what names it in
// errors, and hint says how to write it. mapping reports whether n is a mapping.
func (d *decoder) mapping(n *yaml.Node, what, hint string, fields []Field) bool {
	place := n
	if n = resolve(n); !isMapping(n) {
		d.fail(place, hint, "%s is %s, not a mapping", what, kindOf(n))
		return false
	}
	index := func(key *yaml.Node) int {
		key = resolve(key)
		name := underscored(key.Value)
		return slices.IndexFunc(fields, func(f Field) bool { return f.Name == name && isString(key) })
	}
	var few [16]*yaml.Node
	first := few[:] // of the keys of each field
	if len(fields) > len(few) {
		first = make([]*yaml.Node, len(fields))
	}
	var meant []string // fields that unknown keys are probably meant for
	for i := 0; i+1 < len(n.Content); i += 2 {
		if at := index(n.Content[i]); at < 0 {
			key := underscored(resolve(n.Content[i]).Value)
			meant = append(meant, guess(key, names(fields)), belongs[key])
		} else if first[at] == nil {
			first[at] = n.Content[i]
		}
	}
	for i, f := range fields {
		if f.Need != "" && first[i] == nil && !slices.Contains(meant, f.Name) {
			d.fail(place, "write "+f.Need, "%s has no %s", what, f.Name)
		}
	}
	for i := 0; i+1 < len(n.Content) && !d.full(); i += 2 {
		key, value := n.Content[i], n.Content[i+1]
		switch at := index(key); {
		case at < 0:
			d.unknown(key, what, fields)
		case first[at] != key:
			d.fail(key, "leave one of them out", "%s is in %s twice, first in line %d", fields[at].Name, what, first[at].Line+d.offset)
		default:
			if given := resolve(key).Value; given != fields[at].Name {
				d.hyphens.add(Hyphens{&Error{File: d.file, Line: key.Line + d.offset, Column: key.Column,
					Message: fmt.Sprintf("%s is spelled %s, but is accepted", given, fields[at].Name)}, 1})
			}
			fields[at].Read(value)
		}
	}
	return true
}

// underscored returns key with underscores, as keys of files are spelled.
func underscored(key string) string { return strings.ReplaceAll(key, "-", "_") }

// belongs are the keys that are easily written a level too high or too low.
var belongs = map[string]string{
	"hosts": "match", "methods": "match", "paths": "match",
	"path_case": "match", "path_trailing_slash": "match", "path_parameters": "match", "path_reading": "match",
	"statuses":  "count",
	"threshold": "limits", "period": "limits",
	"status": "response", "content_type": "response", "body": "response",
}

// unknown records that a mapping with fields has a key that is none of them.
func (d *decoder) unknown(place *yaml.Node, what string, fields []Field) {
	key := resolve(place)
	if key.Kind != yaml.ScalarNode {
		d.fail(place, "the keys are "+enumerate(names(fields), "and"), "a key of %s is %s", what, kindOf(key))
		return
	}
	hint := didYouMean(underscored(key.Value), names(fields), "the keys are", "and")
	if parent := belongs[underscored(key.Value)]; parent != "" && slices.Contains(names(fields), parent) {
		hint = fmt.Sprintf("it belongs under %s", parent)
	} else if key.ShortTag() == "!!merge" {
		hint = "mappings cannot be merged: write its keys out"
	}
	d.fail(place, hint, "unknown key %s in %s", quote(key.Value), what)
}

// sequence returns the elements of the sequence n, and reports whether it is one and
// not empty. hint says how to write it, empty what to do instead of an empty list.
func (d *decoder) sequence(n *yaml.Node, what, hint, empty string) ([]*yaml.Node, bool) {
	list, ok := d.list(n, what, hint)
	if ok && len(list) == 0 {
		d.fail(n, empty, "%s is an empty list", what)
	}
	return list, len(list) > 0
}

// list is as sequence for lists that may be empty.
func (d *decoder) list(n *yaml.Node, what, hint string) ([]*yaml.Node, bool) {
	place := n
	if n = resolve(n); isSequence(n) {
		return n.Content, true
	}
	if n.Kind == yaml.ScalarNode && n.ShortTag() != "!!null" && n.Value != "" && len(n.Value) <= 60 {
		value := n.Value
		if strings.Trim(value, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-./") != "" {
			value = quote(value)
		}
		hint = fmt.Sprintf("write a list: [%s]", value)
	}
	d.fail(place, hint, "%s is %s, not a list", what, kindOf(n))
	return nil, false
}

// text returns the string n, and reports whether it is one. Plain scalars that YAML
// takes for numbers, dates or truth values are refused, so that nothing is read in
// another spelling than the file has.
func (d *decoder) text(n *yaml.Node, what string) (string, bool) {
	place := n
	if n = resolve(n); isString(n) {
		return n.Value, true
	}
	hint := ""
	if n.Kind == yaml.ScalarNode && n.ShortTag() != "!!null" {
		hint = "quote it: " + quote(n.Value)
	}
	d.fail(place, hint, "%s is %s, not a string", what, kindOf(n))
	return "", false
}

// choice returns which of words the string n is, or -1.
func (d *decoder) choice(n *yaml.Node, what string, words []string) int {
	place := n
	n = resolve(n)
	if !isString(n) {
		d.fail(place, "write "+enumerate(words, "or"), "%s is %s, not a string", what, kindOf(n))
		return -1
	}
	at := slices.Index(words, n.Value)
	if at < 0 {
		d.fail(place, didYouMean(n.Value, words, "write", "or"), "%s cannot be %s", what, quote(n.Value))
	}
	return at
}

// integer returns the whole number n, and reports whether it is one between low and
// high.
func (d *decoder) integer(n *yaml.Node, what string, low, high uint64) (uint64, bool) {
	place := n
	n = resolve(n)
	number := isInteger(n) || isFloat(n)
	v, ok := parseDigits(n.Value)
	if number && ok && low <= v && v <= high {
		return v, true
	}
	hint := fmt.Sprintf("write a whole number from %d to %d", low, high)
	switch {
	case number && (strings.Trim(n.Value, "-0123456789") != "" || len(n.Value) > 1 && n.Value[0] == '0'):
		hint += ", in plain decimal digits"
	case isString(n) && ok:
		hint = "write it without quotes: " + n.Value
	}
	if number {
		d.fail(place, hint, "%s cannot be %s", what, short(n.Value))
	} else {
		d.fail(place, hint, "%s is %s, not a whole number", what, kindOf(n))
	}
	return 0, false
}

// parseDigits reads decimal digits only; what else YAML takes for an integer (octal,
// underscores, signs) is refused.
func parseDigits(s string) (v uint64, ok bool) {
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

// kindOf describes a node for an error message.
func kindOf(n *yaml.Node) string {
	switch {
	case isMapping(n):
		return "a mapping"
	case isSequence(n):
		return "a list"
	case n.Kind != yaml.ScalarNode:
		return "tagged " + short(n.Tag)
	}
	switch tag := n.ShortTag(); tag {
	case "!!null":
		return "empty"
	case "!!int", "!!float":
		return "the number " + short(n.Value)
	case "!!bool":
		return "the truth value " + short(n.Value)
	case "!!timestamp":
		return "the date " + short(n.Value)
	case "!!str", "!!merge":
		return "the string " + quote(n.Value)
	default:
		return "tagged " + short(tag)
	}
}

// short is quote for what reads well without quotes.
func short(s string) string {
	if quoted := quote(s); s == "" || strings.Contains(s, " ") || quoted != `"`+s+`"` {
		return quoted
	}
	return s
}
