package accesslog

import (
	"bytes"
	"fmt"
	"net/netip"
	"regexp"
	"slices"
	"strings"
	"time"
)

// recognize detects the format of a file from head, its beginning, or, if the options name a format, checks that head
// is in that format. whole is set if head is the entire file.
func (s *source) recognize(head []byte, whole bool) error {
	lines := sample(head, whole)
	given, problem := s.log.o.Format, s.Name+" is not an access log"
	refused := func(g guess) error { return &RefusedError{g.what, problem, g.hint} }
	if g, binary := binaryGuess(head); binary && (given == "" || len(lines) == 0) {
		return refused(g)
	}
	t := trial{lines, s.log.o.Location}
	n, expected := 0, count(lines, func(line []byte) bool { return line[0] != '#' })
	if given == "" {
		s.Format, s.layout, n = t.detect()
		n *= 50 // 2% of the lines are enough: the others may come from other programs
	} else {
		l, name, err := formatOf(given)
		if err != nil {
			return err
		}
		s.Format, s.layout = name, l
		var reason string
		n, reason = t.parsed(l)
		if rest := t.withoutPrefixes(); 2*len(rest.lines) >= len(lines) {
			if m, inRest := rest.parsed(l); m >= n {
				s.layout, n, reason = prefixedLayout{l}, m, inRest
			}
		}
		problem = fmt.Sprintf("%s is not in the format %s (%s)", s.Name, name, reason)
	}
	if n < expected && (given == "" || n == 0) {
		if format, _, detected := t.detect(); detected > 0 {
			return refused(guess{format, "leave out the format, or describe the one that the lines have"})
		}
		return refused(guessOf(head, lines))
	}
	if s.layout == nil { // nothing but comments
		s.Format, s.layout = "empty", formats()[0].layout
	}
	s.Proxied = t.behindProxy(s.layout)
	return nil
}

// sampleLines is the maximum number of lines used to detect a format.
const sampleLines = 2000

// sample returns the first non-blank lines of head, at most sampleLines. whole is set if head is the entire file.
func sample(head []byte, whole bool) (lines [][]byte) {
	head = withoutColors(head)
	for len(head) > 0 && len(lines) < sampleLines {
		line, rest, ended := bytes.Cut(head, []byte("\n"))
		if !ended && !whole && len(lines) > 0 {
			break
		}
		head = rest
		if line = withoutMarks(line); len(bytes.TrimSpace(line)) > 0 {
			lines = append(lines, line)
		}
	}
	return lines
}

func count(lines [][]byte, match func(line []byte) bool) (n int) {
	for _, line := range lines {
		if match(line) {
			n++
		}
	}
	return n
}

// A trial tries formats on the first lines of a file.
type trial struct {
	lines    [][]byte
	location *time.Location
}

// parse parses each line that is not a comment with l, and calls f with the line and the result. The record is valid
// only during the call.
func (t trial) parse(l layout, need Fields, f func(line []byte, r *record, reason string)) {
	r := record{need: need}
	r.clock.location = t.location
	for _, line := range t.lines {
		if line[0] != '#' {
			r.reset()
			f(line, &r, l.parse(line, &r))
		} else if c, ok := l.(*columns); ok {
			l = c.withDirective(line)
		}
	}
}

// parsed returns the number of lines that l can parse, and why it cannot parse the first one, or "" if it can.
func (t trial) parsed(l layout) (n int, first string) {
	seen := 0
	t.parse(l, 0, func(_ []byte, _ *record, reason string) {
		if seen++; seen == 1 {
			first = reason
		}
		if reason == "" {
			n++
		}
	})
	return n, first
}

// matches returns the number of lines that l parses into a plausible request or into a request without a client. It
// returns 0 if more than a fifth of the requests with a client are implausible: such lines only resemble those of l.
func (t trial) matches(l layout) (n int) {
	parsed, unnamed, latest := 0, 0, time.Now().Add(48*time.Hour).UnixMicro()
	o, ok := l.(*objects)
	// Applications also log messages with a method and a path. Only requests have a status, too.
	messages := ok && o.names["mark"] == nil
	t.parse(l, Method|Status, func(line []byte, r *record, reason string) {
		if reason != "" || messages && len(r.values[status].text) == 0 {
			return
		}
		switch parsed++; {
		case missing(r.client):
			unnamed++
		case r.time <= latest && plausible(l, line, r):
			n++
		}
	})
	if n == 0 || n*5 < (parsed-unnamed)*4 {
		return 0
	}
	return n + unnamed
}

// earliest is the beginning of 1995, the year of the first access logs.
const earliest = 788918400 * second

// requestText matches a request in a line of any format.
var requestText = regexp.MustCompile(`\b(GET|POST|HEAD|PUT|DELETE|OPTIONS|PATCH) (/|https?://)`)

// statusText matches a status and a number of bytes after a request.
var statusText = regexp.MustCompile(`" [1-5]\d\d (\d+|-)( |$)`)

// plausible reports whether r, the result of parsing line with l, is complete: it has everything that the format
// requires, and the request and the status that line visibly contains.
func plausible(l layout, line []byte, r *record) bool {
	if l, ok := l.(prefixedLayout); ok {
		line, _ = cutPrefix(line)
		return plausible(l.layout, line, r)
	}
	p, ok := l.(*pattern)
	// named is set if the format accepts any client name, answered if its lines have a status.
	isNamed := func(p part) bool { return p.kind == client && p.name == "client" }
	named, answered := ok && slices.ContainsFunc(p.parts, isNamed), !ok || has(p.uses, status)
	if r.time < earliest && !named { // a trace may begin at 0
		return false
	}
	code := r.values[status].text
	n, numeric := number(code)
	switch l.(type) {
	case *objects:
	case *columns:
		if ftpCommand.Match(r.values[method].text) || !isClient(r.client, line) {
			return false
		}
	default: // regular expressions come last, because they are slowest
		if !named && !isClient(r.client, line) ||
			answered && !(numeric && (n == 0 || n >= 100 && n < 1000) || len(code) > 0 && code[0] == '-') ||
			!answered && !named && statusText.Match(line) {
			return false
		}
	}
	return len(r.values[method].text) > 0 || !requestText.Match(line)
}

