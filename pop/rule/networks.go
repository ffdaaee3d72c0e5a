package rule

import (
	"errors"
	"fmt"
	"iter"
	"net/netip"
	"path/filepath"
	"slices"
	"strings"

	"github.com/gaissmai/bart"
	"go.yaml.in/yaml/v4"

	"github.com/edgelimit/edge/internal/strictyaml"
)

// A NetworkSet is networks under a name by which rules match client addresses.
type NetworkSet struct {
	Name     string
	File     string // that lists the networks; empty if the rules file does
	Prefixes []netip.Prefix

	table bart.Lite
}

// networkSetDraft is a set as a rules file writes it: with a list, or the name of a file.
type networkSetDraft struct {
	NetworkSet
	in    string // the rules file
	place        // of the name
	list  string // the file with the list
	at    place  // of list
}

// networkUse is a match that names a set.
type networkUse struct {
	match *Match
	name  string
	file  string
	place
}

func (m *Match) hasAddr(addr netip.Addr) bool {
	return len(m.Networks) == 0 || slices.ContainsFunc(m.Networks, func(s *NetworkSet) bool { return s.table.Contains(addr) })
}

// networkNames returns the names of the sets of m.
func (m *Match) networkNames() (names []string) {
	for _, s := range m.Networks {
		names = append(names, s.Name)
	}
	return names
}

// networkSets reads the sets of a file.
func (r *reader) networkSets(n *yaml.Node) {
	const hint = "write networks: {office: [192.0.2.0/24], crawlers: {file: crawlers.txt}}"
	place := n
	if n = strictyaml.Resolve(n); !strictyaml.IsMapping(n) {
		r.Fail(place, hint, "networks is %s, not a mapping", strictyaml.KindOf(n))
		return
	}
	for i := 0; i+1 < len(n.Content) && !r.Full(); i += 2 {
		d := networkSetDraft{in: r.File, place: r.place(n.Content[i])}
		d.Name = r.identifier(n.Content[i], "the name of a network set")
		if value := n.Content[i+1]; strictyaml.IsMapping(strictyaml.Resolve(value)) {
			r.Mapping(value, "this network set", "write {file: networks.txt}", r.networkFileFields(&d))
		} else {
			nodes := r.Sequence(value, "a network set", "write a list: [192.0.2.0/24], or {file: networks.txt}", "list its networks")
			for _, each := range nodes {
				if text, ok := r.Text(each, "a network"); ok {
					network(&r.Errs, &d.NetworkSet, text, r.File, r.place(each))
				}
			}
		}
		r.sets = append(r.sets, &d)
	}
}

func (r *reader) networkFileFields(d *networkSetDraft) []strictyaml.Field {
	return []strictyaml.Field{{Name: "file", Need: "file: and the name of a file with a network in each line", Read: func(n *yaml.Node) {
		text, ok := r.Text(n, "file")
		if ok && text == "" {
			r.Fail(n, "write a name such as networks.txt", "the name of the file is empty")
		}
		d.list, d.at = text, r.place(n)
	}}}
}

// networkNames reads the sets that m names. They are looked up when all files are read.
func (r *reader) networkNames(n *yaml.Node, m *Match) {
	r.matchList(n, "network", "[office]", func(n *yaml.Node, name string) (string, bool) {
		r.uses = append(r.uses, networkUse{m, name, r.File, r.place(n)})
		return name, true
	})
}

// network adds a network to a set.
func network(errs *Errors, s *NetworkSet, text, file string, at place) {
	prefix, err := ParsePrefix(text)
	if wrong := new(PrefixError); errors.As(err, &wrong) {
		*errs = append(*errs, &Error{File: file, Line: int(at.line), Column: int(at.column),
			Message: strictyaml.Quote(text) + " " + wrong.problem, Hint: wrong.hint})
		return
	}
	s.Prefixes = append(s.Prefixes, prefix)
	s.table.Insert(prefix)
}

// fail adds an error.
func (l *loader) fail(file string, at place, hint, format string, args ...any) {
	l.errs = append(l.errs, &Error{File: file, Line: int(at.line), Column: int(at.column), Message: fmt.Sprintf(format, args...), Hint: hint})
}

// file reads a file that the rules file in names at a place. instead says what to write in rules that are
// not in a file.
func (l *loader) file(in, name string, at place, instead string) (text []byte, ok bool) {
	if l.read == nil {
		l.fail(in, at, instead, "rules that are not in a file cannot name one")
		return nil, false
	}
	if !filepath.IsAbs(name) {
		name = filepath.Join(filepath.Dir(in), name)
	}
	text, err := l.read(name)
	if err != nil {
		l.fail(in, at, "names are relative to the rules file", "%v", err)
		return nil, false
	}
	l.files = append(l.files, strictyaml.Source{Name: name, Bytes: text})
	return text, true
}

// entries yields the lines of a file without comments, blank lines and blanks around, and where each begins.
func entries(text []byte) iter.Seq2[string, place] {
	return func(yield func(string, place) bool) {
		number := int32(0)
		for line := range strings.Lines(strings.TrimPrefix(string(text), "\ufeff")) {
			number++
			line, _, _ = strings.Cut(line, "#")
			if entry := strings.TrimSpace(line); entry != "" && !yield(entry, place{number, int32(strings.Index(line, entry)) + 1}) {
				return
			}
		}
	}
}

// networkSets reads the files of the sets, and gives the sets to the matches that name them.
func (l *loader) networkSets() {
	sets := map[string]*networkSetDraft{}
	var names []string
	for _, s := range l.sets {
		if first := sets[s.Name]; first != nil {
			l.fail(s.in, s.place, "every set has a name of its own, in all files together", "there is a network set %s already, at %s:%d", s.Name, first.in, first.line)
			continue
		}
		sets[s.Name], names = s, append(names, s.Name)
		if s.list == "" {
			continue
		}
		text, ok := l.file(s.in, s.list, s.at, "list the networks: [192.0.2.0/24]")
		if !ok {
			continue
		}
		s.File = l.files[len(l.files)-1].Name
		before := len(l.errs)
		for line, at := range entries(text) {
			if len(l.errs)-before == strictyaml.Enough {
				break
			}
			network(&l.errs, &s.NetworkSet, line, s.File, at)
		}
		if len(s.Prefixes) == 0 && len(l.errs) == before {
			l.fail(s.File, place{}, "write a network in each line", "the file has no network")
		}
	}
	for _, use := range l.uses {
		if s := sets[use.name]; s != nil {
			use.match.Networks = append(use.match.Networks, &s.NetworkSet)
			continue
		}
		hint := "write networks: at the beginning of a line, and a list or a file below it for each name"
		if len(names) > 0 {
			hint = strictyaml.DidYouMean(use.name, names, "there are", "and")
		}
		l.fail(use.file, use.place, hint, "there is no network set %s", strictyaml.Quote(use.name))
	}
}

// NetworkSets returns the named sets of networks, in the order of the files.
func (s *Set) NetworkSets() []*NetworkSet { return s.networkSets }
