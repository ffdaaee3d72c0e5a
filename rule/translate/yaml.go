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

// A value is a node of a YAML file, or of one within a string of a file. The zero value stands for a missing one.
type value struct {
	*yaml.Node
	start position // of the inner file, from 0
}

// documents returns the roots of the documents in text, which begins at start, from 0.
func documents(text []byte, start position) (roots []value) {
	docs, err := strictyaml.Documents(text, math.MaxInt)
	if syntax, ok := errors.AsType[*yaml.LoadError](err); ok {
		at := position{start.file, syntax.Mark.Line + start.line, max(1, syntax.Mark.Column) + start.column}
		fail(at, "render templates first, for example with helm template", "not YAML: %s", syntax.Message)
	}
	require(err == nil, start, "", "not YAML: %v", err)
	for _, doc := range docs {
		roots = append(roots, value{doc, start}.children(yaml.DocumentNode)...)
	}
	return roots
}

// documents returns the roots of the documents in the string v, such as a value of a ConfigMap.
func (v value) documents() []value {
	start := position{file: v.start.file, line: v.at().line}
	// A block scalar begins on the line after its indicator.
	if lines := strings.Split(string(start.file.Text), "\n"); start.line < len(lines) {
		start.column = len(lines[start.line]) - len(strings.TrimLeft(lines[start.line], " "))
	}
	return documents([]byte(v.Value), start)
}

func (v value) at() position {
	return position{v.start.file, v.Line + v.start.line, v.Column + v.start.column}
}

// is reports whether v exists and has the given kind.
func (v value) is(kind yaml.Kind) bool { return v.Node != nil && v.Kind == kind }

// children returns the values directly below v, or nil if v is not of the given kind.
func (v value) children(kind yaml.Kind) (list []value) {
	if v.is(kind) {
		for _, n := range v.Content {
			list = append(list, value{n, v.start})
		}
	}
	return list
}

// pairs returns the keys and values of the mapping v, or nil if it is something else.
func (v value) pairs() [][]value {
	return slices.Collect(slices.Chunk(v.children(yaml.MappingNode), 2))
}

// elements returns the elements of the list v, or nil if it is something else.
func (v value) elements() []value { return v.children(yaml.SequenceNode) }

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
