package file

// Reading networks: the allow and deny lists, named sets and labels.

import (
	"fmt"
	"net/netip"
	"path/filepath"
	"strings"
	"unique"

	"go.yaml.in/yaml/v4"

	"github.com/edgelimit/edge/internal/prose"
	"github.com/edgelimit/edge/internal/strictyaml"
	"github.com/edgelimit/edge/rule"
)

// A setName is the name of a network set, or of labels.
type setName struct {
	labels bool
	name   string
}

// A namedSet is a set that rules name. They may do so before its definition has been read.
type namedSet struct {
	rule.NetworkSet
	defined place   // the zero place until then
	uses    []place // matches and characteristics that name it
}

// setOf returns the set called name.
func (l *loader) setOf(name setName) *namedSet {
	if l.sets[name] == nil {
		l.sets[name] = &namedSet{NetworkSet: rule.NetworkSet{Name: name.name}}
	}
	return l.sets[name]
}

// use returns the set that is named in n.
func (r *reader) use(n *yaml.Node, name setName) *rule.NetworkSet {
	set := r.loader.setOf(name)
	set.uses = append(set.uses, r.place(n))
	return &set.NetworkSet
}

// networkSets reads the network sets or the labels of a rules file, and the files that they name.
func (r *reader) networkSets(n *yaml.Node, labels bool) {
	l, exists := r.loader, "there is already a network set"
	key, noun, mapping, line := "networks", "the name of a network set", "this network set", "a network"
	hint, fileHint := "write networks: {office: [192.0.2.0/24], crawlers: {file: crawlers.txt}}",
		"write {file: networks.txt}"
	if labels {
		key, noun, mapping, line = "labels", "the name of labels", "labels", "a network and its label"
		hint, fileHint = "write labels: {asn: {file: asn.txt}}", "write labels: {asn: {file: asn.txt}}"
		exists = "there are already labels"
	}
	for _, pair := range r.Pairs(n, key, hint) {
		name := setName{labels, r.identifier(pair[0], noun)}
		set := l.setOf(name)
		first := set.defined
		twice := first != place{}
		if twice {
			r.Fail(pair[0], "names must be unique across all files", "%s %s at %s:%d", exists, name.name, first.file, first.line)
		} else {
			set.defined, l.known[labels] = r.place(pair[0]), append(l.known[labels], name.name)
		}
		if labels || strictyaml.IsMapping(pair[1]) {
			need := "file: and the name of a file with " + line + " on each line"
			r.Mapping(pair[1], mapping, fileHint, []strictyaml.Field{{Name: "file", Need: need, Read: func(n *yaml.Node) {
				if file := r.fileName(n, "file", key+".txt"); file != "" && !twice {
					l.readSet(&set.NetworkSet, labels, file, r.place(n))
				}
			}}})
			continue
		}
		const list = "write a list: [192.0.2.0/24], or {file: networks.txt}"
		for _, element := range r.Sequence(pair[1], "a network set", list, "list its networks") {
			if prefix, ok := r.network(element, "a network"); ok {
				set.Add(prefix, "")
			}
		}
	}
}

func (r *reader) fileName(n *yaml.Node, subject, example string) string {
	name, ok := r.Text(n, subject)
	if ok && name == "" {
		r.Fail(n, "write a name such as "+example, "the name of the file is empty")
	}
	return name
}

func (r *reader) network(n *yaml.Node, subject string) (prefix netip.Prefix, ok bool) {
	text, ok := r.Text(n, subject)
	if !ok {
		return prefix, false
	}
	prefix, err := rule.ParsePrefix(text)
	if err != nil {
		r.Fail(n, prose.Hint(err), "%s %v", prose.Quote(text), err)
	}
	return prefix, err == nil
}

func (l *loader) fail(at place, hint, format string, args ...any) {
	l.errs = append(l.errs, &Error{File: at.file, Line: int(at.line), Column: int(at.column),
		Message: fmt.Sprintf(format, args...), Hint: hint})
}

