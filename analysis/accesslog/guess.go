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

// A guess describes what a file that is not an access log may be, and hints at what to do.
type guess struct{ what, hint string }

const nameFormat = "if it is an access log, name its format, or describe it in nginx's notation, as in: " +
	`--pattern '$remote_addr - $remote_user [$time_local] "$request" $status'`

// binaryGuess guesses what a binary file is.
func binaryGuess(head []byte) (guess, bool) {
	for _, m := range []struct{ magic, what, hint string }{
		{"\xfd7zXZ", "data compressed by xz", "decompress it first, as in: xz -dc FILE | …"},
		{"\x04\x22\x4d\x18", "data compressed by lz4", "decompress it first, as in: lz4 -dc FILE | …"},
		{"PK\x03\x04", "a zip archive", "unpack it first, as in: unzip -p FILE | …"},
		{"\xff\xfe", "text in UTF-16", "convert it, as in: iconv -f UTF-16 -t UTF-8 FILE | …"},
		{"\xfe\xff", "text in UTF-16", "convert it, as in: iconv -f UTF-16 -t UTF-8 FILE | …"},
	} {
		if bytes.HasPrefix(head, []byte(m.magic)) {
			return guess{m.what, m.hint}, true
		}
	}
	if tarHeader.Match(head) {
		return guess{"a tar archive", "unpack it first, as in: tar -xOf FILE | …"}, true
	}
	first := head[:min(len(head), 4096)]
	controls := 0
	for _, c := range first {
		if c < ' ' && c != '\t' && c != '\n' && c != '\r' {
			controls++
		}
	}
	if controls*20 > len(first) {
		return guess{"binary data", "only text can be read, uncompressed or compressed by gzip, zstd or bzip2"}, true
	}
	return guess{}, false
}

// tarHeader matches the first header of a tar archive without its NULs: name, numbers, type and magic.
var tarHeader = regexp.MustCompile(`^[^\n]{1,100}[0-7]{6,} ?[0-7]{6,} ?[^\n]{0,120}[0-7 ][0-9gx]ustar`)

// ftpCommand matches a method that is a command of FTP: IIS logs FTP like HTTP. ftpLine matches its lines.
const ftpCommands = `(\[\d+\]\w+|USER|PASS|QUIT|RETR|STOR|CWD|PASV|EPSV|PORT|LIST|TYPE|ControlChannel(Opened|Closed)|DataChannel(Opened|Closed))`

var (
	ftpCommand = regexp.MustCompile(`^` + ftpCommands + `$`)
	ftpLine    = regexp.MustCompile(` ` + ftpCommands + ` `)
)

// textGuesses describe lines of other logs. They are not used for a log in a known format.
var textGuesses = []struct {
	line       *regexp.Regexp
	what, hint string
}{
	{regexp.MustCompile(`^\d{4}/\d\d/\d\d \d\d:\d\d:\d\d \[\w+\] \d+#\d+:`), "nginx's error log", "use the access log instead: see access_log in nginx's configuration"},
	{regexp.MustCompile(`^\[\w{3} \w{3} [ \d]\d [\d:.]+ \d{4}\] \[\S*\w+\]`), "Apache's error log", "use the access log instead: see CustomLog in Apache's configuration"},
	{regexp.MustCompile(`^\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d+ \[(NOTICE|INFO|WARN|ERROR|DEBUG)\]`), "an error log, such as LiteSpeed's", "use the server's access log"},
	{regexp.MustCompile(`^<Event[ >]`), "Windows events as XML", "use the log files that IIS writes in the W3C format"},
	{regexp.MustCompile(`^<(\?xml|!DOCTYPE|html)`), "XML or HTML", "use the server's access log"},
	{regexp.MustCompile(`(query: \S+ IN \w+|named\[\d+\]|query\[\w+\] |dnsmasq\[|unbound\[|"\w+ IN \S+ (udp|tcp) )`), "a DNS server's log", "only logs of HTTP requests can be read"},
	{regexp.MustCompile(`^\w{3} \w{3} [ \d]\d [\d:]{8} \d{4} (\d+ \S+ \d+ \S+ [ab] \S+ [oid] |\[pid \d+\])`), "an FTP server's log", "only logs of HTTP requests can be read"},
	{regexp.MustCompile(`\bunix:\d+ \[\d\d/\w{3}/\d{4}:[\d:.]+\] \S+ \S+/\S+ `), "HAProxy's log of clients on a UNIX socket, which have no address",
		"log X-Forwarded-For with 'http-request capture' in HAProxy, and describe the lines: see --pattern of 'edge replay'"},
	{regexp.MustCompile(`\S+:\d+ \[\d\d/\w{3}/\d{4}:[\d:.]+\] \S+ \S+/\S+ -?\d+/-?\d+/`), "HAProxy's TCP log", "it has connections, not requests: set 'option httplog' in HAProxy"},
	{regexp.MustCompile(`^(__\w+|_[A-Z_]+|SYSLOG_\w+|PRIORITY|MESSAGE)=`), "an export of systemd's journal", "write the messages alone, as in: journalctl -u nginx -o cat | …"},
	{regexp.MustCompile(`^\d{4}-\d\d-\d\d[ \t]\d\d:\d\d:\d\d[ \t].*\b(GET|POST|HEAD|PUT|DELETE|OPTIONS)[ \t]+/`), "a W3C log, such as IIS's, without #Fields",
		"name its columns, as in: --fields 'date time s-ip cs-method cs-uri-stem cs-uri-query c-ip sc-status'"},
	{regexp.MustCompile(`(?i)^\w+=("[^"]*"|\S+) .*\b(level|lvl|msg)=`), "an application's log in logfmt", "use the server's access log"},
	{regexp.MustCompile(`^\s*\{\s*$`), "multi-line JSON", "put each object on its own line, as in: jq -c . FILE | …"},
	{regexp.MustCompile(`^\s*\[\s*(\{|$)`), "a JSON array", "put each object on its own line, as in: jq -c '.[]' FILE | …"},
}