// isClient reports whether name can be the client of line: an address, or a host name if no address precedes the
// request.
func isClient(name, line []byte) bool {
	if addressOf(name).IsValid() {
		return true
	}
	before, _, _ := bytes.Cut(line, []byte{'"'})
	for word := range bytes.FieldsSeq(before) {
		if addressOf(firstOf(word)).IsValid() {
			return false
		}
	}
	return isHostName(name)
}

// isHostName reports whether s can be a host name.
func isHostName(s []byte) bool {
	isLetter := func(c rune) bool { return c|0x20 >= 'a' && c|0x20 <= 'z' }
	isOther := func(c rune) bool { return !isLetter(c) && !strings.ContainsRune("0123456789.-_", c) }
	return bytes.ContainsFunc(s, isLetter) && !bytes.ContainsFunc(s, isOther)
}

// isFullName reports whether s is an address, or a host name with a domain or a port.
func isFullName(s []byte) bool {
	name := withoutPort(s)
	last := bytes.LastIndexByte(name, '.') + 1
	inDomain := last > 0 && last < len(name) && letters(name[last:last+1])
	return isHostName(name) && (inDomain || len(name) < len(s)) || addressOf(name).IsValid()
}

// detect returns the format of the lines, and the number of lines in that format.
func (t trial) detect() (format string, l layout, n int) {
	format, l, n = t.best()
	if rest := t.withoutPrefixes(); 2*len(rest.lines) >= len(t.lines) {
		if f, inner, m := rest.best(); m > 0 && m >= n {
			format, l, n, t = f, prefixedLayout{inner}, m, rest
		}
	}
	extended := func(line []byte) bool { return bytes.Count(line, []byte{'"'}) >= 6 }
	if format == "clf" && 2*count(t.lines, extended) >= len(t.lines) {
		format = "combined" // most lines have a referer and an agent
	}
	return format, l, n
}

// withoutPrefixes returns a trial of the lines that have prefixes, with the prefixes removed.
func (t trial) withoutPrefixes() trial {
	rest := trial{location: t.location}
	for _, line := range t.lines {
		if s, ok := cutPrefix(line); ok && len(s) > 0 {
			rest.lines = append(rest.lines, s)
		}
	}
	return rest
}

// best returns the strictest format that parses at least half as many lines as any other: the last one, since formats
// are ordered from lenient to strict. A lenient format may parse a few more lines: a truncated line of S3's log is
// still an entry of the common log format.
func (t trial) best() (format string, l layout, n int) {
	counts := make([]int, len(formats()))
	managed := func(line []byte) bool { return bytes.Contains(line, []byte(" [Client ")) }
	declared := slices.ContainsFunc(t.lines, namesColumns)
	for i, f := range formats() {
		if _, ok := f.layout.(*columns); declared && !ok {
			continue
		}
		// Combined has the layout of clf. Nginx Proxy Manager's log needs a line of its own kind, since it may also
		// have combined lines.
		if f.Name != "combined" && (f.Name != "nginx-proxy-manager" || count(t.lines, managed) > 0) {
			counts[i] = t.matches(f.layout)
		}
	}
	most := slices.Max(counts)
	for i, f := range slices.Backward(formats()) {
		if n := counts[i]; n > 0 && 2*n >= most {
			return f.Name, f.layout, n
		}
	}
	return "", nil, 0
}

// A RefusedError reports a file that is not an access log, or not one in the given format.
type RefusedError struct {
	Guess string // what the file looks like

	problem, hint string
}

func (e *RefusedError) Error() string {
	return fmt.Sprintf("accesslog: %s: it looks like %s", e.problem, e.Guess)
}

// Hint returns advice for the user.
func (e *RefusedError) Hint() string { return e.hint }

// behindProxy reports whether the clients in the log seem to be proxies. If they are, most lines have a public
// address elsewhere, as in X-Forwarded-For. In addition, nearly all clients have private addresses, or there are at
// least four times as many of the other addresses as clients.
func (t trial) behindProxy(l layout) bool {
	entries, private := 0, 0
	clients, others := map[string]int{}, map[string]int{}
	t.parse(l, 0, func(line []byte, r *record, reason string) {
		if reason != "" {
			return
		}
		entries++
		clients[string(r.client)]++
		if isPrivate(addressOf(r.client)) {
			private++
		}
		for word := range bytes.FieldsFuncSeq(line, func(c rune) bool { return strings.ContainsRune(" \t\",={}|+", c) }) {
			if a := addressOf(word); a.IsValid() && !isPrivate(a) && !bytes.Equal(word, r.client) {
				others[string(word)]++
				break
			}
		}
	})
	listed := 0
	for client, n := range others {
		if clients[client] == 0 {
			listed += n
		}
	}
	return listed*2 >= entries && entries > 0 && (private*20 >= entries*19 || len(others) >= 4*len(clients))
}

var carrierGrade = netip.MustParsePrefix("100.64.0.0/10")

// isPrivate reports whether a cannot be a client on the Internet.
func isPrivate(a netip.Addr) bool {
	return a.IsPrivate() || a.IsLoopback() || a.IsLinkLocalUnicast() || carrierGrade.Contains(a)
}
