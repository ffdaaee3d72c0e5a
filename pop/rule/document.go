package rule

import (
	"bytes"

	"go.yaml.in/yaml/v4"
)

// A Document is a YAML file that is read as rules files are: strictly, nothing in another
// spelling than it has there. What is wrong is collected, with its place and what to do about
// it, and is what Err returns. It is for files that belong to rules, such as their tests.
type Document struct {
	d    decoder
	text []byte
}

// NewDocument returns a document of text; file stands for it in errors.
func NewDocument(file string, text []byte) *Document {
	return &Document{decoder{file: file}, bytes.TrimPrefix(text, []byte("\xef\xbb\xbf"))}
}

// Read reads the whole document, a mapping. hint says how to begin it; if it is empty, so may be the
// document.
func (d *Document) Read(hint string, fields []Field) {
	root := d.d.parse(d.text)
	switch {
	case d.d.broken:
	case (root == nil || root.Kind == yaml.ScalarNode && root.ShortTag() == "!!null") && hint == "":
	case root == nil || root.Kind == yaml.ScalarNode && root.ShortTag() == "!!null":
		d.d.failAt(0, 0, hint, "the file is empty")
	default:
		d.d.mapping(root, "the file", hint, fields)
	}
}

// Mapping reads a mapping, whose keys are those of fields. what names it in
// errors, and hint says how to write it.
func (d *Document) Mapping(n *yaml.Node, what, hint string, fields []Field) {
	d.d.mapping(n, what, hint, fields)
}

// Sequence returns the elements of a list that is not empty. hint says how to write it.
func (d *Document) Sequence(n *yaml.Node, what, hint string) []*yaml.Node {
	list, _ := d.d.sequence(n, what, hint, hint)
	return list
}

// Text returns a string, and whether it is one.
func (d *Document) Text(n *yaml.Node, what string) (string, bool) { return d.d.text(n, what) }

// Integer returns a whole number, and whether it is one from low to high.
func (d *Document) Integer(n *yaml.Node, what string, low, high uint64) (uint64, bool) {
	return d.d.integer(n, what, low, high)
}

// Choice returns which of words a string is, or -1.
func (d *Document) Choice(n *yaml.Node, what string, words []string) int {
	return d.d.choice(n, what, words)
}

// Scalar returns a value as the file spells it, and whether it is a single one.
func (d *Document) Scalar(n *yaml.Node) (string, bool) {
	n = resolve(n)
	return n.Value, n.Kind == yaml.ScalarNode && n.ShortTag() != "!!null"
}

// Pairs returns the keys and values of a mapping with any keys.
func (d *Document) Pairs(n *yaml.Node, what, hint string) (pairs [][2]*yaml.Node) {
	place := n
	if n = resolve(n); !isMapping(n) {
		d.d.fail(place, hint, "%s is %s, not a mapping", what, kindOf(n))
		return nil
	}
	for i := 0; i+1 < len(n.Content); i += 2 {
		pairs = append(pairs, [2]*yaml.Node{n.Content[i], n.Content[i+1]})
	}
	return pairs
}

// Fail records that something is wrong at n. hint says what to do, and may be empty.
func (d *Document) Fail(n *yaml.Node, hint, format string, args ...any) {
	d.d.fail(n, hint, format, args...)
}

// Hyphens returns which keys have hyphens where keys have underscores.
func (d *Document) Hyphens() Hyphens { return d.d.hyphens }

// Err returns what is wrong, as [Errors] in the order of the lines, or nil.
func (d *Document) Err() error {
	if len(d.d.errs) == 0 {
		return nil
	}
	all := loader{files: []source{{d.d.file, d.text}}, errs: d.d.errs}
	return all.report()
}
