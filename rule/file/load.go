// Package file reads rules files, and the files that they name. It validates them, and reports each error with
// its position and a hint.
package file

import (
	_ "embed"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/cespare/xxhash/v2"

	"github.com/edgelimit/edge/internal/strictyaml"
	"github.com/edgelimit/edge/rule"
)

// Schema is the JSON Schema of a rules file, for editors. It rejects what the parser rejects, except for
// what no schema can express: that IDs and networks are unique, that no two limits have the same period,
// that hosts and paths are canonical, how long a period is, and how a number is spelled.
var Schema = []byte(strings.NewReplacer(
	"ACTIONS", strings.Join(rule.ActionNames(), `", "`), "PLAIN", strings.Join(plain, `", "`)).Replace(schema))

// plain are the characteristics without a name.
var plain = slices.DeleteFunc(rule.KindForms(), func(f string) bool { return strings.Contains(f, ":") })

//go:embed schema.json
var schema string

// An Error is an error in a rules file. It says where it is and what to do.
type Error = strictyaml.Error

// Errors are the errors in some rules files, in the order of the files and of their lines. After
// the first [strictyaml.MaxErrors], one more error says that the rest are not shown.
type Errors = strictyaml.Errors

// Contents are what rules files contain.
type Contents struct {
	Set      *rule.Set
	Disabled []*rule.Rule // those with enabled: false, which are not part of Set
	Named    []string     // the other files that the rules files name, whether found or not
}

// Load reads rules files. In directories, it reads the files that end in .yaml or .yml, in the order of
// their names, except those that begin with a dot. All files make up one set: IDs and listed networks are
// unique across them. If the files have errors, Load returns [Errors] and no set.
func Load(paths ...string) (*rule.Set, error) {
	all, err := Read(paths...)
	return all.Set, err
}

// Read is like Load, but returns everything that the files contain. After an error, only Named is set.
func Read(paths ...string) (Contents, error) {
	files, err := Files(paths...)
	if err != nil {
		return Contents{}, err
	}
	all := newLoader(true)
	for _, file := range files {
		text, err := readFile(file)
		if err != nil {
			return Contents{}, fmt.Errorf("rule: %w", err)
		}
		all.add(file, text)
	}
	return all.contents()
}

// readFile reads a regular file, or one in /dev or /proc, such as /dev/stdin. A named pipe elsewhere would block a node
// until somebody writes to it.
func readFile(name string) ([]byte, error) {
	if info, err := os.Stat(name); err == nil && !info.Mode().IsRegular() && !strings.HasPrefix(name, "/dev/") &&
		!strings.HasPrefix(name, "/proc/") {
		return nil, fmt.Errorf("%s is not a regular file", name)
	}
	return strictyaml.ReadFile(name)
}

// Parse parses the text of a rules file. name is the name of the file in errors. The text cannot name other files.
func Parse(name string, text []byte) (*rule.Set, error) {
	all := newLoader(false)
	all.add(name, text)
	contents, err := all.contents()
	return contents.Set, err
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

// A loader collects the contents of the files of a set. Then it does the checks that need all of them.
type loader struct {
	inFiles bool // whether the rules are in files, so that they can name other files

	rules, disabled []*rule.Rule
	ids             map[string]*rule.Rule
	access          map[netip.Prefix]rule.Access
	listed          map[netip.Prefix]place // where access is from
	sets            map[setName]*namedSet
	known           map[bool][]string // names of the defined sets, in order; under true those with labels
	plans           []overridesUse
	files           []strictyaml.Source // the rules files
	opened          []strictyaml.Source // the files that they name
	named           []string            // names of all such files, whether found or not
	errs            Errors
}

func newLoader(inFiles bool) *loader {
	return &loader{inFiles: inFiles, ids: map[string]*rule.Rule{}, access: map[netip.Prefix]rule.Access{},
		listed: map[netip.Prefix]place{}, sets: map[setName]*namedSet{}, known: map[bool][]string{}}
}

// add reads a file.
func (l *loader) add(file string, text []byte) {
	r := l.reader(file, text)
	fields := r.fields()
	l.files = append(l.files, strictyaml.Source{Name: file, Bytes: r.Bytes, Fields: fields})
	r.Read(`begin it with the line "rules:"`, `write "rules: []" to have no rules`, fields)
	if r.names != nil { // the file is of another kind: all other errors would be about its keys
		r.Errs = nil
		r.Fail(r.names, writeRule+"; give a node's settings with --config, or alone to edge check, and test cases "+
			"with --test", "this rule is %s, not a mapping", strictyaml.KindOf(r.names))
	}
	l.errs = append(l.errs, r.Errs...)
}

// contents returns the contents of all files, after the checks that need all of them.
func (l *loader) contents() (Contents, error) {
	l.checkUses()
	l.readOverrides()
	files := slices.Concat(l.files, l.opened)
	if len(l.errs) > 0 {
		return Contents{Named: l.named}, l.errs.Report(files...)
	}
	hash := xxhash.New()
	for _, f := range files {
		_, _ = hash.Write(f.Bytes)
		_, _ = hash.Write([]byte{0})
	}
	return Contents{rule.NewSet(l.rules, l.access, hash.Sum64()), l.disabled, l.named}, nil
}
