package rule

import (
	"bytes"
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

// String returns the reading as in rules files.
func (p PathReading) String() string { return readingNames[p] }

// maxForms is the maximum number of forms of a path: one for each way of appendForm.
const maxForms = 5

// A target is the path of a request, with the forms in which origins read it.
type target struct {
	sent    string // percent-encoded, as received
	decoded string // decoded once, dot segments and doubled slashes resolved

	// odd reports that origins may read the path differently. If false, all of them read it as decoded,
	// except for case and a trailing slash.
	odd bool

	forms  [maxForms]string // for syntax, if n > 0
	syntax PathSyntax
	n      int // number of forms
}

// set sets the path.
func (t *target) set(path string) {
	t.sent, t.decoded, t.odd, t.n = path, path, false, 0
	if isPlainPath(path) || path == "*" { // OPTIONS *
		return
	}
	var decoded, cleaned [256]byte
	d := decode(decoded[:0], path, false)
	b := clean(cleaned[:0], d)
	if string(b) != path {
		t.decoded = string(b)
	}
	t.odd = !bytes.Equal(b, d) || bytes.ContainsAny(b, `;\`)
}

// canonicalPath returns path percent-decoded once, then without dot segments and doubled slashes. It
// allocates only if path changes. A percent sign without two hexadecimal digits stands for itself.
func canonicalPath(path string) string {
	var t target
	t.set(path)
	return t.decoded
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
			if path[i-1] == '/' && beginsWithDots(path[i:]) {
				return false
			}
		}
	}
	return true
}

// beginsWithDots reports whether the first segment of s is a dot segment.
func beginsWithDots(s string) bool {
	segment, _, _ := strings.Cut(s, "/")
	return segment == "." || segment == ".."
}

// clean appends path to dst without empty segments and dot segments. If the last segment is one of these,
// the result ends in a slash.
func clean(dst, path []byte) []byte {
	slash := true
	for len(path) > 0 {
		var segment []byte
		segment, path, slash = bytes.Cut(path, []byte("/"))
		switch string(segment) {
		case "":
		case ".":
			slash = true
		case "..":
			dst = dst[:max(0, bytes.LastIndexByte(dst, '/'))]
			slash = true
		default:
			dst = append(append(dst, '/'), segment...)
		}
	}
	if slash {
		dst = append(dst, '/')
	}
	return dst
}

// read returns the forms in which origins of the syntax s may read the path. There is one, unless the path
// is odd. Letters keep their case. It allocates only for odd paths. The result is valid until the next
// call.
func (t *target) read(s PathSyntax) []string {
	if t.n > 0 && t.syntax == s {
		return t.forms[:t.n]
	}
	t.syntax, t.n = s, 0
	if !t.odd {
		t.forms[0], t.n = trimSlash(t.decoded, s), 1
		return t.forms[:1]
	}
	if s.Reading == ReadAny || s.Reading == ReadResolved {
		t.add(s, way{resolve: true})
		t.add(s, way{resolve: true, backslash: true})
		if !s.ExactParameters {
			t.add(s, way{resolve: true, backslash: true, strip: true})
		}
	}
	if s.Reading == ReadAny || s.Reading == ReadLiteral {
		t.add(s, way{strip: !s.ExactParameters})
	}
	if s.Reading == ReadAny || s.Reading == ReadURL {
		t.add(s, way{url: true})
	}
	return t.forms[:t.n]
}

// add adds the form of the path that results from w, unless t has it.
func (t *target) add(s PathSyntax, w way) {
	var buf [256]byte
	b := w.appendForm(buf[:0], t.sent)
	if !s.ExactParameters {
		b = stripParameters(b)
	}
	b = mergeSlashes(b)
	form := trimSlash(string(b), s)
	for _, known := range t.forms[:t.n] {
		if known == form || !s.ExactCase && sameFolded(known, form) {
			return
		}
	}
	t.forms[t.n] = form
	t.n++
}

// A way says what an origin does with a path before it splits the path into segments.
type way struct {
	strip     bool // remove parameters first
	backslash bool // read a backslash as a slash
	resolve   bool // resolve doubled slashes, then dot segments
	url       bool // read the path like the WHATWG's URL parser
}

// appendForm appends the form of a path, as sent, to dst.
func (w way) appendForm(dst []byte, path string) []byte {
	var buf, decoded [256]byte
	b := append(buf[:0], path...)
	if w.url {
		return appendURLPath(dst, b)
	}
	if w.strip {
		b = stripParameters(b)
	}
	d := decode(decoded[:0], string(b), false)
	if w.backslash {
		replaceBackslashes(d)
	}
	if w.resolve {
		return clean(dst, d)
	}
	return append(dst, d...)
}

// appendURLPath appends to dst the decoded path of new URL(path, base), according to the WHATWG's URL
// standard. It modifies path.
func appendURLPath(dst, path []byte) []byte {
	replaceBackslashes(path)
	if bytes.HasPrefix(path, []byte("//")) { // a host follows
		path = bytes.TrimLeft(path, "/")
		path = path[len(path)-len(afterSegment(path)):]
	}
	path = bytes.TrimPrefix(path, []byte("/"))
	var ends []int // of the segments in dst
	begin := len(dst)
	for more := true; more; {
		var segment []byte
		segment, path, more = bytes.Cut(path, []byte("/"))
		var buf [8]byte
		dots := ""
		if len(segment) <= len("%2e%2e") {
			dots = string(decode(buf[:0], string(segment), false))
		}
		switch dots {
		case "..":
			if len(ends) > 0 {
				ends = ends[:len(ends)-1]
			}
			dst = dst[:begin]
			if len(ends) > 0 {
				dst = dst[:ends[len(ends)-1]]
			}
			fallthrough
		case ".":
			if !more {
				dst = append(dst, '/')
			}
		default:
			dst = decode(append(dst, '/'), string(segment), false)
			ends = append(ends, len(dst))
		}
	}
	return dst
}

// afterSegment returns the rest of path after its first segment, from the slash on.
func afterSegment(path []byte) []byte {
	if i := bytes.IndexByte(path, '/'); i >= 0 {
		return path[i:]
	}
	return nil
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

// mergeSlashes removes empty segments from b, except for the last one, in place.
func mergeSlashes(b []byte) []byte {
	if len(b) == 0 || b[0] != '/' {
		b = append([]byte{'/'}, b...)
	}
	merged := b[:1]
	for _, c := range b[1:] {
		if c != '/' || merged[len(merged)-1] != '/' {
			merged = append(merged, c)
		}
	}
	return merged
}

// trimSlash returns path without its trailing slash, if s ignores it and path is not the root.
func trimSlash(path string, s PathSyntax) string {
	if !s.ExactSlash && len(path) > 1 && path[len(path)-1] == '/' {
		return path[:len(path)-1]
	}
	return path
}

// normalPattern returns the normal form of a path in a rules file, with which paths of requests are
// compared.
func (s PathSyntax) normalPattern(pattern string) string {
	if !strings.HasSuffix(pattern, "*") {
		pattern = trimSlash(pattern, s)
	}
	if s.ExactCase {
		return pattern
	}
	if folded := string(appendFolded(nil, pattern)); folded != pattern {
		return folded
	}
	return pattern
}

// names reports whether pattern, in normal form, matches path, a form of a request's path.
func (s PathSyntax) names(pattern, path string) bool {
	prefix, wildcard := strings.CutSuffix(pattern, "*")
	if !wildcard {
		rest, ok := s.cut(path, pattern)
		return ok && rest == ""
	}
	if !s.ExactSlash && strings.HasSuffix(prefix, "/") {
		// The path may have lost the slash.
		rest, ok := s.cut(path, prefix[:len(prefix)-1])
		return ok && (rest == "" || rest[0] == '/')
	}
	_, ok := s.cut(path, prefix)
	return ok
}

// cut returns path without prefix, which is in normal form. ok is false if path does not begin with it.
func (s PathSyntax) cut(path, prefix string) (rest string, ok bool) {
	if s.ExactCase {
		return strings.CutPrefix(path, prefix)
	}
	if rest, ok := strings.CutPrefix(path, prefix); ok {
		return rest, true
	}
	for len(prefix) > 0 && len(path) > 0 && path[0] < utf8.RuneSelf {
		c := path[0]
		if 'A' <= c && c <= 'Z' {
			c += 'a' - 'A'
		}
		if c != prefix[0] {
			return "", false
		}
		path, prefix = path[1:], prefix[1:]
	}
	for prefix != "" {
		if path == "" {
			return "", false
		}
		var buf [utf8.UTFMax]byte
		folded, n := appendFoldedRune(buf[:0], path)
		if len(prefix) < len(folded) || prefix[:len(folded)] != string(folded) {
			return "", false
		}
		path, prefix = path[n:], prefix[len(folded):]
	}
	return path, true
}

// sameFolded reports whether a and b are equal except for case.
func sameFolded(a, b string) bool {
	for a != "" && b != "" {
		var bufA, bufB [utf8.UTFMax]byte
		foldedA, n := appendFoldedRune(bufA[:0], a)
		foldedB, m := appendFoldedRune(bufB[:0], b)
		if string(foldedA) != string(foldedB) {
			return false
		}
		a, b = a[n:], b[m:]
	}
	return a == b
}

// appendFolded appends s to dst in lower case.
func appendFolded(dst []byte, s string) []byte {
	for s != "" {
		var n int
		dst, n = appendFoldedRune(dst, s)
		s = s[n:]
	}
	return dst
}

// appendFoldedRune appends the first character of s, which must not be empty, in lower case, and returns
// its length in s. Characters with the same upper case have the same lower case here. Bytes that are not
// UTF-8 stay as they are.
func appendFoldedRune(dst []byte, s string) (_ []byte, n int) {
	if c := s[0]; c < utf8.RuneSelf {
		if 'A' <= c && c <= 'Z' {
			c += 'a' - 'A'
		}
		return append(dst, c), 1
	}
	r, n := utf8.DecodeRuneInString(s)
	if r == utf8.RuneError {
		return append(dst, s[:n]...), n
	}
	return utf8.AppendRune(dst, unicode.ToLower(unicode.ToUpper(r))), n
}
