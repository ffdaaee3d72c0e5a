package accesslog

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// A guess says what a file that is not an access log may be, and what to do about it.
type guess struct{ what, hint string }

const nameFormat = "if it is an access log, name its format, or describe it in nginx's notation, as in: " +
	`--pattern '$remote_addr - $remote_user [$time_local] "$request" $status'`

// A look is the guess for text that matches a regular expression.
type look struct {
	text *regexp.Regexp
	guess
}

func looks(text, what, hint string) look { return look{regexp.MustCompile(text), guess{what, hint}} }

// binaries are guesses by the first bytes of files that are not text. In the expressions, \x{FFFD} matches a byte
// that is not valid UTF-8.
var binaries = []look{
	looks(`^\x{FFFD}7zXZ`, "data compressed by xz", "decompress it first, as in: xz -dc FILE | …"),
	looks(`^\x04"M\x18`, "data compressed by lz4", "decompress it first, as in: lz4 -dc FILE | …"),
	looks(`^PK\x03\x04`, "a zip archive", "unpack it first, as in: unzip -p FILE | …"),
	looks(`^\x{FFFD}\x{FFFD}`, "text in UTF-16", "convert it, as in: iconv -f UTF-16 -t UTF-8 FILE | …"),
	// The first header without its NULs: name, numbers, type and magic.
	looks(`^[^\n]{1,100}[0-7]{6,} ?[0-7]{6,} ?[^\n]{0,120}[0-7 ][0-9gx]ustar`, "a tar archive", "unpack it first, as in: tar -xOf FILE | …"),
}

// binaryGuess guesses what a binary file is.
func binaryGuess(head []byte) (guess, bool) {
	for _, b := range binaries {
		if b.text.Match(head) {
			return b.guess, true
		}
	}
	first := head[:min(len(head), 4096)]
	if len(control.FindAllIndex(first, -1))*20 > len(first) {
		return guess{"binary data", "only text can be read, uncompressed or compressed by gzip, zstd or bzip2"}, true
	}
	return guess{}, false
}

const (
	useAccessLog = "use the server's access log"
	onlyHTTP     = "only logs of HTTP requests can be read"

	// ftpCommands are methods in logs of FTP, which IIS writes like those of HTTP.
	ftpCommands = `(\[\d+\]\w+|USER|PASS|QUIT|RETR|STOR|CWD|PASV|EPSV|PORT|LIST|TYPE|ControlChannel(Opened|Closed)|DataChannel(Opened|Closed))`
)

var (
	ftpCommand = regexp.MustCompile(`^` + ftpCommands + `$`)
	control    = regexp.MustCompile(`[\x00-\x08\x0b\x0c\x0e-\x1f]`)

	// columnsText matches a request in columns.
	columnsText = regexp.MustCompile(`^\d{4}-\d\d-\d\d[ \t]\d\d:\d\d:\d\d[ \t].*\b(GET|POST|HEAD|PUT|DELETE|OPTIONS)[ \t]+/`)
)

// otherLogs are guesses by the lines of logs in unsupported formats. The last two are about the first line of a file.
var otherLogs = []look{
	looks(`^(\d{4}/\d\d/\d\d \d\d:\d\d:\d\d \[\w+\] \d+#\d+:|\[\w{3} \w{3} [ \d]\d [\d:.]+ \d{4}\] \[\S*\w+\]|`+
		`\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d+ \[(NOTICE|INFO|WARN|ERROR|DEBUG)\])`, "a server's error log", useAccessLog),
	looks(`^<(Event[ >]|\?xml|!DOCTYPE|html)`, "XML or HTML", useAccessLog+", in the W3C format if it is IIS"),
	looks(`(query: \S+ IN \w+|named\[\d+\]|query\[\w+\] |dnsmasq\[|unbound\[|"\w+ IN \S+ (udp|tcp) )`, "a DNS server's log", onlyHTTP),
	looks(`^\w{3} \w{3} [ \d]\d [\d:]{8} \d{4} (\d+ \S+ \d+ \S+ [ab] \S+ [oid] |\[pid \d+\])|^[\d:-]{8,} .* `+ftpCommands+` `,
		"an FTP server's log", onlyHTTP),
	looks(`(\bunix:\d*|^-?)( - \S+)? \[\d\d/\w{3}/\d{4}:[\d:.]+`, "a log of clients on a UNIX socket, which have no address",
		"log X-Forwarded-For, in HAProxy with 'http-request capture', and describe the lines: see --pattern of 'edge replay'"),
	looks(`\S+:\d+ \[\d\d/\w{3}/\d{4}:[\d:.]+\] \S+ \S+/\S+ -?\d+/-?\d+/`, "HAProxy's TCP log",
		"it records connections, not requests: set 'option httplog' in HAProxy"),
	looks(`^(__\w+|_[A-Z_]+|SYSLOG_\w+|PRIORITY|MESSAGE)=`, "an export of systemd's journal",
		"write only the messages, as in: journalctl -u nginx -o cat | …"),
	looks(`(?i)^\w+=("[^"]*"|\S+) .*\b(level|lvl|msg)=`, "an application's log in logfmt",
		useAccessLog+", or name the fields of requests, as in: --format logfmt:time=at,client=ip,method=verb,path=url,status=code"),
	looks(`^\s*\{\s*$`, "multi-line JSON", "put each object on its own line, as in: jq -c . FILE | …"),
	looks(`^\s*\[\s*(\{|$)`, "a JSON array", "put each object on its own line, as in: jq -c '.[]' FILE | …"),
}

