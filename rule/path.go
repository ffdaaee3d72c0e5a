package rule

import (
	"bytes"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// A PathSyntax says how the origin reads paths. The zero value makes no assumption: a rule for /login
// matches every request that some origin answers as one for /login.
type PathSyntax struct {
	Reading PathReading

	// What the origin distinguishes: upper and lower case, /login and /login/, /login and
	// /login;x=1.
	ExactCase, ExactSlash, ExactParameters bool
}

// A PathReading is a way to find the segments of a path. The ways differ only for paths with dot segments,
// doubled slashes, backslashes and parameters.
type PathReading uint8

const (
	ReadAny      PathReading = iota // each of the following
	ReadResolved                    // nginx, gunicorn, Go, Tomcat, IIS: resolve dot segments and doubled slashes
	ReadLiteral                     // Express, Spring: route by the path as sent
	ReadURL                         // new URL(target, base): //host/login is /login
)

var readingNames = [...]string{ReadAny: "any", ReadResolved: "resolved", ReadLiteral: "literal", ReadURL: "url"}

// String returns the reading as spelled in rules files.
func (p PathReading) String() string { return readingNames[p] }

// A target is the path of a request, with the forms in which origins read it.
type target struct {
	sent    string // percent-encoded, as received
	decoded string // decoded once, dot segments and doubled slashes resolved

	// odd reports whether origins may read the path in different ways. If false, all of them read it as decoded,
	// except for case and a trailing slash.
	odd bool

	forms  [len(ways)]string // for syntax, if n > 0
	syntax PathSyntax
	n      int // number of forms
}

func (t *target) set(path string) {
	t.sent, t.decoded, t.odd, t.n = path, path, false, 0
	if isPlainPath(path) || path == "*" { // OPTIONS *
		return
	}
	var decoded, cleaned [256]byte
	d := decode(decoded[:0], path, false)
	b := clean(cleaned[:0], d, false)
	if string(b) != path {
		t.decoded = string(b)
	}
	t.odd = !bytes.Equal(b, d) || bytes.ContainsAny(b, `;\`)
}

// isPlainPath reports whether all origins read path as it is, except for case and a trailing slash. It may
// report false for a path with a percent sign that stands for itself.
func isPlainPath(path string) bool {
	if path == "" || path[0] != '/' {
		return false
	}
	for i := 1; i < len(path); i++ {
		switch path[i] {
		case '%', ';', '\\':
			return false
		case '/':
			if path[i-1] == '/' {
				return false
			}
		case '.':
			if segment, _, _ := strings.Cut(path[i:], "/"); path[i-1] == '/' && (segment == "." || segment == "..") {
				return false
			}
		}
	}
	return true
}

// clean appends path to dst without dot segments and, unless url is set, without empty segments. If the
// last segment is one of these, the result ends in a slash. If url is set, path is not decoded yet, dots
// may be percent-encoded, and the first slash is missing.
func clean(dst, path []byte, url bool) []byte {
	slash := true
	for len(path) > 0 {
		var segment []byte
		segment, path, slash = bytes.Cut(path, []byte("/"))
		dots := segment
		if url && len(segment) <= len("%2e%2e") {
			var buf [8]byte
			dots = decode(buf[:0], string(segment), false)
		}
		switch {
		case string(dots) == "..":
			dst = dst[:max(0, bytes.LastIndexByte(dst, '/'))]
			slash = true
		case string(dots) == ".":
			slash = true
		case len(segment) > 0 || url:
			dst = append(append(dst, '/'), segment...)
		}
	}
	if slash {
		dst = append(dst, '/')
	}
	return dst
}

// A way is how some origins split a path into segments.
type way struct {
	reading   PathReading
	strip     bool // remove parameters first, unless the syntax has exact ones
	backslash bool // read a backslash, even an escaped one, as a slash
}

var ways = [...]way{
	{reading: ReadResolved},
	{reading: ReadResolved, backslash: true},
	{reading: ReadResolved, backslash: true, strip: true},
	{reading: ReadLiteral, strip: true},
	{reading: ReadURL},
}

// read returns the forms in which origins with the syntax s may read the path. There is only one unless the
// path is odd. Letters keep their case if the path is not odd. It allocates only for odd paths. The result is
// valid until the next call.
func (t *target) read(s PathSyntax) []string {
	if t.n > 0 && t.syntax == s {
		return t.forms[:t.n]
	}
	t.syntax, t.n = s, 0
	if !t.odd {
		t.forms[0], t.n = trimSlash(t.decoded, s), 1
		return t.forms[:1]
	}
	for _, w := range ways {
		if s.Reading != ReadAny && s.Reading != w.reading {
			continue
		}
		if form := w.form(t.sent, s); !slices.Contains(t.forms[:t.n], form) {
			t.forms[t.n] = form
			t.n++
		}
	}
	return t.forms[:t.n]
}

// form returns the form of a path, as sent, for origins that read it in this way, in lower case if s
// ignores case.
func (w way) form(path string, s PathSyntax) string {
	var buf, cleaned, decoded [256]byte
	if w.reading == ReadURL {
		// Like the path of new URL(path, base), according to the WHATWG's URL standard.
		b := append(buf[:0], path...)
		replaceBackslashes(b)
		if bytes.HasPrefix(b, []byte("//")) { // a host follows
			_, b, _ = bytes.Cut(bytes.TrimLeft(b, "/"), []byte("/"))
		} else {
			b = bytes.TrimPrefix(b, []byte("/"))
		}
		path = string(clean(cleaned[:0], b, true))
	}
	if w.strip && !s.ExactParameters {
		path = string(stripParameters(append(buf[:0], path...)))
	}
	b := decode(decoded[:0], path, false)
	if w.backslash {
		replaceBackslashes(b)
	}
	if w.reading == ReadResolved {
		b = clean(cleaned[:0], b, false)
	}
	if !s.ExactParameters {
		b = stripParameters(b)
	}
	// Remove empty segments, except for the last one.
	if len(b) == 0 || b[0] != '/' {
		b = slices.Insert(b, 0, '/')
	}
	b = slices.CompactFunc(b, func(c, next byte) bool { return c == '/' && next == '/' })
	if !s.ExactCase {
		b = appendFolded(buf[:0], b)
	}
	return trimSlash(string(b), s)
}

func replaceBackslashes(b []byte) {
	for i := range b {
		if b[i] == '\\' {
			b[i] = '/'
		}
	}
}

// stripParameters removes from b, in place, each semicolon and the rest of its segment.
func stripParameters(b []byte) []byte {
	kept, skip := b[:0], false
	for _, c := range b {
		if skip = c == ';' || skip && c != '/'; !skip {
			kept = append(kept, c)
		}
	}
	return kept
}

// trimSlash returns path without its trailing slash, if s ignores it and path is not the root.
func trimSlash(path string, s PathSyntax) string {
	if !s.ExactSlash && len(path) > 1 {
		return strings.TrimSuffix(path, "/")
	}
	return path
}

// Normal returns the normal form of a path of a [Match], with which paths of requests are compared.
func (s PathSyntax) Normal(pattern string) string {
	if !strings.HasSuffix(pattern, "*") {
		pattern = trimSlash(pattern, s)
	}
	if s.ExactCase {
		return pattern
	}
	return string(appendFolded(nil, pattern))
}

// names reports whether pattern, in normal form, matches path, a form of a request's path.
func (s PathSyntax) names(pattern, path string) bool {
	prefix, wildcard := strings.CutSuffix(pattern, "*")
	segment := false
	if wildcard && !s.ExactSlash { // the path may have lost the slash before the star
		prefix, segment = strings.CutSuffix(prefix, "/")
	}
	rest, ok := s.cut(path, prefix)
	return ok && (rest == "" || wildcard && (!segment || rest[0] == '/'))
}

// cut returns path without prefix, which is in normal form. ok is false if path does not begin with it.
func (s PathSyntax) cut(path, prefix string) (rest string, ok bool) {
	if rest, ok = strings.CutPrefix(path, prefix); ok || s.ExactCase {
		return rest, ok
	}
	for prefix != "" && path != "" {
		_, n := utf8.DecodeRuneInString(path)
		var buf [utf8.UTFMax]byte
		folded := appendFolded(buf[:0], path[:n])
		if prefix, ok = strings.CutPrefix(prefix, string(folded)); !ok {
			return "", false
		}
		path = path[n:]
	}
	return path, prefix == ""
}

// appendFolded appends s to dst in lower case. Characters with the same upper case have the same lower
// case here. Bytes that are not UTF-8 stay as they are.
func appendFolded[T string | []byte](dst []byte, s T) []byte {
	for i := 0; i < len(s); {
		if s[i] < utf8.RuneSelf {
			dst = append(dst, lowerByte(s[i]))
			i++
			continue
		}
		r, n := utf8.DecodeRuneInString(string(s[i:min(len(s), i+utf8.UTFMax)]))
		if r == utf8.RuneError {
			dst = append(dst, s[i:i+n]...)
		} else {
			dst = utf8.AppendRune(dst, unicode.ToLower(unicode.ToUpper(r)))
		}
		i += n
	}
	return dst
}
