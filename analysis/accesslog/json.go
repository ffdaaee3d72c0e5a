package accesslog

import (
	"bytes"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// objects is a format of one JSON object per line, or of pairs such as method=GET. It skips text before the object,
// such as the prefix of a container engine. Besides the names of kinds and header fields, the keys of its names are
//
//	headers      the prefix of the paths of header fields
//	logfmt       if set, lines may be pairs such as method=GET
//
// Without names for a mark, a request line, a method or a path serves as the mark.
type objects struct {
	names  names
	logfmt bool

	fields  *fields
	headers []byte          // prefix of the paths of header fields
	outer   map[string]bool // paths of the objects with members that are used, with a dot at the end
}

// objectsWith returns the format with objectNames and the names in more.
func objectsWith(more string) *objects { return newObjects(described(objectNames + more)) }

func newObjects(n names) *objects {
	o := &objects{names: n, logfmt: n["logfmt"] != nil, fields: newFields(n), outer: map[string]bool{}}
	if n["mark"] == nil {
		o.fields.add(int(mark), always, slices.Concat(n["request"], n["method"], n["path"]))
	}
	paths := slices.Collect(maps.Keys(o.fields.uses))
	if n["headers"] != nil {
		o.headers = []byte(n["headers"][0])
		paths = append(paths, n["headers"][0])
	}
	for _, path := range paths {
		for i := range path {
			if path[i] == '.' { // which may also be a part of a member's name
				o.outer[path[:i+1]] = true
			}
		}
	}
	return o
}

// renamable are the keys of names that a description may change, besides those of header fields.
var renamable = []string{"time", "client", "request", "method", "host", "path", "query", "status", "attack"}

// renamed returns o with other names for some fields. The result does not require a mark.
func (o *objects) renamed(change map[string]string) (*objects, error) {
	n := maps.Clone(o.names)
	for key, path := range change {
		if name, ok := strings.CutPrefix(key, "header:"); ok {
			key = "header:" + headerName([]byte(name))
		} else if !slices.Contains(renamable, key) {
			return nil, fmt.Errorf("accesslog: unknown field %q: use %s, or header:Name", key, strings.Join(renamable, ", "))
		}
		n[key] = []string{path}
	}
	n["mark"] = []string{}
	return newObjects(n), nil
}

func (o *objects) parse(s []byte, r *record) (reason string) {
	r.clear(o.fields)
	before := s
	switch i := bytes.IndexByte(s, '{'); {
	case o.logfmt && (i < 0 || bytes.IndexByte(s[:i], '=') >= 0):
		o.pairs(s, r)
	case i < 0:
		return "no JSON object"
	default:
		before = s[:i]
		p := scanner{s: s[i+1:], r: r, o: o, path: r.member[:0]}
		_, ok := p.list('}', true, 0)
		if r.member = p.path; !ok {
			return "incomplete JSON object"
		}
		if len(bytes.TrimSpace(p.s)) > 0 {
			return "text after the JSON object"
		}
	}
	if r.values[mark].text == nil && (o.names["mark"] == nil || len(o.names["mark"]) > 0) {
		return "not an entry of this format"
	}
	if !o.fields.readTime(r) && !r.leadingTime(before) {
		return "unreadable time"
	}
	return o.fields.readRest(r)
}
