package strictyaml

// From bytes to YAML nodes, and errors about bytes that are not YAML.

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"iter"
	"strings"
	"unicode"
	"unicode/utf8"

	"go.yaml.in/yaml/v4"

	"github.com/edgelimit/edge/internal/prose"
)

// Parse returns the root of the only YAML document, or nil if there is none. If it records an error, it
// sets d.Broken.
func (d *Document) Parse() (root *yaml.Node) {
	text := d.Bytes
	if at := indexStrange(text); at < len(text) {
		d.Broken = true
		d.strange(text, at)
		return nil
	}
	docs, err := Documents(text, 2)
	switch syntax, ok := errors.AsType[*yaml.LoadError](err); {
	case ok:
		d.syntax(text, syntax)
	case err != nil:
		d.FailAt(0, 0, "", "not YAML: %v", err)
	case len(docs) > 1:
		d.Fail(docs[1], "write one document into each file", "a second document begins here")
	case len(docs) == 1:
		return docs[0].Content[0]
	default:
		return nil
	}
	d.Broken = true
	return nil
}

// Documents returns the first documents of text, at most most of them.
func Documents(text []byte, most int) (docs []*yaml.Node, err error) {
	defer func() {
		// The parser panics if its own checks fail. No file may crash the node that reads it.
		if cause := recover(); cause != nil {
			docs, err = nil, fmt.Errorf("the parser gave up: %v", cause)
		}
	}()
	loader, err := yaml.NewLoader(bytes.NewReader(text))
	for err == nil && len(docs) < most {
		doc := new(yaml.Node)
		if err = loader.Load(doc); err == nil {
			docs = append(docs, doc)
		}
	}
	if err == io.EOF {
		err = nil
	}
	return docs, err
}

// indexStrange returns the index of the first byte of text that a YAML file cannot contain, or
// len(text).
func indexStrange(text []byte) int {
	for i := 0; i < len(text); {
		c := text[i]
		if c >= ' ' && c < utf8.RuneSelf || c == '\n' || c == '\r' || c == '\t' {
			i++
			continue
		}
		r, n := utf8.DecodeRune(text[i:])
		if r < ' ' || r == utf8.RuneError && n == 1 || r == 0xfffe || r == 0xffff {
			return i
		}
		i += n
	}
	return len(text)
}

// strange records an error about a byte that indexStrange found.
func (d *Document) strange(text []byte, at int) {
	line, column := end(text[:at])
	switch r, n := utf8.DecodeRune(text[at:]); {
	case n == 1 && r == utf8.RuneError && (bytes.HasPrefix(text, []byte("\xff\xfe")) || bytes.HasPrefix(text, []byte("\xfe\xff"))):
		d.FailAt(0, 0, "save it as UTF-8", "the file is in UTF-16")
	case n == 1 && r == utf8.RuneError:
		d.FailAt(line, column, "save the file as UTF-8", "the byte 0x%02x is not UTF-8", text[at])
	default:
		d.FailAt(line, column, fmt.Sprintf(`in double quotes it can be written "\u%04x"`, r), "the character %U cannot be in a file", r)
	}
}

