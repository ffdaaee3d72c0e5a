package accesslog

import (
	"bytes"
	"fmt"
	"iter"
	"slices"
	"time"
)

// recognize detects the format of a text that begins with head. If the options name a format,
// recognize checks that the text is in that format.
func (s *source) recognize(head []byte, whole bool) error {
	lines := sample(head, whole)
	refused := func(g guess) error { return &RefusedError{File: s.name, Guess: g.what, hint: g.hint} }
	format := s.log.o.Format
	if g, binary := binaryGuess(head); binary && (format == "" || len(lines) == 0) {
		return refused(g)
	}
	if len(lines) == 0 {
		s.format, s.layout = "empty", clf{}
	}
	if format != "" {
		l, name, err := formatOf(format)
		if err != nil {
			return err
		}
		s.format, s.layout = name, s.prefix(l, lines)
		if len(lines) > 0 && matches(s.layout, lines, s.log.o.Location) == 0 && entriesExpected(lines) > 0 {
			g := guessOf(head, lines)
			return &RefusedError{File: s.name, Format: name, Reason: firstReason(s.layout, lines, s.log.o.Location), Guess: g.what, hint: g.hint}
		}
		return nil
	}
	if len(lines) == 0 {
		return nil
	}
	f, l, n := detect(lines, s.log.o.Location)
	if expected := entriesExpected(lines); n*50 < expected || n == 0 && expected > 0 {
		return refused(guessOf(head, lines))
	}
	if g, ok := notHTTP(f, lines); ok {
		return refused(g)
	}
	if l == nil { // nothing but comments
		f, l = "empty", clf{}
	}
	s.format, s.layout = f, l
	s.proxied = behindProxy(f, l, lines)
	return nil
}

// sampleLines is the maximum number of lines used to detect a format.
const sampleLines = 2000

// sample returns up to sampleLines lines of head that are not blank.
func sample(head []byte, whole bool) (lines [][]byte) {
	head = bytes.TrimPrefix(head, byteOrderMark)
	for len(head) > 0 && len(lines) < sampleLines {
		line, rest, ended := bytes.Cut(head, []byte("\n"))
		if !ended && !whole && len(lines) > 0 {
			break
		}
		head = rest
		if line = bytes.TrimSuffix(line, []byte("\r")); len(bytes.TrimSpace(line)) > 0 {
			lines = append(lines, line)
		}
	}
	return lines
}

// entriesExpected counts the lines that are not comments.
func entriesExpected(lines [][]byte) int {
	return count(lines, func(line []byte) bool { return line[0] != '#' })
}

func count(lines [][]byte, match func(line []byte) bool) (n int) {
	for _, line := range lines {
		if match(line) {
			n++
		}
	}
	return n
}

// tries parses the lines that are not comments with l. For each, it yields the record and the
// result of parse. The record is valid only until the next iteration.
func tries(l layout, lines [][]byte, location *time.Location, need Fields) iter.Seq2[*record, string] {
	return func(yield func(*record, string) bool) {
		r := record{need: need}
		r.clock.location = location
		for _, line := range lines {
			if line[0] == '#' {
				if c, ok := l.(*columns); ok {
					l = c.withDirective(line)
				}
				continue
			}
			if r.reset(); !yield(&r, l.parse(line, &r)) {
				return
			}
		}
	}
}

// matches counts the lines that l can parse.
func matches(l layout, lines [][]byte, location *time.Location) (n int) {
	for _, reason := range tries(l, lines, location, 0) {
		if reason == "" {
			n++
		}
	}
	return n
}

// firstReason returns the reason why the first line is not an entry.
func firstReason(l layout, lines [][]byte, location *time.Location) string {
	for _, reason := range tries(l, lines, location, 0) {
		return reason
	}
	return ""
}

// detect returns the format of lines, and the number of lines in that format.
func detect(lines [][]byte, location *time.Location) (format string, l layout, n int) {
	if format, l, ok := declared(lines); ok {
		return format, l, matches(l, lines, location)
	}
	format, l, n = best(lines, withoutPrefix(lines), location)
	for _, cut := range cutFuncs {
		rest := make([][]byte, 0, len(lines))
		for _, line := range lines {
			if s, ok := cut(line); ok && len(s) > 0 {
				rest = append(rest, s)
			}
		}
		if len(rest)*2 < len(lines) {
			continue
		}
		if f, inner, m := best(rest, rest, location); m > n {
			format, l, n = f, prefixed{inner, cut}, m
			lines = rest
		}
	}
	if format == "combined" && !quoted(lines) {
		format = "clf"
	}
	return format, l, n
}

