package rule

import (
	"net/netip"

	"go.yaml.in/yaml/v4"

	"github.com/edgelimit/edge/counter"
	"github.com/edgelimit/edge/internal/strictyaml"
)

// MaxErrors is the maximum number of errors that are reported.
const MaxErrors = strictyaml.MaxErrors

// FieldNames returns, by the schema's name of an object, the keys that the parser knows, and
// whether it requires them.
func FieldNames() map[string]map[string]bool {
	r := newReader("", nil, 0)
	keys := map[string]map[string]bool{}
	for object, fields := range map[string][]strictyaml.Field{
		"":               r.topFields(),
		"rule":           r.ruleFields(new(Rule), new(draft)),
		"match":          append(r.exceptionFields(new(Match)), r.pathFields(new(PathSyntax))...),
		"exception":      r.exceptionFields(new(Match)),
		"network_file":   r.fileFields(new(definition), "", ""),
		"count":          r.countFields(new(Rule)),
		"characteristic": r.characteristicFields(new(Characteristic)),
		"limit":          r.limitFields(new(Limit), new(*yaml.Node), nil),
		"response":       r.responseFields(new(draft)),
	} {
		keys[object] = map[string]bool{}
		for _, f := range fields {
			keys[object][f.Name] = f.Need != ""
		}
	}
	return keys
}

// Words returns the words that are valid values, by key.
func Words() map[string][]string {
	words := map[string][]string{"action": actionNames[:], "on_failure": onFailureNames[:], "missing": missingNames[:], "exact": exactNames[:], "path_reading": readingNames[:], "estimate": counter.KindNames()}
	for kind := IP; kind <= Query; kind++ {
		if kind.named() {
			words["named"] = append(words["named"], kind.String())
		} else {
			words["unnamed"] = append(words["unnamed"], kind.String())
		}
	}
	return words
}

// Networks returns the allow and deny lists of s.
func Networks(s *Set) map[netip.Prefix]Access {
	list := map[netip.Prefix]Access{}
	if s.access != nil {
		for prefix, access := range s.access.All() {
			list[prefix] = access
		}
	}
	return list
}

// ParseInParts is Parse, but splits files of at least large bytes into parts of size bytes. It
// also returns the number of parts, and whether they could be used.
func ParseInParts(name string, text []byte, large, size int) (set *Set, parts int, used bool, err error) {
	var counted loader
	pieces := split(text, large, size)
	used = pieces != nil && counted.addParts(name, pieces)
	var all loader
	all.add(name, text, large, size)
	set, err = all.set()
	return set, len(pieces), used, err
}

// Root returns the root of text as the parser sees it, or nil.
func Root(text []byte) *yaml.Node {
	return strictyaml.New("", text).Parse()
}
