package rule

// Reading named sets of networks and labels.

import (
	"fmt"
	"iter"
	"net/netip"
	"path/filepath"
	"strings"

	"go.yaml.in/yaml/v4"

	"github.com/edgelimit/edge/internal/strictyaml"
)

// A setName is the name of a network set, or of labels.
type setName struct {
	labels bool
	name   string
}

// A definition is a set as defined in a rules file, by a list or by the name of a file.
type definition struct {
	setName
	place    // of the name
	file     string
	at       place // of file
	networks NetworkSet
	set      *LabelSet
}

// A setUse is a match or a characteristic that names a set.
type setUse struct {
	setName
	place
	match *Match
}

// networkSets reads the network sets of a rules file.
func (r *reader) networkSets(n *yaml.Node) {
	const hint = "write networks: {office: [192.0.2.0/24], crawlers: {file: crawlers.txt}}"
	r.definitions(n, "networks", "the name of a network set", hint, false, func(d *definition, value *yaml.Node) {
		d.networks.Name = d.name
		if strictyaml.IsMapping(strictyaml.Resolve(value)) {
			r.Mapping(value, "this network set", "write {file: networks.txt}", r.fileFields(d, "networks.txt", "a network"))
			return
		}
		for _, each := range r.Sequence(value, "a network set", "write a list: [192.0.2.0/24], or {file: networks.txt}", "list its networks") {
			if prefix, ok := r.network(each, "a network"); ok {
				d.networks.add(prefix)
			}
		}
	})
}

// labelSets reads the labels of a rules file.
func (r *reader) labelSets(n *yaml.Node) {
	const hint = "write labels: {asn: {file: asn.txt}}"
	r.definitions(n, "labels", "the name of labels", hint, true, func(d *definition, value *yaml.Node) {
		r.Mapping(value, "labels", hint, r.fileFields(d, "labels.txt", "a network and its label"))
	})
}

// definitions reads a mapping of names to sets, and each set with read.
func (r *reader) definitions(n *yaml.Node, what, noun, hint string, labels bool, read func(d *definition, value *yaml.Node)) {
	for _, pair := range r.Pairs(n, what, hint) {
		if r.Full() {
			return
		}
		d := &definition{setName: setName{labels, r.identifier(pair[0], noun)}, place: r.place(pair[0])}
		read(d, pair[1])
		r.defined = append(r.defined, d)
	}
}

// fileFields are the keys of a set in a file.
func (r *reader) fileFields(d *definition, example, line string) []strictyaml.Field {
	return []strictyaml.Field{{Name: "file", Need: "file: and the name of a file with " + line + " in each line", Read: func(n *yaml.Node) {
		d.file, d.at = r.fileName(n, "file", example), r.place(n)
	}}}
}

// fileName reads the name of a file.
func (r *reader) fileName(n *yaml.Node, what, example string) string {
	name, ok := r.Text(n, what)
	if ok && name == "" {
		r.Fail(n, "write a name such as "+example, "the name of the file is empty")
	}
	return name
}

// network reads a network.
func (r *reader) network(n *yaml.Node, what string) (prefix netip.Prefix, ok bool) {
	text, ok := r.Text(n, what)
	if ok {
		prefix, ok = parseNetwork(text, func(hint, format string, args ...any) { r.Fail(n, hint, format, args...) })
	}
	return prefix, ok
}

// parseNetwork is ParsePrefix, but passes the error to fail.
func parseNetwork(text string, fail func(hint, format string, args ...any)) (prefix netip.Prefix, ok bool) {
	prefix, err := ParsePrefix(text)
	if wrong, is := err.(*PrefixError); is {
		fail(wrong.hint, "%s %s", strictyaml.Quote(text), wrong.problem)
	}
	return prefix, err == nil
}

// networkNames reads the names of m's sets. They are looked up after all files are read.
func (r *reader) networkNames(n *yaml.Node, m *Match) {
	r.matchList(n, "network", "[office]", func(n *yaml.Node, name string) (string, bool) {
		r.uses = append(r.uses, setUse{setName{false, name}, r.place(n), m})
		return name, true
	})
}

// fail adds an error.
func (l *loader) fail(at place, hint, format string, args ...any) {
	l.errs = append(l.errs, &Error{File: at.file, Line: int(at.line), Column: int(at.column), Message: fmt.Sprintf(format, args...), Hint: hint})
}

// open reads a file that a rules file names, and returns its full name and its text. instead says what to
// write in rules that are not in a file.
func (l *loader) open(name string, at place, instead string) (file string, text []byte, ok bool) {
	if l.read == nil {
		l.fail(at, instead, "rules that are not in a file cannot name one")
		return "", nil, false
	}
	if !filepath.IsAbs(name) {
		name = filepath.Join(filepath.Dir(at.file), name)
	}
	text, err := l.read(name)
	if err != nil {
		l.fail(at, "names are relative to the rules file", "%v", err)
		return "", nil, false
	}
	l.files = append(l.files, strictyaml.Source{Name: name, Bytes: text})
	return name, text, true
}

