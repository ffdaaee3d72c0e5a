package translate

// Reading YAML files of other programs, with several documents and unknown keys.

import (
	"bytes"
	"errors"
	"math"
	"slices"
	"strings"

	"go.yaml.in/yaml/v4"

	"github.com/edgelimit/edge/internal/strictyaml"
)

// A yamlFile is a YAML file, or a part of a file.
type yamlFile struct {
	File
	base position // where Text begins in the file
	all  []byte   // the whole file
}

func newYAMLFile(f File) yamlFile { return yamlFile{f, position{file: f.Name}, f.Text} }

// documents returns the roots of the file's documents.
func (f yamlFile) documents() (roots []*yaml.Node, err error) {
	text := bytes.TrimPrefix(f.Text, []byte("\xef\xbb\xbf"))
	docs, err := strictyaml.Documents(text, math.MaxInt)
	if syntax, ok := errors.AsType[*yaml.LoadError](err); ok {
		at := position{f.Name, syntax.Mark.Line + f.base.line, max(1, syntax.Mark.Column) + f.base.column}
		return nil, failAt(at, f.all, "render templates first, such as with helm template", "not YAML: %s", syntax.Message)
	} else if err != nil {
		return nil, failAt(f.base, nil, "", "not YAML: %v", err)
	}
	for _, doc := range docs {
		roots = append(roots, doc.Content...)
	}
	return roots, nil
}

// at returns the position of n.
func (f yamlFile) at(n *yaml.Node) position {
	return position{f.Name, n.Line + f.base.line, n.Column + f.base.column}
}

func (f yamlFile) fail(n *yaml.Node, hint, format string, args ...any) error {
	return failAt(f.at(n), f.all, hint, format, args...)
}

// part returns the file within the string n of f, such as a value of a ConfigMap.
func (f yamlFile) part(n *yaml.Node) yamlFile {
	p := yamlFile{File{f.Name, []byte(n.Value)}, f.at(n), f.all}
	p.base.column = 0
	lines := strings.Split(string(f.all), "\n")
	if i := p.base.line; i < len(lines) { // a block scalar begins on the line after its indicator
		p.base.column = len(lines[i]) - len(strings.TrimLeft(lines[i], " "))
	}
	return p
}

// child returns the value at a path of keys below the mapping n, or nil.
func child(n *yaml.Node, path ...string) *yaml.Node {
	for _, name := range path {
		var next *yaml.Node
		for _, kv := range pairs(n) {
			if kv[0].Value == name {
				next = kv[1]
			}
		}
		n = next
	}
	return n
}

// pairs returns the keys and values of the mapping n, or nil if it is something else.
func pairs(n *yaml.Node) [][]*yaml.Node {
	if n == nil || n.Kind != yaml.MappingNode {
		return nil
	}
	return slices.Collect(slices.Chunk(n.Content, 2))
}

// elements returns the elements of the list n, or nil if it is something else.
func elements(n *yaml.Node) []*yaml.Node {
	if n == nil || n.Kind != yaml.SequenceNode {
		return nil
	}
	return n.Content
}

// text returns the scalar n, or "".
func text(n *yaml.Node) string {
	if n == nil || n.Kind != yaml.ScalarNode || n.ShortTag() == "!!null" {
		return ""
	}
	return n.Value
}
