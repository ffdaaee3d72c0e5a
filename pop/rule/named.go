package rule

// Reading named sets of networks and labels.

import (
	"fmt"
	"iter"
	"net/netip"
	"path/filepath"
	"strings"
	"unique"

	"go.yaml.in/yaml/v4"

	"github.com/edgelimit/edge/internal/strictyaml"
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
	setUse   // the name
	networks []netip.Prefix
	file     string
	at       place // of file
}

// named returns the set with a name, which may be read later.
func (l *loader) named(name setName) *NetworkSet {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.sets == nil {
		l.sets = map[setName]*NetworkSet{}
	}
	if l.sets[name] == nil {
		l.sets[name] = &NetworkSet{Name: name.name}
	}
	return l.sets[name]
}

// use returns the set that is named in n.
func (r *reader) use(n *yaml.Node, name setName) *NetworkSet {
	r.uses = append(r.uses, setUse{name, r.place(n)})
	return r.loader.named(name)
}

// networkSets reads the network sets of a rules file.
func (r *reader) networkSets(n *yaml.Node) {
	const hint = "write networks: {office: [192.0.2.0/24], crawlers: {file: crawlers.txt}}"
	for d, value := range r.definitions(n, "networks", "the name of a network set", hint, false) {
		if strictyaml.IsMapping(strictyaml.Resolve(value)) {
			r.setFile(value, d, "this network set", "write {file: networks.txt}", "networks.txt", "a network")
			continue
		}
		for _, each := range r.Sequence(value, "a network set", "write a list: [192.0.2.0/24], or {file: networks.txt}", "list its networks") {
			if prefix, ok := r.network(each, "a network"); ok {
				d.networks = append(d.networks, prefix)
			}
		}
	}
}

// labelSets reads the labels of a rules file.
func (r *reader) labelSets(n *yaml.Node) {
	const hint = "write labels: {asn: {file: asn.txt}}"
	for d, value := range r.definitions(n, "labels", "the name of labels", hint, true) {
		r.setFile(value, d, "labels", hint, "labels.txt", "a network and its label")
	}
}

// definitions reads the names in a mapping of names to sets, and yields each with its value.
func (r *reader) definitions(n *yaml.Node, what, noun, hint string, labels bool) iter.Seq2[*definition, *yaml.Node] {
	return func(yield func(*definition, *yaml.Node) bool) {
		for _, pair := range r.Pairs(n, what, hint) {
			if r.Full() {
				return
			}
			d := &definition{setUse: setUse{setName{labels, r.identifier(pair[0], noun)}, r.place(pair[0])}}
			r.defined = append(r.defined, d)
			yield(d, pair[1])
		}
	}
}

// setFile reads a mapping with the name of a set's file.
func (r *reader) setFile(n *yaml.Node, d *definition, what, hint, example, line string) {
	r.Mapping(n, what, hint, []strictyaml.Field{{Name: "file", Need: "file: and the name of a file with " + line + " in each line", Read: func(n *yaml.Node) {
		d.file, d.at = r.fileName(n, "file", example), r.place(n)
	}}})
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
	if !ok {
		return prefix, false
	}
	prefix, err := ParsePrefix(text)
	if err != nil {
		r.Fail(n, hintOf(err), "%s %v", strictyaml.Quote(text), err)
	}
	return prefix, err == nil
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

// define reads the files of the sets, and returns the sets. It reports names that are defined twice, or not
// at all.
func (l *loader) define() (networks, labels []*NetworkSet) {
	defined, names := map[setName]*definition{}, map[bool][]string{}
	for _, d := range l.defined {
		if first := defined[d.setName]; first != nil {
			exists := map[bool]string{false: "there is a network set", true: "there are labels"}[d.labels]
			l.fail(d.place, "names must be unique across all files", "%s %s already, at %s:%d", exists, d.name, first.place.file, first.line)
			continue
		}
		defined[d.setName], names[d.labels] = d, append(names[d.labels], d.name)
		set := l.named(d.setName)
		if d.labels {
			labels = append(labels, set)
		} else {
			networks = append(networks, set)
		}
		for _, prefix := range d.networks {
			set.add(prefix, "")
		}
		if d.file != "" {
			l.readSet(d, set)
		}
	}
	for _, use := range l.uses {
		missing, hint := "there is no network set %s", "write networks: at the beginning of a line, and a list or a file below it for each name"
		if use.labels {
			missing, hint = "there are no labels %s", "write labels: at the beginning of a line, and below it "+use.name+": {file: labels.txt}"
		}
		if known := names[use.labels]; len(known) > 0 {
			hint = strictyaml.Suggest(use.name, known)
		}
		if defined[use.setName] == nil {
			l.fail(use.place, hint, missing, strictyaml.Quote(use.name))
		}
	}
	return networks, labels
}

// readSet reads the file of a set. Each line has a network and, in a file of labels, its label.
func (l *loader) readSet(d *definition, set *NetworkSet) {
	instead, none, hint := "list the networks: [192.0.2.0/24]", "the file has no networks", "write a network in each line"
	if d.labels {
		instead, none, hint = "match networks instead: labels are in files", "the file has no labels", "write a network and its label in each line: 192.0.2.0/24 AS64500"
	}
	file, text, ok := l.open(d.file, d.at, instead)
	if !ok {
		return
	}
	set.File = file
	before := len(l.errs)
	for entry, at := range l.entries(file, text) {
		network, label := entry, ""
		if end := strings.IndexAny(entry, " \t,"); d.labels && end > 0 {
			network, label = entry[:end], strings.Trim(entry[end:], " \t,")
		}
		prefix, err := ParsePrefix(network)
		_, twice := set.table.Get(prefix)
		switch {
		case err != nil:
			l.fail(at, hintOf(err), "%s %v", strictyaml.Quote(network), err)
		case d.labels && label == "":
			l.fail(at, "write the label after the network: 192.0.2.0/24 AS64500", "%s has no label", strictyaml.Quote(network))
		case len(label) > MaxID:
			l.fail(at, fmt.Sprintf("write a label of at most %d bytes", MaxID), "a label has %d bytes", len(label))
		case d.labels && twice:
			l.fail(at, "remove one of them", "%v is listed twice", prefix)
		default:
			set.add(prefix, unique.Make(label).Value()) // a copy, so that the text is not kept
		}
	}
	if set.table.Size() == 0 && len(l.errs) == before {
		l.fail(place{file: file}, hint, "%s", none)
	}
}
