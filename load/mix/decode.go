package mix

// Strict decoding of bytes to YAML nodes, and of nodes to values.

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"go.yaml.in/yaml/v4"
)

const maxErrors = 20 // reported errors

// A decoder reads YAML nodes and collects errors with their place.
type decoder struct {
	file string
	text []byte
	errs Errors
}

// fail records an error at node n.
func (d *decoder) fail(n *yaml.Node, hint, format string, args ...any) {
	d.failAt(n.Line, n.Column, hint, format, args...)
}

// failAt records an error at a place in the text, or for the whole file if line is 0.
func (d *decoder) failAt(line, column int, hint, format string, args ...any) {
	if len(d.errs) > 50*maxErrors {
		return
	}
	e := &Error{File: d.file, Message: fmt.Sprintf(format, args...), Hint: hint}
	if line > 0 {
		e.Line, e.Column, e.Source = line, max(column, 1), lineOf(d.text, line)
	}
	d.errs = append(d.errs, e)
}

// report returns the first errors by line and column.
func (d *decoder) report() Errors {
	slices.SortStableFunc(d.errs, func(a, b *Error) int {
		return cmp.Or(cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column))
	})
	if len(d.errs) > maxErrors {
		d.errs = append(d.errs[:maxErrors], &Error{File: d.file, Message: "too many errors; the rest is not shown"})
	}
	return d.errs
}

// lineOf returns a line of text, from 1, without control characters.
func lineOf(text []byte, line int) string {
	lines := bytes.SplitN(text, []byte("\n"), line+1)
	if line > len(lines) {
		return ""
	}
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) && r != '\t' {
			return utf8.RuneError
		}
		return r
	}, strings.TrimSuffix(string(lines[line-1]), "\r"))
}

// parse returns the root of the only document, or records an error and returns nil.
func (d *decoder) parse() (root *yaml.Node) {
	defer func() {
		// The parser may panic.
		if cause := recover(); cause != nil {
			root = nil
			d.failAt(0, 0, "", "the YAML parser gave up: %v", cause)
		}
	}()
	if !utf8.Valid(d.text) {
		d.failAt(0, 0, "save it as UTF-8", "the file is not UTF-8")
		return nil
	}
	var doc, second yaml.Node
	loader, err := yaml.NewLoader(bytes.NewReader(d.text))
	if err == nil {
		err = loader.Load(&doc)
	}
	if err == io.EOF {
		d.failAt(0, 0, `begin it with the lines "duration: 10m" and "components:"`, "the file is empty")
		return nil
	}
	if err == nil {
		if err = loader.Load(&second); err == io.EOF {
			return doc.Content[0]
		}
	}
	var syntax *yaml.LoadError
	switch {
	case err == nil:
		d.fail(&second, "write one document into each file", "a second document begins here")
	case errors.As(err, &syntax):
		line, column, hint := syntax.Mark.Line, syntax.Mark.Column, "see whether the indentation, quotes and brackets here and above are right"
		if tab := strings.IndexByte(lineOf(d.text, line), '\t'); tab >= 0 {
			column, hint = tab+1, "indent with spaces instead of tabs"
		}
		d.failAt(line, column, hint, "not YAML: %s", syntax.Message)
	default:
		d.failAt(0, 0, "", "not YAML: %v", err)
	}
	return nil
}

// resolve follows an alias.
func resolve(n *yaml.Node) *yaml.Node {
	if n.Kind == yaml.AliasNode {
		return n.Alias
	}
	return n
}

// is reports whether n is a node of a kind, with one of the tags that the parser gives
// such nodes.
func is(n *yaml.Node, kind yaml.Kind, tags ...string) bool {
	return n.Kind == kind && slices.Contains(tags, n.ShortTag())
}

// kindOf describes a node for an error message.
func kindOf(n *yaml.Node) string {
	switch {
	case is(n, yaml.MappingNode, "!!map"):
		return "a mapping"
	case is(n, yaml.SequenceNode, "!!seq"):
		return "a list"
	case is(n, yaml.ScalarNode, "!!null"):
		return "empty"
	case is(n, yaml.ScalarNode, "!!str", "!!int", "!!float", "!!bool", "!!timestamp", "!!merge"):
		return quote(n.Value)
	default:
		return "tagged " + quote(n.Tag)
	}
}

// A field is a key that a mapping may have.
type field struct {
	name string
	need string // how to write it, if it is required
	read func(n *yaml.Node)
}

func names(fields []field) []string {
	list := make([]string, len(fields))
	for i, f := range fields {
		list[i] = f.name
	}
	return list
}

