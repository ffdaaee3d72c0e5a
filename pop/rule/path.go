package rule

import (
	"bytes"
	"strings"
	"unicode"
	"unicode/utf8"
)

// A PathSyntax says how the origin of a rule's requests reads their paths. The zero
// value makes no assumption: whichever origin it is, a request that it answers as
// one for /login is matched by a rule for /login.
type PathSyntax struct {
	Reading PathReading

	// What an origin tells apart: upper and lower case, /login and /login/, /login
	// and /login;x=1.
	ExactCase, ExactSlash, ExactParameters bool
}

// A PathReading is a way to find the segments of a path. The ways differ for paths
// with dot segments, doubled slashes, backslashes and parameters only.
type PathReading uint8

const (
	ReadAny      PathReading = iota // each of the following
	ReadResolved                    // nginx, gunicorn, Go, Tomcat, IIS: resolve dot segments and doubled slashes
	ReadLiteral                     // Express, Spring: route by the path as it was sent
	ReadURL                         // new URL(target, base): //host/login is /login
)

var readingNames = [...]string{ReadAny: "any", ReadResolved: "resolved", ReadLiteral: "literal", ReadURL: "url"}

// String returns the reading as rules files write it.
func (p PathReading) String() string { return readingNames[p] }

// maxForms is how many forms a path can have: one for each way of appendForm.
const maxForms = 5

// A target is the path of a request as it was received, and what was made of it.
type target struct {
	sent    string // percent-encoded
	decoded string // decoded once, dot segments and doubled slashes resolved

	// odd says that origins may read the path differently. If false, decoded is how
	// all do, but for case and a trailing slash.
	odd bool

	forms  [maxForms]string // by syntax, once number is not 0
	syntax PathSyntax
	number int
}

// set makes t the target of path.
func (t *target) set(path string) {
	t.sent, t.decoded, t.odd, t.number = path, path, false, 0
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

// canonicalPath returns path percent-decoded once, then without dot segments and
// doubled slashes. It allocates only where path changes. An escape that is not
// followed by two hexadecimal digits stands for itself.
func canonicalPath(path string) string {
	var t target
	t.set(path)
	return t.decoded
}

// isPlainPath reports whether all origins read path alike, as it is, but for case and
// a trailing slash. It may report false where an escape that stands for itself is all
// that looks odd.
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

// clean appends path to dst without empty segments and dot segments. A path whose
// last segment is one of them ends in a slash.
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

// read returns the forms in which an origin may read the path, by s: one, unless the
// path is odd. Letters keep their case. It allocates only for odd paths. What it
// returns is valid until the next call.
func (t *target) read(s PathSyntax) []string {
	if t.number > 0 && t.syntax == s {
		return t.forms[:t.number]
	}
	t.syntax, t.number = s, 0
	if !t.odd {
		t.forms[0], t.number = trimSlash(t.decoded, s), 1
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
	return t.forms[:t.number]
}

// add adds the form that w makes of the path, unless it is known.
func (t *target) add(s PathSyntax, w way) {
	var buf [256]byte
	b := w.appendForm(buf[:0], t.sent)
	if !s.ExactParameters {
		b = stripParameters(b)
	}
	b = mergeSlashes(b)
	form := trimSlash(string(b), s)
	for _, known := range t.forms[:t.number] {
		if known == form || !s.ExactCase && sameFolded(known, form) {
			return
		}
	}
	t.forms[t.number] = form
	t.number++
}

// A way is what an origin does with a path before it splits it into segments.
type way struct {
	strip     bool // remove parameters first
	backslash bool // read a backslash as a slash
	resolve   bool // resolve doubled slashes, then dot segments
	url       bool // read the path as the WHATWG's URL parser does
}

// appendForm appends what w makes of path, as it was sent, to dst.
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

// appendURLPath appends to dst the decoded path of new URL(path, base), as the WHATWG's
// URL standard says it. It changes path.
func appendURLPath(dst, path []byte) []byte {
	replaceBackslashes(path)
	if bytes.HasPrefix(path, []byte("//")) { // a host follows
		path = bytes.TrimLeft(path, "/")
		path = path[len(path)-len(afterSegment(path)):]
	}
	path = bytes.TrimPrefix(path, []byte("/"))
	var ends []int // where the segments in dst end
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

// afterSegment returns what follows the first segment of path, from its slash on.
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

// stripParameters removes from b, in place, each semicolon and what follows it in
// its segment.
func stripParameters(b []byte) []byte {
	kept, skip := b[:0], false
	for _, c := range b {
		if skip = c == ';' || skip && c != '/'; !skip {
			kept = append(kept, c)
		}
	}
	return kept
}

// mergeSlashes removes empty segments from b, in place, but for a last one.
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

// trimSlash returns path without its trailing slash, if s ignores that. The root keeps
// its own.
func trimSlash(path string, s PathSyntax) string {
	if !s.ExactSlash && len(path) > 1 && path[len(path)-1] == '/' {
		return path[:len(path)-1]
	}
	return path
}

// normalPattern returns a path of a rules file in the form that the paths of requests
// are compared with.
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

// names reports whether pattern, which is in normal form, names path, a form of a
// request's path.
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

// cut returns what follows prefix, which is in normal form, in path.
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

// sameFolded reports whether a and b differ in case at most.
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

// appendFolded appends s to dst with its letters in lower case.
func appendFolded(dst []byte, s string) []byte {
	for s != "" {
		var n int
		dst, n = appendFoldedRune(dst, s)
		s = s[n:]
	}
	return dst
}

// appendFoldedRune appends the first character of s, not empty, in lower case, and
// returns how many bytes it has in s. Two characters with the same upper case have the
// same lower case here. A byte that is not UTF-8 stays as it is.
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
