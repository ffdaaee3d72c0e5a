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

	"github.com/edgelimit/edge/internal/prose"
	"github.com/edgelimit/edge/internal/strictyaml"
)

type directive struct {
	position
	words []token // the name and the arguments
	block []*directive
	body  bool // whether it has a block
}

// newDirective returns a directive that is made for something at a place.
func newDirective(where place, words ...string) *directive {
	d := &directive{position: where.at(), body: true}
	for _, w := range words {
		d.words = append(d.words, token{text: w})
	}
	return d
}

func (d *directive) name() string { return d.words[0].text }

func (d *directive) args() []string { return texts(d.words[1:]) }

// source returns the directive without its block.
func (d *directive) source() string { return strings.Join(texts(d.words), " ") }

func (d *directive) String() string {
	if d.line == 0 {
		return d.source() + " (the default)"
	}
	return fmt.Sprintf("%s (%v)", d.source(), d.position)
}

// A token is a word, without its quotes, or a symbol.
type token struct {
	position
	text   string
	symbol bool // one of ; { }
}

func texts(words []token) []string { return prose.Texts(words, func(w token) string { return w.text }) }

// An nginxReader reads a configuration and the files that it includes.
type nginxReader struct {
	directory string
	files     int      // included so far
	reading   []string // the current file and those that include it, the outermost first
	absent    []string // included files that do not exist
}

// The parts of a file: blanks, and symbols, quoted words and others. A brace after a dollar sign belongs to the word.
var (
	blanks = regexp.MustCompile(`^(?:[ \t\r\n]|#[^\n]*)*`)
	parts  = regexp.MustCompile(`(?s)^(?:[;{}]|"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*'|` +
		`(?:\\.|\$\{[^ \t\r\n;{}]*\}?|[^ \t\r\n;{"'])(?:\\.|\$\{[^ \t\r\n;{}]*\}?|[^ \t\r\n;{])*)`)

	// A comment, a string, a brace, or anything else in another language, such as Lua.
	code = regexp.MustCompile(`(?s)^(?:--[^\n]*|#[^\n]*|"(?:[^"\\\n]|\\.)*"?|'(?:[^'\\\n]|\\.)*'?|[^-#"'{}]+|.)`)

	unescape = strings.NewReplacer(`\"`, `"`, `\'`, `'`, `\\`, `\`, `\t`, "\t", `\r`, "\r", `\n`, "\n").Replace
)

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
	require(word != "", t, "end the word with the quote that begins it", "a quote is not closed")
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
	r.reading = append(r.reading, f.Name)
	defer func() { r.reading = r.reading[:len(r.reading)-1] }()
	return r.block(&nginxScanner{f.Text, position{f, 1, 1}}, nil)
}

// maxDepth is the maximum depth of nested blocks and included files.
const maxDepth = 64

// maxFiles is the maximum number of included files. A file that is included again counts again.
const maxFiles = 10_000

// block reads the directives up to the end of the current block or, if open is nil, of the file. open has
// the opening braces of the current blocks, the outermost first.
func (r *nginxReader) block(s *nginxScanner, open []token) (all []*directive) {
	var words []token
	for {
		t, ok := s.next()
		switch {
		case !ok && len(words) > 0:
			fail(words[0], "end it with a semicolon", "the directive %q is not terminated", words[0].text)
		case !ok && open != nil:
			fail(open[len(open)-1], "add a }", "the block that begins here is not closed")
		case !ok:
			return all
		case !t.symbol:
			words = append(words, t)
			continue
		case t.text == "}" && len(words) > 0:
			fail(t, "end the directive before it with a semicolon", "unexpected }")
		case t.text == "}" && open == nil:
			fail(t, "remove it: no block is open here", "unexpected }")
		case t.text == "}":
			return all
		case len(words) == 0:
			fail(t, "remove it, or render the template first", "unexpected %s", t.text)
		}
		d := &directive{position: words[0].position, words: words}
		words = nil
		if t.text == "{" {
			d.body = true
			if strings.HasSuffix(d.name(), "_by_lua_block") {
				s.skipCode(t)
			} else {
				require(len(open) < maxDepth, t, "", "blocks are nested too deeply")
				d.block = r.block(s, append(slices.Clip(open), t))
			}
		}
		if d.name() != "include" || d.body {
			all = append(all, d)
		} else {
			all = append(all, r.include(d)...)
		}
	}
}

// include reads the files that d includes. It records files that do not exist.
func (r *nginxReader) include(d *directive) (all []*directive) {
	require(len(d.words) == 2, d, "write one file or pattern", "include needs one argument")
	pattern, at := d.words[1].text, d.words[1]
	if !filepath.IsAbs(pattern) {
		pattern = filepath.Join(r.directory, pattern)
	}
	names, err := filepath.Glob(pattern)
	require(err == nil, at, "", "invalid pattern %q", pattern)
	if len(names) == 0 && !strings.ContainsAny(pattern, "*?[") {
		r.absent = append(r.absent, pattern)
	}
	for _, name := range names {
		require(!slices.Contains(r.reading, name) && len(r.reading) <= maxDepth, at, "", "%s includes itself", name)
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
		all = append(all, r.parse(&File{name, bytes.TrimPrefix(text, byteOrderMark)})...)
	}
	return all
}
