package edge_test

import (
	"cmp"
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"
)

// maxColumns is the maximum length of a line, in characters.
const maxColumns = 120

// vague are names that do not name anything.
var vague = []string{"of", "one", "each", "what", "it", "some", "had", "mine"}

// unpolished are the packages that are not checked yet. The list only shrinks.
var unpolished = []string{
	"analysis/accesslog",
	"cmd/edge",
	"load/judge",
}

// wide are the packages in which lines may be longer than maxColumns. The list only shrinks.
var wide = []string{"operate", "operate/page", "pop", "pop/setting"}

// Packages keep to the house's style, as far as a program can check it.
func TestStyle(t *testing.T) {
	for _, p := range list(t) {
		name, _ := strings.CutPrefix(strings.TrimPrefix(p.ImportPath, module), "/")
		if slices.Contains(unpolished, cmp.Or(name, ".")) {
			continue
		}
		for _, file := range p.GoFiles {
			path := filepath.Join(p.Dir, file)
			text, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			for i, line := range strings.Split(string(text), "\n") {
				if n := utf8.RuneCountInString(line); n > maxColumns && !slices.Contains(wide, name) {
					t.Errorf("%s:%d: %d columns: write at most %d", path, i+1, n, maxColumns)
				}
			}
			files := token.NewFileSet()
			f, err := parser.ParseFile(files, path, text, 0)
			if err != nil {
				t.Fatal(err)
			}
			checkStyle(f, func(n ast.Node, problem string) { t.Errorf("%s: %s", files.Position(n.Pos()), problem) })
		}
	}
}

// If the text of an error begins with a package, it is the one that the error comes from, or one around that.
func TestErrorsNameTheirPackage(t *testing.T) {
	packages := list(t)
	names := make([]string, len(packages))
	for i, p := range packages {
		names[i] = filepath.Base(p.ImportPath)
	}
	begins := regexp.MustCompile(`(?:New|Errorf|Sprintf|Invalid|Unknown|panic)\("(` + strings.Join(names, "|") + `): `)
	for _, p := range packages {
		for _, file := range p.GoFiles {
			text, err := os.ReadFile(filepath.Join(p.Dir, file))
			if err != nil {
				t.Fatal(err)
			}
			for _, begin := range begins.FindAllStringSubmatch(string(text), -1) {
				if !slices.Contains(strings.Split(p.ImportPath, "/"), begin[1]) {
					t.Errorf("%s/%s: an error begins with another package: %s", p.ImportPath, file, begin[0])
				}
			}
		}
	}
}

// checkStyle reports the nodes of f that a reader would stumble over.
func checkStyle(f *ast.File, report func(n ast.Node, problem string)) {
	ast.Inspect(f, func(n ast.Node) bool {
		var named []ast.Expr
		switch n := n.(type) {
		case *ast.IfStmt:
			if n.Init != nil && !uses(n.Cond, n.Init) {
				report(n, "the condition does not use what the statement before it sets: write that statement above")
			}
		case *ast.IndexExpr:
			if c, ok := n.X.(*ast.CompositeLit); ok && c.Type != nil && strings.HasPrefix(types.ExprString(c.Type), "map[bool]") {
				report(n, "write an if instead of a map with keys of type bool")
			}
		case *ast.FuncType:
			for _, list := range []*ast.FieldList{n.Params, n.Results} {
				if list == nil {
					continue
				}
				for _, field := range list.List {
					for _, name := range field.Names {
						named = append(named, name)
					}
				}
			}
		case *ast.AssignStmt:
			if n.Tok == token.DEFINE {
				named = n.Lhs
			}
		case *ast.RangeStmt:
			named = []ast.Expr{n.Key, n.Value}
		case *ast.ValueSpec:
			for _, name := range n.Names {
				named = append(named, name)
			}
		}
		for _, e := range named {
			if name, ok := e.(*ast.Ident); ok && slices.Contains(vague, name.Name) {
				report(name, "name this variable after what it holds: "+name.Name)
			}
		}
		return true
	})
}

// uses reports whether cond has an expression that s assigns.
func uses(cond ast.Expr, s ast.Stmt) (used bool) {
	var assigned []ast.Expr
	switch s := s.(type) {
	case *ast.AssignStmt:
		assigned = s.Lhs
	case *ast.IncDecStmt:
		assigned = []ast.Expr{s.X}
	}
	ast.Inspect(cond, func(n ast.Node) bool {
		if e, ok := n.(ast.Expr); ok {
			used = used || slices.ContainsFunc(assigned, func(a ast.Expr) bool { return types.ExprString(a) == types.ExprString(e) })
		}
		return !used
	})
	return used
}