// tried are the formats in the order in which they are tried, the strictest first.
var tried = []string{
	"alb", "s3", "elb", "haproxy", "squid", "trace", "bunny", "ssl_request_log", "envoy", "edge", "caddy", "traefik", "cloudflare",
	"fastly", "azure-application-gateway", "aws-waf", "vercel", "json", "heroku", "logfmt", "cloudfront", "w3c", "nginx-proxy-manager", "combined",
}

// best returns the first format that parses at least half as many lines as the format that
// parses the most, since a truncated line of S3's log is still an entry of the common log
// format. plain are the lines without a prefix.
func best(lines, plain [][]byte, location *time.Location) (format string, l layout, n int) {
	layouts := make([]layout, len(tried))
	counts := make([]int, len(tried))
	for i, name := range tried {
		var err error
		if layouts[i], _, err = formatOf(name); err != nil {
			panic(err) // built-in names are valid
		}
		among := lines
		switch name {
		case "json", "logfmt":
			counts[i] = matches(layouts[i].(*objects).answered(), lines, location)
			continue
		case "combined":
			// Other logs, such as CUPS's page log, have the same time format.
			among = slices.DeleteFunc(slices.Clone(plain), func(s []byte) bool { return !bytes.Contains(s, []byte(`] "`)) })
		case "nginx-proxy-manager":
			among = plain
			own := slices.DeleteFunc(slices.Clone(plain), func(s []byte) bool { return s[0] != '[' })
			if matches(layouts[i], own, location) == 0 {
				continue // all lines it can parse are combined
			}
		}
		counts[i] = matches(layouts[i], among, location)
	}
	most := slices.Max(counts)
	for i, n := range counts {
		if n > 0 && 2*n >= most {
			return tried[i], layouts[i], n
		}
	}
	return "", nil, 0
}

// declared returns the format that a file declares in its directives.
func declared(lines [][]byte) (format string, l layout, ok bool) {
	for _, line := range lines {
		switch {
		case bytes.HasPrefix(line, []byte("#fields\t")):
			return "zeek", &columns{zeek: true, tabs: true}, true
		case len(line) > 8 && bytes.EqualFold(line[:8], []byte("#fields:")):
			if bytes.Contains(line, []byte("x-edge-")) {
				return "cloudfront", newColumns(true, cloudFrontFields), true
			}
			return "w3c", &columns{}, true
		case line[0] != '#':
			return "", nil, false
		}
	}
	return "", nil, false
}

// withoutPrefix returns the lines that have no prefix.
func withoutPrefix(lines [][]byte) (plain [][]byte) {
	return slices.DeleteFunc(slices.Clone(lines), func(line []byte) bool {
		return slices.ContainsFunc(cutFuncs, func(cut cutFunc) bool { _, ok := cut(line); return ok })
	})
}

// prefix returns l, or a layout that also removes prefixes if that parses more lines.
func (s *source) prefix(l layout, lines [][]byte) layout {
	best, most := l, matches(l, withoutPrefix(lines), s.log.o.Location)
	for _, cut := range cutFuncs {
		p := prefixed{l, cut}
		if n := matches(p, lines, s.log.o.Location); n > most {
			best, most = p, n
		}
	}
	return best
}

// quoted reports whether at least half of the lines have a referer and an agent.
func quoted(lines [][]byte) bool {
	return 2*count(lines, func(line []byte) bool { return bytes.Count(line, []byte{'"'}) >= 6 }) >= len(lines)
}

// A RefusedError reports a file that is not an access log, or not in the given format.
type RefusedError struct {
	File   string
	Format string // the given format, if any
	Reason string // why the first line is not in Format
	Guess  string // what the file looks like

	hint string
}

func (e *RefusedError) Error() string {
	if e.Format != "" {
		return fmt.Sprintf("accesslog: %s is not in the format %s (%s): it looks like %s", e.File, e.Format, e.Reason, e.Guess)
	}
	return fmt.Sprintf("accesslog: %s is not an access log: it looks like %s", e.File, e.Guess)
}

// Hint says what to do about it.
func (e *RefusedError) Hint() string { return e.hint }
