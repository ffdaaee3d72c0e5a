package strictyaml

// From bytes to YAML nodes, and errors about bytes that are not YAML.

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"go.yaml.in/yaml/v4"
)

// Parse returns the root of the only YAML document, or nil if it records an error or there is no document.
func (d *Document) Parse() (root *yaml.Node) {
	text := d.Bytes
	if at, n := strange(text); n > 0 {
		line, column := end(text[:at])
		d.FailAt(line, column, "save the file as UTF-8, without control characters", "the file cannot contain %q",
			text[at:at+n])
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
	}
	return nil
}

// Documents returns the first documents of text, at most limit of them. Each alias is replaced with what it
// stands for, at the position of the alias.
func Documents(text []byte, limit int) (docs []*yaml.Node, err error) {
	defer func() {
		// The parser panics if its own checks fail. No file may crash the node that reads it.
		if cause := recover(); cause != nil {
			docs, err = nil, fmt.Errorf("the parser gave up: %v", cause)
		}
	}()
	loader, err := yaml.NewLoader(bytes.NewReader(text))
	for err == nil && len(docs) < limit {
		doc := new(yaml.Node)
		if err = loader.Load(doc); err == nil {
			docs, err = append(docs, doc), resolve(doc, nil)
		}
	}
	if err == io.EOF {
		err = nil
	}
	return docs, err
}

// resolve replaces the aliases below n, which is within outer. A value that contains itself is an error.
func resolve(n *yaml.Node, outer []*yaml.Node) error {
	if n.Kind == yaml.AliasNode {
		if slices.Contains(outer, n.Alias) {
			return &yaml.LoadError{Message: fmt.Sprintf("the value of &%s contains itself", n.Value),
				Mark: yaml.Mark{Line: n.Line, Column: n.Column}}
		}
		copied := *n.Alias
		copied.Line, copied.Column = n.Line, n.Column
		*n = copied
		return nil
	}
	outer = append(outer, n)
	for _, child := range n.Content {
		if err := resolve(child, outer); err != nil {
			return err
		}
	}
	return nil
}

// strange returns the index and the length of the first character of text that a file must not contain. The
// length is 0 if there is none.
func strange(text []byte) (at, length int) {
	for at < len(text) {
		r, n := utf8.DecodeRune(text[at:])
		switch {
		case r == utf8.RuneError && n == 1, r < ' ' && r != '\n' && r != '\r' && r != '\t', r == 0xfffe, r == 0xffff:
			return at, n
		// line breaks in YAML
		case r == '\r' && !bytes.HasPrefix(text[at:], []byte("\r\n")), r == 0x85, r == 0x2028, r == 0x2029:
			return at, n
		}
		at += n
	}
	return at, 0
}

// syntax records an error of the parser.
func (d *Document) syntax(text []byte, err *yaml.LoadError) {
	at, message, hint := err.Mark, err.Message, "check quotes, brackets and indentation"
	if err.ContextMsg != "" {
		message = fmt.Sprintf("%s at %d:%d: %s", err.ContextMsg, err.ContextMark.Line, err.ContextMark.Column, message)
	}
	line, index := "", max(at.Line, 1)-1 // an error about the whole file is on line 0
	if lines := (&Source{Bytes: text}).Lines(index + 1); index < len(lines) {
		line = lines[index]
	}
	switch {
	case line == "":
		at.Line, at.Column = end(bytes.TrimRightFunc(text, unicode.IsSpace))
	case strings.HasPrefix(strings.TrimLeft(line, " "), "\t"):
		hint = "indent with spaces instead of tabs"
	case strings.HasPrefix(message, "unknown anchor"):
		hint = "put a value that begins with * in quotes"
		if shown := (&Source{Bytes: text, Fields: d.fields}).Lines(index + 1); shown[index] == "" {
			message = "unknown anchor" // its name may be a secret
		}
	case strings.HasSuffix(message, "contains itself"):
		hint = "write a value in place of the alias"
	}
	d.FailAt(at.Line, at.Column, hint, "not YAML: %s", message)
}

// end returns the line and the column that follow text.
func end(text []byte) (line, column int) {
	last := text[bytes.LastIndexByte(text, '\n')+1:]
	return 1 + bytes.Count(text, []byte("\n")), utf8.RuneCount(last) + 1
}
