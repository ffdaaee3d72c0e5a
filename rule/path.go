package rule

import (
	"bytes"
	"encoding/binary"
	"math"
	"strings"
	"unsafe"
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

// ReadingNames returns the names of all readings, in their order.
func ReadingNames() []string { return readingNames[:] }

// String returns the reading as spelled in rules files.
func (p PathReading) String() string { return readingNames[p] }

// Bounds of a path, which take time to read. A request with more is malformed. Those of a path that origins may read in
// different ways are divided by the number of ways.
const (
	MaxPath        = 8192 // bytes; more than nginx reads of a request line by default
	MaxOddPath     = 4096
	MaxOddSegments = 80 // slashes and backslashes, encoded ones included
)

// A target is the path of a request, with the forms in which origins read it.
type target struct {
	sent    string // percent-encoded, as received
	decoded string // decoded once, dot segments and doubled slashes resolved; "" until it is needed

	bad bool // sent has a byte that is in no path, or an incomplete escape, which origins read in different ways

	// odd reports whether origins may read the path in different ways. If false, all of them read it as decoded,
	// except for case and a trailing slash.
	odd   bool
	kinds uint8 // what makes the path odd

	forms [2]forms // of an odd path, without and with parameters; made when needed
}

// forms are the forms in which an odd path is read: none, the first, or all of them.
type forms struct {
	text string // what precedes the first, and those that are made
	end  [len(ways) + 1]uint16
}

// Bytes of paths that are not ordinary.
const (
	structural = 1 + iota // may separate segments, or change how they are read
	invalid               // in no path and no query: blanks, controls, and # since some origins end the path there
)

var special = func() (s [256]uint8) {
	for _, c := range `/\%;` {
		s[c] = structural
	}
	for c := range s {
		if c <= ' ' || c == '#' || c == 0x7f {
			s[c] = invalid
		}
	}
	return s
}()

// parameters returns the number of bytes at the beginning of s that mean nothing after an unescaped semicolon.
func parameters(s string) (n int) {
	for n < len(s) && (special[s[n]] == 0 || s[n] == ';') {
		n++
	}
	return n
}

// areOrdinary reports whether none of eight bytes is special. It may return false for ordinary bytes, too.
func areOrdinary(b [8]byte) bool {
	const octets = 0x0101010101010101 // times a byte: eight of them
	w := binary.LittleEndian.Uint64(b[:])
	less, semicolon, backslash, del := (w-'0'*octets)&^w, w^';'*octets, w^'\\'*octets, w^0x7f*octets
	return (less|(semicolon-octets)&^semicolon|(backslash-octets)&^backslash|(del-octets)&^del)&(0x80*octets) == 0
}

// What makes a path odd.
const (
	encodedSlash uint8 = 1 << iota // only beside others
	emptySegment
	dotSegment
	parameter
	backslash
)

// set sets t to path, visiting each byte once. It returns false if the path, or all forms of an odd one, are too long.
func (t *target) set(path string) bool {
	if len(path) > MaxPath {
		*t = target{sent: path, decoded: path}
		return false
	}
	segments, begin := 0, 0 // begin: where the current segment begins
	kinds, escaped, bad := uint8(0), false, false
	for i := 0; i < len(path) && (segments < MaxOddSegments || kinds <= encodedSlash); i++ {
		if i%8 == 0 && i+8 <= len(path) && areOrdinary([8]byte([]byte(path[i:i+8]))) {
			i += 7
			continue
		}
		end, c, encoded := i, path[i], false
		if special[c] == 0 {
			continue
		}
		if c == '%' {
			if c, encoded = unescape(path[i:]); !encoded {
				bad = true
				continue
			}
			i, escaped = i+2, true
			if special[c] != structural {
				continue
			}
		}
		bad = bad || !encoded && special[c] == invalid
		switch c {
		case '/', '\\':
			segments++
			if end > 0 && (begin == end || path[begin] <= '.') { // otherwise it is neither a dot nor escaped
				kinds |= dropped(path[begin:end])
			}
			if c == '\\' {
				kinds |= backslash
			} else if encoded {
				kinds |= encodedSlash
			}
			begin = i + 1
		case ';':
			kinds |= parameter
			i += parameters(path[i+1:])
		}
	}
	kinds |= dropped(path[begin:]) &^ emptySegment
	odd := (kinds > encodedSlash || !strings.HasPrefix(path, "/")) && path != "*" // OPTIONS *
	*t = target{sent: path, decoded: path, bad: bad, odd: odd, kinds: kinds}
	if odd || escaped {
		t.decoded = ""
	}
	if odd {
		n := t.count()
		t.odd = segments*n <= MaxOddSegments && len(path)*n <= MaxOddPath // else nothing reads its forms
	}
	return t.odd == odd
}

// dropped returns the kind of a segment that is not part of forms, or 0. segment may be percent-encoded.
func dropped(segment string) uint8 {
	if segment == "" {
		return emptySegment
	}
	for dots := 0; segment[0] == '.' || segment[0] == '%'; dots++ {
		var c byte
		if c, segment = decodeByte(segment, false); c != '.' || dots == 2 {
			return 0
		} else if segment == "" {
			return dotSegment
		}
	}
	return 0
}

// path returns the path, decoded once, without dot segments and doubled slashes.
func (t *target) path() string {
	if t.decoded == "" && t.odd {
		t.decoded = t.form(0, true, true)
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

	differs uint8 // what a path must contain to have another form than in the first way
}

var ways = [...]way{
	{reading: ReadResolved},
	{reading: ReadResolved, backslash: true, differs: backslash},
	{reading: ReadResolved, backslash: true, strip: true, differs: backslash | parameter},
	{reading: ReadLiteral, strip: true, differs: backslash | parameter | dotSegment},
	{reading: ReadURL, differs: backslash | encodedSlash | emptySegment},
}

// reads reports whether the path may have another form in way i than in the first way, or this is the first.
func (t *target) reads(i int) bool { return i == 0 || ways[i].differs&t.kinds != 0 }

// count returns the number of ways in which the path may have another form.
func (t *target) count() (n int) {
	for i := range ways {
		if t.reads(i) {
			n++
		}
	}
	return n
}

// find reports whether wanted returns true for a form in which origins with the syntax s may read the path. It stops at
// the first one. Letters keep their case. For alone, see form.
func (t *target) find(s PathSyntax, alone bool, wanted func(form string) bool) bool {
	if !t.odd {
		return wanted(trimSlash(t.path(), s))
	}
	for i := range ways {
		differs := t.reads(i)
		if s.Reading != ways[i].reading && (s.Reading != ReadAny || !differs) {
			continue // they do not read paths in this way, or the form is that of the first way
		}
		if !differs {
			i = 0
		}
		if wanted(trimSlash(t.form(i, s.ExactParameters, alone), s)) {
			return true
		}
	}
	return false
}

// form returns the form of an odd path in way i. keep is set if origins keep parameters, and alone if the first form is
// probably the only one needed: alone, it costs half as much as all of them.
func (t *target) form(i int, keep, alone bool) string {
	f := &t.forms[0]
	if keep || t.kinds&parameter == 0 {
		f = &t.forms[1]
	}
	if f.end[i+1] == 0 {
		needed := ways[:]
		if alone && i == 0 {
			needed = ways[:1]
		}
		f.make(t, needed, keep)
	}
	return f.text[f.end[i]:f.end[i+1]]
}

// make sets the forms of an odd path in these ways. keep is set if origins keep parameters.
func (f *forms) make(t *target, ways []way, keep bool) {
	var pieces [MaxOddSegments/2 + 1]piece
	b := make([]byte, 0, (1+min(len(ways), t.count()))*(len(t.sent)+1)) // each form may begin with a slash of its own
	decoded, split := split(b[:len(t.sent)], pieces[:0], t.sent)
	b = b[:len(decoded)]
	f.end[0] = uint16(len(b))
	for i := range ways {
		if t.reads(i) {
			b = append(b, ways[i].form(b[len(b):], decoded, split, keep)...)
		}
		f.end[i+1] = uint16(len(b))
	}
	f.text = unsafe.String(unsafe.SliceData(b), len(b)) // BenchmarkOddPath; nothing changes b any more
}

// A piece is what a path has between two slashes or backslashes.
type piece struct {
	from, to  uint16 // in the decoded path
	unescaped uint16 // its first semicolon that was not escaped, or at least to
	semicolon uint16 // its first semicolon, or at least to
	mark      byte   // what precedes it: a slash, a backslash, or 0 at the beginning of the path
	escaped   bool   // mark was
}

// split decodes path to decoded, which has room, and appends its pieces to pieces.
func split(decoded []byte, pieces []piece, path string) ([]byte, []piece) {
	const none = math.MaxUint16
	p := piece{unescaped: none, semicolon: none}
	at := 0
	for i := 0; i < len(path); i++ {
		if i%8 == 0 && i+8 <= len(path) && areOrdinary([8]byte([]byte(path[i:i+8]))) {
			at += copy(decoded[at:at+8], path[i:i+8])
			i += 7
			continue
		}
		c, escaped := path[i], false
		if c == '%' {
			if c, escaped = unescape(path[i:]); escaped {
				i += 2
			}
		}
		decoded[at] = c
		switch c {
		case '/', '\\':
			p.to = uint16(at)
			pieces = append(pieces, p)
			p = piece{from: uint16(at + 1), unescaped: none, semicolon: none, mark: c, escaped: escaped}
		case ';':
			p.semicolon = min(p.semicolon, uint16(at))
			if !escaped {
				p.unescaped = min(p.unescaped, uint16(at))
				n := copy(decoded[at+1:], path[i+1:i+1+parameters(path[i+1:])]) // further ones change nothing
				i, at = i+n, at+n
			}
		}
		at++
	}
	p.to = uint16(at)
	return decoded[:at], append(pieces, p)
}

// isDropped reports whether a segment is empty or a dot segment.
func isDropped(segment []byte) bool {
	return len(segment) <= 2 && string(segment) == ".."[:len(segment)]
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
	var room [MaxOddSegments/2 + 1]uint16
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
			begins = append(begins, uint16(len(dst)))
			dst, parameters, slash = appendSlash(dst), false, false
		}
		if parameters {
			continue
		}
		if semicolon := int(p.semicolon) - int(p.from); semicolon < len(text) && !keep {
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
	return w.reading != ReadLiteral && isDropped(segment) && (w.reading == ReadResolved || len(segment) > 0)
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
	rest, ok := strings.CutPrefix(path, prefix)
	if !ok && !s.ExactCase {
		rest, ok = cutFolded(path, prefix)
	}
	if ok && (rest == "" || wildcard && (!segment || rest[0] == '/')) {
		return true
	}
	return strings.IndexByte(prefix, '*') >= 0 && s.resembles(pattern, path)
}

// resembles is names for patterns with a * before their end.
func (s PathSyntax) resembles(pattern, path string) bool {
	var room [256]byte
	form := room[:0]
	if s.ExactCase {
		form = append(form, path...)
	} else {
		form = appendFolded(form, path)
	}
	if pattern[0] == '*' {
		form = form[bytes.LastIndexByte(form, '/')+1:]
	}
	segment, ok := strings.CutSuffix(pattern, "/*")
	return like(pattern, form, "/") || ok && !s.ExactSlash && like(segment, form, "/")
}