// mapping reads the mapping n, whose keys are those of fields. what names it in errors.
func (d *decoder) mapping(n *yaml.Node, what string, fields []field) bool {
	place := n
	if n = resolve(n); !is(n, yaml.MappingNode, "!!map") {
		d.fail(place, "its keys are "+enumerate(names(fields), "and"), "%s is %s, not a mapping", what, kindOf(n))
		return false
	}
	seen := map[string]int{} // the lines of keys
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, name := n.Content[i], resolve(n.Content[i]).Value
		at := slices.IndexFunc(fields, func(f field) bool { return f.name == name })
		switch {
		case at < 0 || !is(resolve(key), yaml.ScalarNode, "!!str"):
			d.fail(key, didYouMean(name, names(fields)), "unknown key %s in %s", quote(name), what)
		case seen[name] > 0:
			d.fail(key, "leave one of them out", "%s is in %s twice, first in line %d", name, what, seen[name])
		default:
			seen[name] = key.Line
			fields[at].read(n.Content[i+1])
		}
	}
	for _, f := range fields {
		if f.need != "" && seen[f.name] == 0 {
			d.fail(place, "write "+f.need, "%s has no %s", what, f.name)
		}
	}
	return true
}

// sequence returns the elements of n, which must be a list with at least one.
func (d *decoder) sequence(n *yaml.Node, what, hint string) []*yaml.Node {
	list := resolve(n)
	if !is(list, yaml.SequenceNode, "!!seq") {
		d.fail(n, hint, "%s is %s, not a list", what, kindOf(list))
		return nil
	}
	if len(list.Content) == 0 {
		d.fail(n, hint, "%s is an empty list", what)
	}
	return list.Content
}

// string returns the string n. It refuses plain scalars that YAML reads as another type, since their
// spelling could be lost.
func (d *decoder) string(n *yaml.Node, what string) (string, bool) {
	s := resolve(n)
	if is(s, yaml.ScalarNode, "!!str") {
		return s.Value, true
	}
	hint := ""
	if s.Kind == yaml.ScalarNode && s.Value != "" {
		hint = "quote it: " + quote(s.Value)
	}
	d.fail(n, hint, "%s is %s, not a string", what, kindOf(s))
	return "", false
}

// scalar returns the text of n, which must be a plain value.
func (d *decoder) scalar(n *yaml.Node, what, hint string) (string, bool) {
	s := resolve(n)
	if is(s, yaml.ScalarNode, "!!str", "!!int", "!!float", "!!bool", "!!timestamp") && s.Value != "" {
		return s.Value, true
	}
	d.fail(n, hint, "%s is %s", what, kindOf(s))
	return "", false
}

// integer returns the whole number n from low to high, whose digits may be grouped by
// underscores.
func (d *decoder) integer(n *yaml.Node, what string, low, high uint64) uint64 {
	hint := fmt.Sprintf("write a whole number from %d to %d", low, high)
	s, ok := d.scalar(n, what, hint)
	if !ok {
		return low
	}
	v, ok := digits(s)
	if !ok || v < low || v > high {
		d.fail(n, hint, "%s cannot be %s", what, quote(s))
		return low
	}
	return v
}

// digits reads a whole number in decimal digits.
func digits(s string) (uint64, bool) {
	plain := strings.ReplaceAll(s, "_", "")
	if plain == "" || s[0] == '_' || strings.Trim(plain, "0123456789") != "" || len(plain) > 1 && plain[0] == '0' {
		return 0, false
	}
	v, err := strconv.ParseUint(plain, 10, 64)
	return v, err == nil
}

// fraction returns the decimal number n from low to high.
func (d *decoder) fraction(n *yaml.Node, what string, low, high float64) float64 {
	hint := fmt.Sprintf("write a number from %v to %s", low, strconv.FormatFloat(high, 'f', -1, 64))
	s, ok := d.scalar(n, what, hint)
	if !ok {
		return low
	}
	v, err := strconv.ParseFloat(s, 64)
	if err != nil || strings.Trim(s, "0123456789.") != "" || v < low || v > high {
		d.fail(n, hint, "%s cannot be %s", what, quote(s))
		return low
	}
	return v
}

// boolean returns the truth value n.
func (d *decoder) boolean(n *yaml.Node, what string) bool {
	s := resolve(n)
	if !is(s, yaml.ScalarNode, "!!bool") || s.Value != "true" && s.Value != "false" {
		d.fail(n, "write true or false", "%s is %s", what, kindOf(s))
	}
	return s.Value == "true"
}
