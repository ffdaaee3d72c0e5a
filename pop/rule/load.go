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
	"github.com/gaissmai/bart"

	"github.com/edgelimit/edge/internal/strictyaml"
)

// Load reads rules files, and of each directory the files in it that end in .yaml or
// .yml, by name; names that begin with a dot are left out. Together they are one set:
// IDs and listed networks are unique over all of them.
//
// What is wrong with the files is returned as [Errors]; then there is no set.
func Load(paths ...string) (*Set, error) {
	set, _, err := Read(paths...)
	return set, err
}

// Read is Load. It also returns the files that the rules files name and that it read, or
// tried to.
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

// Parse reads one rules file from text; name stands for it in errors. The text cannot name
// other files.
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
		return nil, errors.New("rule: no rules file is given")
	}
	return files, nil
}

// contents are what rules files, or parts of one, hold.
type contents struct {
	rules   []*Rule
	ids     []place // where the ID of each of rules is
	access  []listed
	defined []*definition
	uses    []setUse
	plans   []overridesUse
}

// A loader collects what the files of a set hold.
type loader struct {
	contents
	files   []strictyaml.Source
	errs    Errors
	hyphens strictyaml.Hyphens
	read    func(file string) ([]byte, error) // reads a file that rules name; nil if they cannot
}

// add reads a file, in parts at once where it has at least large bytes; a part has
// about size bytes.
func (l *loader) add(file string, text []byte, large, size int) {
	text = bytes.TrimPrefix(text, []byte("\xef\xbb\xbf")) // byte order mark
	l.files = append(l.files, strictyaml.Source{Name: file, Bytes: text})
	if parts := split(text, large, size); parts != nil && l.addParts(file, parts) {
		return
	}
	whole := newReader(file, text, 0)
	whole.document()
	l.join(whole)
}

// addParts reads the parts of a large file in parallel. It reports false, having
// done nothing, where one of them is not in order: then the file is read as a whole,
// which finds the words for what is wrong.
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
				readers[i] = parts[i].read(file)
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

// set checks what concerns all files together.
func (l *loader) set() (*Set, error) {
	l.checkIDs()
	access := l.accessTable()
	networks, labels := l.sets()
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
	set := newSet(slices.Clip(rules), access)
	set.disabled, set.overrides = disabled, overrides
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
			l.fail(l.ids[i], "every rule has an ID of its own, in all files together", "there is a rule %s already, at %s:%d", one.ID, first.File, first.Line)
		}
	}
}

// accessTable returns the allow and deny lists as a table, or nil if they are empty.
func (l *loader) accessTable() *bart.Table[Access] {
	if len(l.access) == 0 {
		return nil
	}
	table := new(bart.Table[Access])
	at := make(map[netip.Prefix]*listed, len(l.access))
	for i := range l.access {
		one := &l.access[i]
		if first := at[one.prefix]; first == nil {
			at[one.prefix] = one
			table.Insert(one.prefix, one.access)
		} else if len(l.errs) < strictyaml.Enough {
			l.fail(one.place, "list a network once, in allow or in deny; of several that hold an address the longest prefix wins", "%v is listed already, at %s:%d", one.prefix, first.file, first.line)
		}
	}
	return table
}