// syntax records an error of the parser, at the place where people look for the mistake, and in words
// that do not require knowledge of the parser.
func (d *Document) syntax(text []byte, err *yaml.LoadError) {
	at, line := err.Mark, lineOf(text, err.Mark.Line)
	context := func(what string) bool { return strings.Contains(err.ContextMsg, what) }
	message, hint := "not YAML: "+err.Message, ""
	before, here := line, ""
	if letters := []rune(line); at.Column >= 1 && at.Column <= len(letters) {
		before, here = string(letters[:at.Column-1]), string(letters[at.Column-1])
	}
	switch said := err.Message; {
	case strings.Contains(said, " tab ") || here == "\t" && said == "found character that cannot start any token":
		message, hint = "a tab character indents this line", "indent with spaces instead of tabs"
		at.Column = strings.IndexByte(line, '\t') + 1
	case said == "found unexpected end of stream" && context("quoted"):
		message, hint = "a quote is not closed", "end the text with the quote that begins it"
		at = err.ContextMark
	case strings.HasPrefix(said, "did not find expected ','") && err.ContextMark.Line == at.Line:
		message = "a comma or closing " + last(said) + " is expected here"
		hint = "a value ends with its closing quote or bracket"
	case strings.HasPrefix(said, "did not find expected ','"):
		message, hint = "what begins here is not closed", "write "+last(said)+" at its end, and commas between its parts"
		at = err.ContextMark
	case said == "did not find expected node content" && here == "":
		message, hint = "something is missing at the end of the file", "close every bracket, brace and quote"
		at.Line, at.Column = lastPlace(text)
	case said == "did not find expected node content" && here == "-":
		message, hint = "a list with dashes cannot be inside of brackets or braces", "write it in brackets: [a, b]"
	case said == "did not find expected node content":
		message, hint = here+" is not expected here", "remove it, or put the value in quotes"
	case said == "found character that cannot start any token":
		message, hint = "a value cannot begin with "+here, "put the value in quotes"
	case said == "did not find expected alphabetic or numeric character":
		message, hint = "a value that begins with * or & needs quotes", "put the value in quotes"
		at = err.ContextMark
	case strings.HasPrefix(said, "unknown anchor '"):
		name := strings.TrimSuffix(strings.TrimPrefix(said, "unknown anchor '"), "' referenced")
		message, hint = "a value that begins with * needs quotes", "quote it: "+prose.Quote("*"+name)
	case said == "mapping values are not allowed in this context" && strings.Contains(before, ":"):
		message, hint = "a second colon is not expected here", "put a text that contains a colon in quotes"
	case said == "mapping values are not allowed in this context":
		message, hint = "a key is not expected here", "begin the keys of one mapping in one column"
		at.Column = len(line) - len(strings.TrimLeft(line, " ")) + 1
	case said == "did not find expected key" && strings.TrimSpace(before) != "":
		message, hint = "nothing is expected here", "a value ends with its closing quote or bracket"
	case said == "did not find expected key" && strings.ContainsAny(here, "]}"):
		message, hint = here+" is not expected here", "remove it"
	case said == "did not find expected key":
		message, hint = "a key is not expected here", "begin the keys of one mapping in one column"
	case said == "could not find expected ':'":
		message, hint = "a key without a colon", "write key: value"
		at = err.ContextMark
	case said == "did not find expected '-' indicator" || said == "block sequence entries are not allowed in this context":
		message = "an element of a list is expected here"
		hint = `elements begin with "- " in lines of their own, all in one column`
	case said == "did not find expected <document start>" && here == "":
		message, hint = "the document is missing", "leave out lines that begin with %"
	case said == "did not find expected <document start>":
		message, hint = "nothing is expected here: the document has ended", "remove it, or a bracket that closes too early"
	case said == "found incompatible YAML document":
		message, hint = "this version of YAML is not known", "leave the line out"
	case said == "found unknown escape character":
		message, hint = "unknown escape in a quoted text", `in double quotes, write \\ for a backslash`
	}
	if lineOf(text, at.Line) == "" {
		at.Line, at.Column = lastPlace(text)
	}
	d.FailAt(at.Line, at.Column, hint, "%s", message)
}

// last returns the character before the final quote of a message.
func last(message string) string { return message[len(message)-2 : len(message)-1] }

// lastPlace returns the line and the column of the last character of text that is not a space.
func lastPlace(text []byte) (line, column int) {
	line, column = end(bytes.TrimRightFunc(text, unicode.IsSpace))
	return line, column - 1
}

// end returns the line and the column that follow text.
func end(text []byte) (line, column int) {
	for each := range lines(text) {
		line, column = line+1, utf8.RuneCount(each)+1
	}
	return line, column
}

// lines yields the lines of text without their line breaks. There is at least one.
func lines(text []byte) iter.Seq[[]byte] {
	return func(yield func([]byte) bool) {
		for {
			n, next := lineBreak(text)
			if !yield(text[:n]) || next == 0 {
				return
			}
			text = text[n+next:]
		}
	}
}

// lineBreak returns how many bytes of text precede its first line break in YAML, and how many bytes the
// break has: 0 if there is none.
func lineBreak(text []byte) (before, width int) {
	for i := 0; i < len(text); i++ {
		switch rest := text[i:]; {
		case rest[0] == '\n':
			return i, 1
		case rest[0] == '\r' && len(rest) > 1 && rest[1] == '\n':
			return i, 2
		case rest[0] == '\r':
			return i, 1
		case rest[0] == 0xc2 && bytes.HasPrefix(rest, []byte("\u0085")):
			return i, 2
		case rest[0] == 0xe2 && (bytes.HasPrefix(rest, []byte("\u2028")) || bytes.HasPrefix(rest, []byte("\u2029"))):
			return i, 3
		}
	}
	return len(text), 0
}

// lineOf returns a line of text, counted from 1, with control characters replaced. It returns "" if there
// are fewer lines.
func lineOf(text []byte, line int) string {
	for each := range lines(text) {
		if line--; line <= 0 {
			return strings.Map(func(r rune) rune {
				if unicode.IsControl(r) && r != '\t' {
					return utf8.RuneError
				}
				return r
			}, string(each))
		}
	}
	return ""
}
