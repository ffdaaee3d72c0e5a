package translate

// Reading YAML files of other programs, with several documents and unknown keys.

import (
	"errors"
	"math"
	"slices"
	"strings"

	"go.yaml.in/yaml/v4"

	"github.com/edgelimit/edge/internal/strictyaml"
)

// A source is a YAML file, or one within a string of a file.
type source struct {
	*File
	line, column int // where it begins in the file, from 0
}

// A value is a node of a YAML file. The zero value stands for a missing one.
type value struct {
	*yaml.Node
	source *source
}

// documents returns the roots of the documents in text, which is the text of s.
func (s *source) documents(text []byte) (roots []value) {
	docs, err := strictyaml.Documents(text, math.MaxInt)
	if syntax, ok := errors.AsType[*yaml.LoadError](err); ok {
		at := position{s.File, syntax.Mark.Line + s.line, max(1, syntax.Mark.Column) + s.column}
		fail(at, "render templates first, for example with helm template", "not YAML: %s", syntax.Message)
	}
	require(err == nil, position{s.File, s.line, s.column}, "", "not YAML: %v", err)
	for _, doc := range docs {
		roots = append(roots, value{doc, s}.children()...)
	}
	return roots
}

// documents returns the roots of the documents in the string v, such as a value of a ConfigMap.
func (v value) documents() []value {
	s := &source{File: v.source.File, line: v.at().line}
	if lines := strings.Split(string(s.Text), "\n"); s.line < len(lines) { // a block scalar begins on the line after its indicator
		s.column = len(lines[s.line]) - len(strings.TrimLeft(lines[s.line], " "))
	}
	return s.documents([]byte(v.Value))
}

// at returns the position of v.
func (v value) at() position {
	return position{v.source.File, v.Line + v.source.line, v.Column + v.source.column}
}

// is reports whether v exists and has the given kind.
func (v value) is(kind yaml.Kind) bool { return v.Node != nil && v.Kind == kind }

// children returns the values directly below v.
func (v value) children() []value {
	list := make([]value, len(v.Content))
	for i, n := range v.Content {
		list[i] = value{n, v.source}
	}
	return list
}

// pairs returns the keys and values of the mapping v, or nil if it is something else.
func (v value) pairs() [][]value {
	if !v.is(yaml.MappingNode) {
		return nil
	}
	return slices.Collect(slices.Chunk(v.children(), 2))
}

// elements returns the elements of the list v, or nil if it is something else.
func (v value) elements() []value {
	if !v.is(yaml.SequenceNode) {
		return nil
	}
	return v.children()
}

// child returns the value at a path of keys below v.
func (v value) child(path ...string) value {
	for _, name := range path {
		var next value
		for _, kv := range v.pairs() {
			if kv[0].Value == name {
				next = kv[1]
			}
		}
		v = next
	}
	return v
}

// text returns the scalar at a path of keys below v, or "".
func (v value) text(path ...string) string {
	if v = v.child(path...); !v.is(yaml.ScalarNode) || v.ShortTag() == "!!null" {
		return ""
	}
	return v.Value
}