// guessOf guesses what a file in no known format is.
func guessOf(head []byte, lines [][]byte) guess {
	if g, binary := binaryGuess(head); binary {
		return g
	}
	for _, text := range append([][]byte{bytes.TrimPrefix(head, byteOrderMark)}, lines[:min(10, len(lines))]...) {
		if jq := unwrapped(text, ""); jq != "" {
			return guess{"log lines wrapped in JSON", "unwrap them, as in: jq " + jq + " FILE | …"}
		}
	}
	// Choose the guess that matches the most lines.
	counts := make([]int, len(otherLogs))
	for _, line := range lines {
		if i := slices.IndexFunc(otherLogs, func(l look) bool { return l.text.Match(line) }); i >= 0 {
			counts[i]++
		}
	}
	most := func(match func(line []byte) bool) bool { return 2*count(lines, match) >= len(lines) }
	best := slices.Index(counts, slices.Max(counts))
	fields := slices.IndexFunc(lines, namesColumns)
	zeek := fields >= 0 && lines[fields][7] == '\t'
	w3c := &columns{names: described(w3cNames)}
	switch {
	case fields >= 0 && !zeek && !w3c.after(bytes.Join(lines, newline)).complete:
		return guess{"a W3C log without the client's address or times",
			"log c-ip, date and time, or name the client's field, as in: --format 'w3c:client=cs(X-Forwarded-For)'"}
	case counts[best]*3 >= len(lines) || counts[best] > 0 && best >= len(otherLogs)-2:
		return otherLogs[best].guess
	case zeek:
		return guess{"a Zeek log other than http.log", "use Zeek's http.log"}
	case fields >= 0:
		return guess{"a W3C log whose lines do not match #Fields", nameFormat}
	case most(columnsText.Match):
		return guess{"a W3C log, such as IIS's, without #Fields",
			"name its columns, as in: --fields 'date time s-ip cs-method cs-uri-stem cs-uri-query c-ip sc-status'"}
	case most(func(line []byte) bool { return line[0] == '{' && line[len(line)-1] == '}' }):
		return guess{"JSON objects without known names for time, client, request and status",
			"name the fields, as in: --format json:time=at,client=ip,method=verb,path=url,status=code"}
	case most(requestText.Match):
		return guess{"requests in an unknown format", nameFormat}
	case most(func(line []byte) bool { _, ok := cutPrefix(line); return ok }):
		return guess{"a system log (syslog)", "use the web server's own access log"}
	}
	return guess{"text in an unknown format", nameFormat}
}

// maxNesting is the maximum depth at which unwrapped searches for an entry.
const maxNesting = 8

// unwrapped returns the arguments with which jq prints the log lines inside a JSON value, or "" if it contains none.
// Log lines are strings or objects. text begins with the value and may be truncated; path is the value's path in jq's
// notation.
func unwrapped(text []byte, path string) string {
	if strings.Count(path, ".")+strings.Count(path, "[]") > maxNesting {
		return ""
	}
	isEntry := func(line []byte) bool {
		if len(bytes.TrimSpace(line)) == 0 {
			return false
		}
		_, _, n := trial{[][]byte{line}, time.UTC}.detect()
		return n > 0
	}
	d := json.NewDecoder(bytes.NewReader(text))
	var whole json.RawMessage
	var line string
	var compact bytes.Buffer
	if d.Decode(&whole) == nil {
		switch {
		case json.Unmarshal(whole, &line) == nil && isEntry(bytes.TrimRight([]byte(line), "\n")):
			if strings.HasSuffix(line, "\n") {
				return "-rj '" + cmp.Or(path, ".") + "'"
			}
			return "-r '" + cmp.Or(path, ".") + "'"
		case json.Compact(&compact, whole) == nil && whole[0] == '{' && isEntry(compact.Bytes()):
			return "-c '" + cmp.Or(path, ".") + "'"
		}
	}
	d = json.NewDecoder(bytes.NewReader(text))
	begin, _ := d.Token()
	if begin != json.Delim('{') && begin != json.Delim('[') {
		return ""
	}
	for d.More() {
		inner := cmp.Or(path, ".") + "[]"
		if begin == json.Delim('{') {
			name, err := d.Token()
			if err != nil {
				return ""
			}
			if inner = path + "." + fmt.Sprint(name); !jqName.MatchString(fmt.Sprint(name)) {
				inner = path + "." + strconv.Quote(fmt.Sprint(name))
			}
		}
		member := bytes.TrimLeft(text[d.InputOffset():], ":, \t\r\n")
		if found := unwrapped(member, inner); found != "" || begin != json.Delim('{') || d.Decode(&whole) != nil {
			return found
		}
	}
	return ""
}

var jqName = regexp.MustCompile(`^[A-Za-z_]\w*$`)