// open reads a file that a rules file names, and returns its full name and its text. instead says what to
// write in rules that are not in a file.
func (l *loader) open(name string, at place, instead string) (file string, text []byte, ok bool) {
	if !l.inFiles {
		l.fail(at, instead, "rules that are not in a file cannot name one")
		return "", nil, false
	}
	if !filepath.IsAbs(name) {
		name = filepath.Join(filepath.Dir(at.file), name)
	}
	l.named = append(l.named, name)
	text, err := readFile(name)
	if err != nil {
		l.fail(at, "names are relative to the rules file", "%v", err)
		return "", nil, false
	}
	l.opened = append(l.opened, strictyaml.Source{Name: name, Bytes: text})
	return name, text, true
}

// checkUses reports names of sets that are defined in no file.
func (l *loader) checkUses() {
	for name, set := range l.sets {
		if set.defined != (place{}) {
			continue
		}
		missing, hint := "there is no network set %s",
			"write networks: at the beginning of a line, and a list or a file below it for each name"
		if name.labels {
			missing, hint = "there are no labels %s",
				"write labels: at the beginning of a line, and below it "+name.name+": {file: labels.txt}"
		}
		if known := l.known[name.labels]; len(known) > 0 {
			hint = prose.Suggest(name.name, known)
		}
		for _, at := range set.uses {
			l.fail(at, hint, missing, prose.Quote(name.name))
		}
	}
}

// readSet reads the file of a set, which is named at a place. Each line has a network and, in a file of labels, its
// label.
func (l *loader) readSet(set *rule.NetworkSet, labels bool, name string, named place) {
	instead, none, hint := "list the networks: [192.0.2.0/24]", "the file has no networks", "write a network on each line"
	if labels {
		instead, none, hint = "match networks instead: labels are in files", "the file has no labels",
			"write a network and its label on each line: 192.0.2.0/24 AS64500"
	}
	file, text, ok := l.open(name, named, instead)
	if !ok {
		return
	}
	set.File = file
	number, empty, before := int32(0), true, len(l.errs)
	for line := range strings.Lines(strings.TrimPrefix(string(text), "\ufeff")) {
		number++
		line, _, _ = strings.Cut(line, "#")
		entry := strings.TrimSpace(line)
		if entry == "" {
			continue
		}
		empty = false
		if len(l.errs)-before == strictyaml.Enough {
			return
		}
		at := place{file, number, int32(strings.Index(line, entry)) + 1}
		network, label := entry, ""
		if end := strings.IndexAny(entry, " \t,"); labels && end > 0 {
			network, label = entry[:end], strings.Trim(entry[end:], " \t,")
		}
		prefix, err := rule.ParsePrefix(network)
		switch {
		case err != nil:
			l.fail(at, prose.Hint(err), "%s %v", prose.Quote(network), err)
		case labels && label == "":
			l.fail(at, "write the label after the network: 192.0.2.0/24 AS64500", "%s has no label", prose.Quote(network))
		case len(label) > rule.MaxID:
			l.fail(at, fmt.Sprintf("write a label of at most %d bytes", rule.MaxID), "a label has %d bytes", len(label))
		case !set.Add(prefix, unique.Make(label).Value()) && labels: // a copy of the label, so that the text is not kept
			l.fail(at, "remove one of them", "%v is listed twice", prefix)
		}
	}
	if empty {
		l.fail(place{file: file}, hint, "%s", none)
	}
}

func (r *reader) accessList(n *yaml.Node, key string, access rule.Access) {
	l := r.loader
	for _, element := range r.List(n, key, "write [192.0.2.0/24]") {
		prefix, ok := r.network(element, "an entry of "+key)
		if first, twice := l.listed[prefix]; twice {
			r.Fail(element, "list a network once, in allow or in deny; of several that contain an address, the longest "+
				"prefix wins", "%v is already listed at %s:%d", prefix, first.file, first.line)
		} else if ok {
			l.listed[prefix], l.access[prefix] = r.place(element), access
		}
	}
}