// guessOf guesses what a file in no known format is.
func guessOf(head []byte, lines [][]byte) guess {
	if g, binary := binaryGuess(head); binary {
		return g
	}
	if g, ok := declaredGuess(lines); ok {
		return g
	}
	for _, text := range append([][]byte{bytes.TrimPrefix(head, byteOrderMark)}, lines[:min(10, len(lines))]...) {
		if jq := unwrapped(text, ""); jq != "" {
			return guess{"log lines wrapped in JSON", "unwrap them, as in: jq " + jq + " FILE | …"}
		}
	}
	// Choose the guess that matches the most lines.
	counts := make([]int, len(textGuesses))
	for _, line := range lines {
		for i, g := range textGuesses {
			if g.line.Match(line) {
				counts[i]++
				break
			}
		}
	}
	objects := count(lines, func(line []byte) bool { return line[0] == '{' && line[len(line)-1] == '}' })
	requests := count(lines, requestText.Match)
	syslog := count(lines, func(line []byte) bool { _, ok := cutSyslog(line); return ok })
	best := slices.Index(counts, slices.Max(counts))
	switch {
	case counts[best]*3 >= len(lines) || counts[best] > 0 && best >= len(textGuesses)-2:
		return guess{textGuesses[best].what, textGuesses[best].hint}
	case objects*2 >= len(lines):
		return guess{"JSON objects without known names for time, client, request and status",
			"name the fields, as in: --format json:time=at,client=ip,method=verb,path=url,status=code"}
	case requests*2 >= len(lines):
		return guess{"requests in an unknown format", nameFormat}
	case syslog*2 >= len(lines):
		return guess{"a system log (syslog)", "use the web server's own access log"}
	}
	return guess{"text in an unknown format", nameFormat}
}

// maxNesting is the maximum depth at which unwrapped searches for an entry.
const maxNesting = 8

// unwrapped returns the arguments that make jq print the lines of a log: the strings or objects inside a JSON value.
// text begins with that value and may be cut off, and path leads to it. unwrapped returns "" if there are no such lines.
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

// declaredGuess returns what a file declares itself to be in its directives.
func declaredGuess(lines [][]byte) (guess, bool) {
	zeek := ""
	for _, line := range lines {
		switch {
		case bytes.HasPrefix(line, []byte("#path\t")):
			zeek = string(line[len("#path\t"):])
		case bytes.HasPrefix(line, []byte("#fields\t")):
			if !letters([]byte(zeek)) { // it is shown
				return guess{"a Zeek log other than http.log", "use Zeek's http.log"}, true
			}
			return guess{"Zeek's " + zeek + " log", "use Zeek's http.log"}, true
		case len(line) > 8 && bytes.EqualFold(line[:8], []byte("#fields:")):
			c := (&columns{}).withDirective(line)
			switch {
			case 3*count(lines, ftpLine.Match) >= len(lines):
				return guess{"an FTP server's log", "only logs of HTTP requests can be read"}, true
			case !c.complete():
				return guess{"a W3C log without the client's address or times",
					"log c-ip, date and time, or name the client's field, as in: --format 'w3c:client=cs(X-Forwarded-For)'"}, true
			}
			return guess{"a W3C log whose lines do not match #Fields", nameFormat}, true
		}
	}
	return guess{}, false
}
