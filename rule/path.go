package rule

import (
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

// MaxOddSegments is the maximum number of slashes and backslashes, encoded ones included, in a path that origins may read
// in different ways, and MaxOddPath the maximum length of such a path: they cost time for each way. A request with more is
// malformed. Other paths have no bounds of their own.
const (
	MaxOddSegments = 64
	MaxOddPath     = 4096
)

// A target is the path of a request, with the forms in which origins read it.
type target struct {
	sent    string // percent-encoded, as received
	decoded string // decoded once, dot segments and doubled slashes resolved; "" until it is needed

	bad bool // sent has a byte that is in no path, or an incomplete escape, which origins read in different ways

	// odd reports whether origins may read the path in different ways. If false, all of them read it as decoded,
	// except for case and a trailing slash.
	odd      bool
	segments int // slashes and backslashes, encoded ones included, if odd

	readings *readings // of an odd path; made when needed
}

// readings are an odd path, split once, and the forms in which it is read.
type readings struct {
	decoded []byte
	pieces  []piece
	forms   [2][len(ways)]string // made when needed, without and with parameters
	form    []byte               // memory in which they are made
}

// Bytes of paths that are not ordinary.
const (
	structural = 1 + iota // may separate segments, or change how they are read
	invalid               // in no path and no query: blanks, controls, and # since some origins end the path there
)

var special = func() (s [256]uint8) {
	for _, c := range `/\%;.` {
		s[c] = structural
	}
	for c := range s {
		if c <= ' ' || c == '#' || c == 0x7f {
			s[c] = invalid
		}
	}
	return s
}()

// set visits each byte of path once. It returns false if the path is odd, and too long or in too many segments.
func (t *target) set(path string) bool {
	segments, length, dots := 0, 0, 0 // the last two of the current segment, decoded
	odd, escaped, bad := false, false, false
	for i := 0; i < len(path); i++ {
		c := path[i]
		length++
		if special[c] == 0 {
			continue
		}
		bad = bad || special[c] == invalid
		if c == '%' && len(path)-i > 2 && isHex(path[i+1]) && isHex(path[i+2]) {
			c, escaped = unhex(path[i+1])<<4|unhex(path[i+2]), true
			i += 2
		} else if c == '%' {
			bad = true
		}
		switch c {
		case '/', '\\':
			segments++
			odd = odd || c == '\\' || segments == 1 && length > 1 || segments > 1 && isDots(length-1, dots)
			length, dots = 0, 0
		case ';':
			odd = true
		case '.':
			dots++
		}
		if odd && segments > MaxOddSegments {
			break
		}
	}
	odd = (odd || segments == 0 || length > 0 && isDots(length, dots)) && path != "*" // OPTIONS *
	*t = target{sent: path, decoded: path, bad: bad, odd: odd, segments: segments}
	if odd && (segments > MaxOddSegments || len(path) > MaxOddPath) {
		t.odd = false // nothing reads it
		return false
	}
	if odd || escaped {
		t.decoded = ""
	}
	return true
}

// isDots reports whether a segment with this many bytes, and this many dots, is empty or a dot segment.
func isDots(length, dots int) bool { return length <= 2 && dots == length }

// path returns the path, decoded once, without dot segments and doubled slashes.
func (t *target) path() string {
	if t.decoded == "" && t.odd {
		t.decoded = t.form(0, true)
	} else if t.decoded == "" {
		t.decoded = string(decode(make([]byte, 0, len(t.sent)), t.sent, false))
	}
	return t.decoded
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

// read returns the n forms in which origins with the syntax s may read the path, one unless the path is odd. Letters
// keep their case.
func (t *target) read(s PathSyntax) (read [len(ways)]string, n int) {
	if !t.odd {
		read[0] = trimSlash(t.path(), s)
		return read, 1
	}
	for i, w := range ways {
		if s.Reading != ReadAny && s.Reading != w.reading {
			continue
		}
		if form := trimSlash(t.form(i, s.ExactParameters), s); !slices.Contains(read[:n], form) {
			read[n] = form
			n++
		}
	}
	return read, n
}

// form returns the form of an odd path for origins that read it in way i, and keep parameters.
func (t *target) form(i int, keep bool) string {
	r := t.readings
	if r == nil {
		r = new(readings)
		r.decoded, r.pieces = split(t.sent, t.segments+1)
		r.form = make([]byte, 0, len(r.decoded)+1)
		t.readings = r
	}
	forms := &r.forms[0]
	if keep {
		forms = &r.forms[1]
	}
	if forms[i] == "" {
		r.form = ways[i].form(r.form[:0], r.decoded, r.pieces, keep)
		for j := range r.forms {
			for _, other := range r.forms[j] {
				if string(r.form) == other {
					forms[i] = other
					return other
				}
			}
		}
		forms[i] = string(r.form)
	}
	return forms[i]
}

// A piece is what a path has between two slashes or backslashes.
type piece struct {
	from, to  int  // in the decoded path
	unescaped int  // its first semicolon that was not escaped, or at least to
	semicolon int  // its first semicolon, or at least to
	mark      byte // what precedes it: a slash, a backslash, or 0 at the beginning of the path
	escaped   bool // mark was
}

// split decodes path and splits it into n pieces.
func split(path string, n int) (decoded []byte, pieces []piece) {
	pieces, decoded = make([]piece, 0, n), make([]byte, len(path))
	p := piece{unescaped: len(path), semicolon: len(path)}
	at := 0
	for i := 0; i < len(path); i++ {
		ordinary := i
		for i < len(path) && special[path[i]] != structural {
			i++
		}
		if at += copy(decoded[at:], path[ordinary:i]); i == len(path) {
			break
		}
		c, escaped := path[i], false
		if c == '%' && len(path)-i > 2 && isHex(path[i+1]) && isHex(path[i+2]) {
			c, escaped = unhex(path[i+1])<<4|unhex(path[i+2]), true
			i += 2
		}
		decoded[at] = c
		switch c {
		case '/', '\\':
			p.to = at
			pieces = append(pieces, p)
			p = piece{from: at + 1, unescaped: len(path), semicolon: len(path), mark: c, escaped: escaped}
		case ';':
			if p.semicolon = min(p.semicolon, at); !escaped {
				p.unescaped = min(p.unescaped, at)
			}
		}
		at++
	}
	p.to = at
	return decoded[:at], append(pieces, p)
}

// splits reports whether a segment ends before p.
func (w *way) splits(p *piece) bool {
	if w.reading == ReadURL {
		return !p.escaped
	}
	return p.mark == '/' || w.backslash
}

// first returns the index of the first piece of a path. new URL(path, base) skips what it reads as a host.
func (w *way) first(pieces []piece) (n int) {
	if w.reading != ReadURL {
		return 0
	}
	for n+1 < len(pieces) && pieces[n].from == pieces[n].to && !pieces[n+1].escaped {
		n++
	}
	if n > 1 { // as many slashes, then a host
		for n++; n < len(pieces) && pieces[n].escaped; {
			n++
		}
	}
	return n
}

// form appends the form of a path to dst for origins that read it in this way, and keep parameters. It merges slashes.
func (w *way) form(dst, decoded []byte, pieces []piece, keep bool) []byte {
	var room [MaxOddSegments + 1]int
	begins := room[:0]            // of segments in dst
	slash := false                // after the last segment
	var stripped, parameters bool // skip text until a slash in the request, or in dst
	first := w.first(pieces)
	for i := first; i < len(pieces); i++ {
		p := &pieces[i]
		if stripped = stripped && (p.mark != '/' || p.escaped); stripped {
			continue
		}
		text := decoded[p.from:p.to]
		if w.strip && !keep && p.unescaped < p.to {
			text, stripped = decoded[p.from:p.unescaped], true
		}
		switch whole := i+1 == len(pieces) || w.splits(&pieces[i+1]); {
		case i > first && !w.splits(p):
			if p.mark == '/' {
				dst, parameters = appendSlash(dst), false
			} else if !parameters {
				dst = append(dst, p.mark)
			}
		case whole && w.drops(text):
			if last := len(begins) - 1; len(text) == 2 && last >= 0 {
				dst, begins = dst[:begins[last]], begins[:last]
			}
			slash = true
			continue
		default:
			begins = append(begins, len(dst))
			dst, parameters, slash = appendSlash(dst), false, false
		}
		if parameters {
			continue
		}
		if semicolon := p.semicolon - p.from; semicolon < len(text) && !keep {
			text, parameters = text[:semicolon], true
		}
		dst = append(dst, text...)
	}
	if slash || len(dst) == 0 {
		dst = appendSlash(dst)
	}
	return dst
}

// drops reports whether a segment is not part of the form.
func (w *way) drops(segment []byte) bool {
	switch string(segment) {
	case ".", "..":
		return w.reading != ReadLiteral
	case "":
		return w.reading == ReadResolved
	}
	return false
}

// appendSlash appends a slash, unless path ends in one.
func appendSlash(path []byte) []byte {
	if len(path) > 0 && path[len(path)-1] == '/' {
		return path
	}
	return append(path, '/')
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
	return cutFolded(path, prefix)
}

// cutFolded is cut for a path whose letters may have another case.
func cutFolded(path, prefix string) (rest string, ok bool) {
	for prefix != "" && path != "" {
		if c := path[0]; c < utf8.RuneSelf {
			if lowerByte(c) != prefix[0] {
				return "", false
			}
			prefix, path = prefix[1:], path[1:]
			continue
		}
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