// entries yields the lines of a file and their places, without comments, empty lines and surrounding blanks.
// It stops when the file has [strictyaml.Enough] errors.
func (l *loader) entries(file string, text []byte) iter.Seq2[string, place] {
	return func(yield func(string, place) bool) {
		number, before := int32(0), len(l.errs)
		for line := range strings.Lines(strings.TrimPrefix(string(text), "\ufeff")) {
			number++
			line, _, _ = strings.Cut(line, "#")
			entry := strings.TrimSpace(line)
			if entry != "" && (len(l.errs)-before == strictyaml.Enough || !yield(entry, place{file, number, int32(strings.Index(line, entry)) + 1})) {
				return
			}
		}
	}
}

// network parses a network. at is its place.
func (l *loader) network(text string, at place) (prefix netip.Prefix, ok bool) {
	return parseNetwork(text, func(hint, format string, args ...any) { l.fail(at, hint, format, args...) })
}

// sets reads the files of the sets, and assigns the sets to the matches and characteristics that name them.
func (l *loader) sets() (networks []*NetworkSet, labels []*LabelSet) {
	defined, names := map[setName]*definition{}, map[bool][]string{}
	for _, d := range l.defined {
		first := defined[d.setName]
		switch {
		case first != nil && d.labels:
			l.fail(d.place, "names must be unique across all files", "there are labels %s already, at %s:%d", d.name, first.place.file, first.line)
			continue
		case first != nil:
			l.fail(d.place, "names must be unique across all files", "there is a network set %s already, at %s:%d", d.name, first.place.file, first.line)
			continue
		case d.labels:
			d.set = &LabelSet{Name: d.name}
			labels = append(labels, d.set)
			if file, text, ok := l.open(d.file, d.at, "match networks instead: labels are in files"); ok {
				d.set.File = file
				l.labelFile(d.set, text)
			}
		default:
			networks = append(networks, &d.networks)
			l.networkFile(d)
		}
		defined[d.setName], names[d.labels] = d, append(names[d.labels], d.name)
	}
	for _, use := range l.uses {
		d := defined[use.setName]
		missing, hint := "there is no network set %s", "write networks: at the beginning of a line, and a list or a file below it for each name"
		if use.labels {
			missing, hint = "there are no labels %s", "write labels: at the beginning of a line, and below it "+use.name+": {file: labels.txt}"
		}
		switch {
		case d == nil && len(names[use.labels]) > 0:
			l.fail(use.place, strictyaml.Suggest(use.name, names[use.labels]), missing, strictyaml.Quote(use.name))
		case d == nil:
			l.fail(use.place, hint, missing, strictyaml.Quote(use.name))
		case !use.labels:
			use.match.Networks = append(use.match.Networks, &d.networks)
		}
	}
	for _, r := range l.rules {
		for c := range r.leaves() {
			if d := defined[setName{true, c.Name}]; c.Kind == Label && d != nil {
				c.labels = d.set
			}
		}
	}
	return networks, labels
}

// networkFile reads the file of a set, if it has one. Each line has a network.
func (l *loader) networkFile(d *definition) {
	if d.file == "" {
		return
	}
	file, text, ok := l.open(d.file, d.at, "list the networks: [192.0.2.0/24]")
	if !ok {
		return
	}
	d.networks.File = file
	before := len(l.errs)
	for entry, at := range l.entries(file, text) {
		if prefix, ok := l.network(entry, at); ok {
			d.networks.add(prefix)
		}
	}
	if len(d.networks.Prefixes) == 0 && len(l.errs) == before {
		l.fail(place{file: file}, "write a network in each line", "the file has no networks")
	}
}

// labelFile reads a file. Each line has a network and its label.
func (l *loader) labelFile(s *LabelSet, text []byte) {
	known := map[string]uint32{}
	before := len(l.errs)
	for entry, at := range l.entries(s.File, text) {
		network, label := entry, ""
		if end := strings.IndexAny(entry, " \t,"); end > 0 {
			network, label = entry[:end], strings.Trim(entry[end:], " \t,")
		}
		prefix, ok := l.network(network, at)
		_, twice := s.table.Get(prefix)
		switch {
		case !ok:
		case label == "":
			l.fail(at, "write the label after the network: 192.0.2.0/24 AS64500", "%s has no label", strictyaml.Quote(network))
		case len(label) > MaxID:
			l.fail(at, fmt.Sprintf("write a label of at most %d bytes", MaxID), "a label has %d bytes", len(label))
		case twice:
			l.fail(at, "remove one of them", "%v is listed twice", prefix)
		default:
			index, ok := known[label]
			if !ok {
				index = uint32(len(s.labels))
				known[label], s.labels = index, append(s.labels, strings.Clone(label))
			}
			s.table.Insert(prefix, index)
		}
	}
	if len(known) == 0 && len(l.errs) == before {
		l.fail(place{file: s.File}, "write a network and its label in each line: 192.0.2.0/24 AS64500", "the file has no labels")
	}
}
