package rule

import (
	"bytes"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"sync"

	"github.com/cespare/xxhash/v2"

	"github.com/edgelimit/edge/internal/strictyaml"
)

// Load reads rules files. In directories, it reads the files that end in .yaml or .yml, in the order of
// their names, except those that begin with a dot. All files make up one set: IDs and listed networks are
// unique across them. If the files have errors, Load returns [Errors] and no set.
func Load(paths ...string) (*Set, error) {
	set, _, err := Read(paths...)
	return set, err
}

// Read is like Load, but also returns the other files that it read or tried to read because the rules files
// name them.
func Read(paths ...string) (set *Set, named []string, err error) {
	files, err := Files(paths...)
	if err != nil {
		return nil, nil, err
	}
	all := loader{read: func(file string) ([]byte, error) {
		named = append(named, file)
		return os.ReadFile(file)
	}}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			return nil, nil, fmt.Errorf("rule: %w", err)
		}
		all.add(file, text, largeFile, partSize)
	}
	set, err = all.set()
	return set, named, err
}

// Parse parses the text of a rules file. Errors call the file name. The text cannot name other files.
func Parse(name string, text []byte) (*Set, error) {
	var all loader
	all.add(name, text, largeFile, partSize)
	return all.set()
}

// Files returns the files that Load reads for paths.
func Files(paths ...string) ([]string, error) {
	var files []string
	for _, path := range paths {
		info, err := os.Stat(path)
		if err != nil {
			return nil, fmt.Errorf("rule: %w", err)
		}
		if !info.IsDir() {
			files = append(files, path)
			continue
		}
		entries, err := os.ReadDir(path)
		if err != nil {
			return nil, fmt.Errorf("rule: %w", err)
		}
		before := len(files)
		for _, e := range entries {
			ext := filepath.Ext(e.Name())
			if !e.IsDir() && e.Name()[0] != '.' && (ext == ".yaml" || ext == ".yml") {
				files = append(files, filepath.Join(path, e.Name()))
			}
		}
		if len(files) == before {
			return nil, fmt.Errorf("rule: no .yaml or .yml file in directory %s", path)
		}
	}
	if len(files) == 0 {
		return nil, errors.New("rule: no rules file given")
	}
	return files, nil
}

// contents are the contents of rules files, or of a part of one.
type contents struct {
	rules   []*Rule
	ids     []place // by index in rules, the place of the ID
	access  []listed
	defined []*definition
	uses    []setUse
	plans   []overridesUse
}

// A loader collects the contents of the files of a set.
type loader struct {
	contents
	files   []strictyaml.Source
	errs    Errors
	hyphens strictyaml.Hyphens
	read    func(file string) ([]byte, error) // reads a file that rules name; nil if they cannot name files

	mu   sync.Mutex
	sets map[setName]*NetworkSet
}

// add reads a file. If it has at least large bytes, it reads parts of about size bytes in parallel.
func (l *loader) add(file string, text []byte, large, size int) {
	text = bytes.TrimPrefix(text, []byte("\xef\xbb\xbf")) // byte order mark
	l.files = append(l.files, strictyaml.Source{Name: file, Bytes: text})
	if parts := split(text, large, size); parts != nil && l.addParts(file, parts) {
		return
	}
	whole := l.reader(file, text, 0)
	whole.Read(`begin it with the line "rules:"`, `write "rules: []" to have no rules`, whole.fields())
	l.join(whole)
}

// addParts reads the parts of a large file in parallel. If one of them is not valid YAML, it adds nothing
// and returns false. Then the file is read as a whole, which gives the right errors.
func (l *loader) addParts(file string, parts []part) bool {
	readers := make([]*reader, len(parts))
	next := make(chan int, len(parts))
	for i := range parts {
		next <- i
	}
	close(next)
	var wg sync.WaitGroup
	for range min(runtime.GOMAXPROCS(0), len(parts)) {
		wg.Go(func() {
			for i := range next {
				readers[i] = l.part(file, parts[i])
			}
		})
	}
	wg.Wait()
	if slices.ContainsFunc(readers, func(one *reader) bool { return one.Broken }) {
		return false
	}
	for _, one := range readers {
		l.join(one)
	}
	return true
}

func (l *loader) join(one *reader) {
	l.rules = append(l.rules, one.rules...)
	l.ids = append(l.ids, one.ids...)
	l.access = append(l.access, one.access...)
	l.defined = append(l.defined, one.defined...)
	l.uses = append(l.uses, one.uses...)
	l.plans = append(l.plans, one.plans...)
	l.errs = append(l.errs, one.Errs...)
	l.hyphens.Add(one.Hyphens)
}

// set returns the set of all files, after the checks that need all of them.
func (l *loader) set() (*Set, error) {
	l.checkIDs()
	l.checkAccess()
	networks, labels := l.define()
	overrides := l.overrides()
	if len(l.errs) > 0 {
		return nil, l.errs.Report(l.files...)
	}
	var disabled []*Rule
	rules := slices.DeleteFunc(l.rules, func(r *Rule) bool {
		if r.Disabled {
			disabled = append(disabled, r)
		}
		return r.Disabled
	})
	set := newSet(slices.Clip(rules))
	set.disabled, set.overrides = disabled, overrides
	for _, one := range l.access {
		set.access.Insert(one.prefix, one.access)
	}
	for base, o := range overrides {
		for _, other := range o.rules[1:] {
			other.Index = base.Index
		}
	}
	set.networkSets, set.labelSets = networks, labels
	hash := xxhash.New()
	for _, f := range l.files {
		_, _ = hash.Write(f.Bytes)
		_, _ = hash.Write([]byte{0})
	}
	set.hash, set.hyphens = hash.Sum64(), l.hyphens
	return set, nil
}

func (l *loader) checkIDs() {
	ids := make(map[string]*Rule, len(l.rules))
	for i, one := range l.rules {
		first := ids[one.ID]
		if first == nil {
			ids[one.ID] = one
		} else if one.ID != "" && len(l.errs) < strictyaml.Enough {
			l.fail(l.ids[i], "IDs must be unique across all files", "there is a rule %s already, at %s:%d", one.ID, first.File, first.Line)
		}
	}
}

// checkAccess checks that no network is listed twice.
func (l *loader) checkAccess() {
	at := make(map[netip.Prefix]place, len(l.access))
	for _, one := range l.access {
		first, twice := at[one.prefix]
		if !twice {
			at[one.prefix] = one.place
		} else if len(l.errs) < strictyaml.Enough {
			l.fail(one.place, "list a network once, in allow or in deny; of several that contain an address, the longest prefix wins", "%v is listed already, at %s:%d", one.prefix, first.file, first.line)
		}
	}
}
