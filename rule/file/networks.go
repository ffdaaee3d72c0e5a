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

// A setUse is a match or a characteristic that names a set.
type setUse struct {
	setName
	place
}

// A definition is a set as defined in a rules file, by a list or by the name of a file.
type definition struct {
	setUse // the name
	file   string
	at     place // of file
}

// setOf returns the set called name. It may be empty until the definition has been read.
func (l *loader) setOf(name setName) *rule.NetworkSet {
	if l.sets == nil {
		l.sets = map[setName]*rule.NetworkSet{}
	}
	if l.sets[name] == nil {
		l.sets[name] = &rule.NetworkSet{Name: name.name}
	}
	return l.sets[name]
}

// use returns the set that is named in n.
func (r *reader) use(n *yaml.Node, name setName) *rule.NetworkSet {
	r.loader.uses = append(r.loader.uses, setUse{name, r.place(n)})
	return r.loader.setOf(name)
}

// networkSets reads the network sets or the labels of a rules file.
func (r *reader) networkSets(n *yaml.Node, labels bool) {
	key, noun, mapping, line := "networks", "the name of a network set", "this network set", "a network"
	hint, fileHint := "write networks: {office: [192.0.2.0/24], crawlers: {file: crawlers.txt}}",
		"write {file: networks.txt}"
	if labels {
		key, noun, mapping, line = "labels", "the name of labels", "labels", "a network and its label"
		hint, fileHint = "write labels: {asn: {file: asn.txt}}", "write labels: {asn: {file: asn.txt}}"
	}
	for _, pair := range r.Pairs(n, key, hint) {
		if r.Full() {
			return
		}
		d := &definition{setUse: setUse{setName{labels, r.identifier(pair[0], noun)}, r.place(pair[0])}}
		r.loader.defined = append(r.loader.defined, d)
		if labels || strictyaml.IsMapping(pair[1]) {
			need := "file: and the name of a file with " + line + " on each line"
			r.Mapping(pair[1], mapping, fileHint, []strictyaml.Field{{Name: "file", Need: need, Read: func(n *yaml.Node) {
				d.file, d.at = r.fileName(n, "file", key+".txt"), r.place(n)
			}}})
			continue
		}
		const list = "write a list: [192.0.2.0/24], or {file: networks.txt}"
		for _, element := range r.Sequence(pair[1], "a network set", list, "list its networks") {
			if prefix, ok := r.network(element, "a network"); ok {
				r.loader.setOf(d.setName).Add(prefix, "")
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
	l.files = append(l.files, strictyaml.Source{Name: name, Bytes: text})
	return name, text, true
}

// define reads the files of the sets, and returns the sets. It reports names that are defined twice, or not
// at all.
func (l *loader) define() (networks, labels []*rule.NetworkSet) {
	defined, names := map[setName]*definition{}, map[bool][]string{}
	for _, d := range l.defined {
		if first := defined[d.setName]; first != nil {
			exists := "there is already a network set"
			if d.labels {
				exists = "there are already labels"
			}
			l.fail(d.place, "names must be unique across all files", "%s %s at %s:%d", exists, d.name, first.place.file,
				first.line)
			continue
		}
		defined[d.setName], names[d.labels] = d, append(names[d.labels], d.name)
		set := l.setOf(d.setName)
		if d.labels {
			labels = append(labels, set)
		} else {
			networks = append(networks, set)
		}
		if d.file != "" {
			l.readSet(d, set)
		}
	}
	for _, use := range l.uses {
		missing, hint := "there is no network set %s",
			"write networks: at the beginning of a line, and a list or a file below it for each name"
		if use.labels {
			missing, hint = "there are no labels %s",
				"write labels: at the beginning of a line, and below it "+use.name+": {file: labels.txt}"
		}
		if known := names[use.labels]; len(known) > 0 {
			hint = prose.Suggest(use.name, known)
		}
		if defined[use.setName] == nil {
			l.fail(use.place, hint, missing, prose.Quote(use.name))
		}
	}
	return networks, labels
}

// readSet reads the file of a set. Each line has a network and, in a file of labels, its label.
func (l *loader) readSet(d *definition, set *rule.NetworkSet) {
	instead, none, hint := "list the networks: [192.0.2.0/24]", "the file has no networks", "write a network on each line"
	if d.labels {
		instead, none, hint = "match networks instead: labels are in files", "the file has no labels",
			"write a network and its label on each line: 192.0.2.0/24 AS64500"
	}
	file, text, ok := l.open(d.file, d.at, instead)
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
		if end := strings.IndexAny(entry, " \t,"); d.labels && end > 0 {
			network, label = entry[:end], strings.Trim(entry[end:], " \t,")
		}
		prefix, err := rule.ParsePrefix(network)
		switch {
		case err != nil:
			l.fail(at, prose.Hint(err), "%s %v", prose.Quote(network), err)
		case d.labels && label == "":
			l.fail(at, "write the label after the network: 192.0.2.0/24 AS64500", "%s has no label", prose.Quote(network))
		case len(label) > rule.MaxID:
			l.fail(at, fmt.Sprintf("write a label of at most %d bytes", rule.MaxID), "a label has %d bytes", len(label))
		case !set.Add(prefix, unique.Make(label).Value()) && d.labels: // a copy of the label, so that the text is not kept
			l.fail(at, "remove one of them", "%v is listed twice", prefix)
		}
	}
	if empty {
		l.fail(place{file: file}, hint, "%s", none)
	}
}

// listed is an entry of the allow or deny list.
type listed struct {
	prefix netip.Prefix
	access rule.Access
	place
}

func (r *reader) accessList(n *yaml.Node, key string, access rule.Access) {
	for _, element := range r.List(n, key, "write [192.0.2.0/24]") {
		if r.Full() {
			return
		}
		if prefix, ok := r.network(element, "an entry of "+key); ok {
			r.loader.access = append(r.loader.access, listed{prefix, access, r.place(element)})
		}
	}
}

// accessLists returns the networks of the lists, by access. It checks that none is listed twice.
func (l *loader) accessLists() (lists [rule.Denied + 1][]netip.Prefix) {
	at := make(map[netip.Prefix]place, len(l.access))
	for _, entry := range l.access {
		first, twice := at[entry.prefix]
		if !twice {
			at[entry.prefix], lists[entry.access] = entry.place, append(lists[entry.access], entry.prefix)
		} else if len(l.errs) < strictyaml.Enough {
			l.fail(entry.place, "list a network once, in allow or in deny; of several that contain an address, the longest "+
				"prefix wins", "%v is already listed at %s:%d", entry.prefix, first.file, first.line)
		}
	}
	return lists
}
