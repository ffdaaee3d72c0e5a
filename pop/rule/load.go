package rule

import (
	"bytes"
	"cmp"
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
)

// Load reads rules files, and of each directory the files in it that end in .yaml or
// .yml, by name; names that begin with a dot are left out. Together they are one set:
// IDs and listed networks are unique over all of them.
//
// What is wrong with the files is returned as [Errors]; then there is no set.
func Load(paths ...string) (*Set, error) {
	files, err := Files(paths...)
	if err != nil {
		return nil, err
	}
	var all loader
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			return nil, fmt.Errorf("rule: %w", err)
		}
		all.add(file, text, largeFile, partSize)
	}
	return all.set()
}

// Parse reads one rules file from text; name stands for it in errors.
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

// A loader collects what the files of a set hold.
type loader struct {
	files  []source
	rules  []*Rule
	ids    []place // where the ID of each of rules is
	access []listed
	errs   Errors

	hyphens Hyphens
}

// A source is the text of a file. It is kept until all files are read, for errors.
type source struct {
	name string
	text []byte
}

// add reads a file, in parts at once where it has at least large bytes; a part has
// about size bytes.
func (l *loader) add(file string, text []byte, large, size int) {
	text = bytes.TrimPrefix(text, []byte("\xef\xbb\xbf")) // byte order mark
	l.files = append(l.files, source{file, text})
	if parts := split(text, large, size); parts != nil && l.addParts(file, parts) {
		return
	}
	whole := newReader(file, 0)
	whole.document(text)
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
	if slices.ContainsFunc(readers, func(one *reader) bool { return one.broken }) {
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
	l.errs = append(l.errs, one.errs...)
	l.hyphens.add(one.hyphens)
}

// set checks what concerns all files together.
func (l *loader) set() (*Set, error) {
	l.checkIDs()
	access := l.accessTable()
	if len(l.errs) > 0 {
		return nil, l.report()
	}
	set := newSet(slices.Clip(l.rules), access)
	hash := xxhash.New()
	for _, f := range l.files {
		_, _ = hash.Write(f.text)
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
		} else if one.ID != "" && len(l.errs) < enough {
			l.errs = append(l.errs, &Error{File: one.File, Line: int(l.ids[i].line), Column: int(l.ids[i].column),
				Message: fmt.Sprintf("there is a rule %s already, at %s:%d", one.ID, first.File, first.Line),
				Hint:    "every rule has an ID of its own, in all files together"})
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
		} else if len(l.errs) < enough {
			l.errs = append(l.errs, &Error{File: one.file, Line: int(one.line), Column: int(one.column),
				Message: fmt.Sprintf("%v is listed already, at %s:%d", one.prefix, first.file, first.line),
				Hint:    "list a network once, in allow or in deny; of several that hold an address the longest prefix wins"})
		}
	}
	return table
}

// report returns the first errors by file, line and column, each once and with its line.
func (l *loader) report() Errors {
	order, texts := map[string]int{}, map[string][]byte{}
	for i, f := range l.files {
		order[f.name], texts[f.name] = i, f.text
	}
	slices.SortStableFunc(l.errs, func(a, b *Error) int {
		return cmp.Or(cmp.Compare(order[a.File], order[b.File]), cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column))
	})
	errs := slices.CompactFunc(l.errs, func(a, b *Error) bool { return *a == *b })
	if len(errs) > maxErrors {
		last := errs[maxErrors-1]
		errs = append(errs[:maxErrors], &Error{File: last.File, Message: "too many errors; the rest is not shown"})
	}
	for _, e := range errs {
		if e.Line > 0 {
			e.Source = lineOf(texts[e.File], e.Line)
		}
	}
	return errs
}
