package translate

// nginx's configuration, from bytes to directives. The directives of included files replace the include.

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/edgelimit/edge/internal/strictyaml"
)

type directive struct {
	position
	name   string
	args   []string
	places []position // of args
	block  []*directive
	body   bool // whether it has a block
}

// newDirective returns a generated directive, with the position of what it is generated for.
func newDirective(where place, name string, args ...string) *directive {
	at := where.at()
	return &directive{position: at, name: name, args: args, places: slices.Repeat([]position{at}, len(args)), body: true}
}

// source returns the text of the directive, without its block.
func (d *directive) source() string { return strings.Join(append([]string{d.name}, d.args...), " ") }

// own returns the directives with one of the names that are directly in d.
func (d *directive) own(names ...string) (list []*directive) {
	for _, e := range d.block {
		if slices.Contains(names, e.name) {
			list = append(list, e)
		}
	}
	return list
}

func (d *directive) String() string {
	if d.line == 0 {
		return d.source() + " (the default)"
	}
	return fmt.Sprintf("%s (%v)", d.source(), d.position)
}

// An nginxReader reads a configuration and the files that it includes.
type nginxReader struct {
	directory string
	files     int      // included so far
	depth     int      // of the current file; 1 for the main one
	absent    []string // included files that do not exist
}

// The parts of a file: blanks; symbols, quoted words and other words. A brace after a dollar sign belongs to the
// word.
var (
	blanks = regexp.MustCompile(`^(?:[ \t\r\n]|#[^\n]*)*`)
	parts  = regexp.MustCompile(`(?s)^(?:[;{}]|"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*'|` +
		`(?:\\.|\$\{[^ \t\r\n;{}]*\}?|[^ \t\r\n;{"'])(?:\\.|\$\{[^ \t\r\n;{}]*\}?|[^ \t\r\n;{])*)`)

	// A comment, a string, a brace, or anything else in another language, such as Lua.
	code = regexp.MustCompile(`(?s)^(?:--[^\n]*|#[^\n]*|"(?:[^"\\\n]|\\.)*"?|'(?:[^'\\\n]|\\.)*'?|[^-#"'{}]+|.)`)

	unescape = strings.NewReplacer(`\"`, `"`, `\'`, `'`, `\\`, `\`, `\t`, "\t", `\r`, "\r", `\n`, "\n").Replace
)

// A token is a word, without its quotes, or a symbol.
type token struct {
	position
	text   string
	symbol bool // one of ; { }
}

// An nginxScanner splits a file into tokens.
type nginxScanner struct {
	text []byte // from position on
	position
}

// take skips the text that p matches, and returns it.
func (s *nginxScanner) take(p *regexp.Regexp) string {
	text := p.Find(s.text)
	for _, c := range text {
		switch {
		case c == '\n':
			s.line, s.column = s.line+1, 1
		case utf8.RuneStart(c):
			s.column++
		}
	}
	s.text = s.text[len(text):]
	return string(text)
}

// next returns the next token, or false at the end of the file.
func (s *nginxScanner) next() (t token, ok bool) {
	s.take(blanks)
	t.position = s.position
	if len(s.text) == 0 {
		return t, false
	}
	word := s.take(parts)
	require(word != "", t, "add the closing quote", "a quote is not closed")
	t.symbol = strings.Contains(";{}", word)
	t.text = unescape(word)
	if word[0] != '"' && word[0] != '\'' {
		return t, true
	}
	t.text = unescape(word[1 : len(word)-1])
	if len(s.text) > 0 && strings.IndexByte(" \t\r\n;{})", s.text[0]) < 0 {
		fail(s, "put a space or a semicolon after the quote", "unexpected %q after a quoted word", s.text[:1])
	}
	return t, true
}

// skipCode skips a block in another language, such as Lua, after its opening brace.
func (s *nginxScanner) skipCode(open token) {
	for depth := 1; len(s.text) > 0; {
		switch s.take(code) {
		case "{":
			depth++
		case "}":
			if depth--; depth == 0 {
				return
			}
		}
	}
	fail(open, "add a }", "the block that begins here is not closed")
}

// parse reads a file and the files that it includes.
func (r *nginxReader) parse(f *File) []*directive {
	r.depth++
	defer func() { r.depth-- }()
	return r.block(&nginxScanner{bytes.TrimPrefix(f.Text, byteOrderMark), position{f, 1, 1}}, token{}, 0)
}

// maxDepth is the maximum depth of nested blocks and included files.
const maxDepth = 64

// maxFiles is the maximum number of included files. A file that is included again counts again.
const maxFiles = 10_000

// block reads the directives up to the end of the current block or, if depth is 0, of the file. open is the brace
// that opens the block, and depth the number of open blocks.
func (r *nginxReader) block(s *nginxScanner, open token, depth int) (all []*directive) {
	for {
		t, ok := s.next()
		require(ok || depth == 0, open, "add a }", "the block that begins here is not closed")
		switch {
		case !ok:
			return all
		case t.symbol && t.text == "}":
			require(depth > 0, t, "remove it: no block is open here", "unexpected }")
			return all
		}
		require(!t.symbol, t, "remove it, or render the template first", "unexpected %s", t.text)
		d := &directive{position: t.position, name: t.text}
		for t, ok = s.next(); ok && !t.symbol; t, ok = s.next() {
			d.args, d.places = append(d.args, t.text), append(d.places, t.position)
		}
		require(ok, d, "end it with a semicolon", "the directive %q is not terminated", d.name)
		require(t.text != "}", t, "end the directive before it with a semicolon", "unexpected }")
		d.body = t.text == "{"
		switch {
		case d.name == "include" && !d.body:
			all = append(all, r.include(d)...)
			continue
		case d.body && strings.HasSuffix(d.name, "_by_lua_block"):
			s.skipCode(t)
		case d.body:
			require(depth < maxDepth, t, "", "blocks are nested too deeply")
			d.block = r.block(s, t, depth+1)
		}
		all = append(all, d)
	}
}

// include reads the files that d includes. It records files that do not exist.
func (r *nginxReader) include(d *directive) (all []*directive) {
	require(len(d.args) == 1, d, "write one file or pattern", "include needs one argument")
	pattern, at := d.args[0], d.places[0]
	if !filepath.IsAbs(pattern) {
		pattern = filepath.Join(r.directory, pattern)
	}
	names, err := filepath.Glob(pattern)
	require(err == nil, at, "", "invalid pattern %q", pattern)
	if len(names) == 0 && !strings.ContainsAny(pattern, "*?[") {
		r.absent = append(r.absent, pattern)
	}
	for _, name := range names {
		require(r.depth <= maxDepth, at, "", "%s includes itself", name)
		r.files++
		require(r.files <= maxFiles, at, "", "more than %d files are included", maxFiles)
		info, err := os.Stat(name) // reading a device might never end
		require(err != nil || info.Mode().IsRegular() || info.IsDir() || name == os.DevNull,
			at, "", "cannot read the included file: %s is not a regular file", name)
		text, err := strictyaml.ReadFile(name)
		if errors.Is(err, fs.ErrNotExist) { // a dangling link
			r.absent = append(r.absent, name)
			continue
		}
		require(err == nil, at, "", "cannot read the included file: %v", err)
		all = append(all, r.parse(&File{name, text})...)
	}
	return all
}
