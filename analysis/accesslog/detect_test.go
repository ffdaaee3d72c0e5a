package accesslog_test

import (
	"errors"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/edgelimit/edge/analysis/accesslog"
)

// text opens a log with this text as standard input.
func text(text string, o accesslog.Options) (*accesslog.Log, error) {
	return accesslog.OpenWith([]string{"-"}, strings.NewReader(text), o)
}

// A file that is not an access log is refused, with a guess and a hint.
func TestRefused(t *testing.T) {
	for _, test := range []struct {
		name, text, guess, hint string
	}{
		{"prose", "It was a dark\nand stormy night.\n", "text in an unknown format", "name its format"},
		{"nginx's error log", "2026/01/02 15:04:05 [error] 31#31: *46 open() failed\n", "nginx's error log", "access_log"},
		{"Apache's error log", "[Fri Jan 02 15:04:05.123456 2026] [core:error] [pid 1] [client 203.0.113.7:1] AH00126\n", "Apache's error log", "CustomLog"},
		{"BIND's log", "02-Jan-2026 15:04:05.123 client @0x1 203.0.113.7#53 (example.com): query: example.com IN A +E(0)K (10.0.0.1)\n", "a DNS server's log", ""},
		{"dnsmasq's log", "Jan  2 15:04:05 dnsmasq[1]: query[A] example.com from 203.0.113.7\n", "a DNS server's log", ""},
		{"xferlog", "Fri Jan  2 15:04:05 2026 1 203.0.113.7 512 /a b _ o r user ftp 0 * c\n", "an FTP server's log", ""},
		{"auth.log", "Jan  2 15:04:05 host sshd[1]: Failed password for root from 203.0.113.7\n", "a system log (syslog)", ""},
		{"a VPC's flows", "2 123456789010 eni-1235b8ca 203.0.113.7 10.0.0.1 22 20641 6 20 4249 1767366245 1767366305 ACCEPT OK\n", "an AWS VPC flow log", ""},
		{"an NLB's log", "tls 2.0 2026-01-02T15:04:05 net/lb/c6 c6 203.0.113.7:1 10.0.0.1:443 5 2 98 246 - arn\n", "the log of an AWS Network Load Balancer", ""},
		{"HAProxy's TCP log", "Jan  2 15:04:05 lb haproxy[1]: 203.0.113.7:3 [02/Jan/2026:15:04:05.655] fe bck/srv1 0/0/5007 212 -- 0/0/0/0/3 0/0\n", "HAProxy's TCP log", "httplog"},
		{"logfmt", "time=2026-01-02T15:04:05Z level=info msg=\"started\"\n", "an application's log in logfmt", ""},
		{"an application's JSON", `{"time":"2026-01-02T15:04:05Z","level":"info","msg":"started"}` + "\n", "JSON objects without known names for time, client, request and status", "json:time=at,client=ip"},
		{"an application's JSON of requests", `{"level":"error","method":"POST","msg":"Unsuccessful","path":"/api","remote_ip":"203.0.113.7","time":"2026-01-02T15:04:05Z"}` + "\n", "JSON objects without known names for time, client, request and status", ""},
		{"Docker's JSON", `{"log":"203.0.113.7 - - [02/Jan/2026:15:04:05 +0000] \"GET / HTTP/1.1\" 200 1\n","stream":"stdout","time":"2026-01-02T15:04:05.1Z"}` + "\n", "lines that Docker wrapped in JSON", "jq -rj .log"},
		{"CUPS's page log", "DeskJet root 1 [02/Jan/2026:15:04:05 +0000] 1 1 acme-123 localhost\n", "text in an unknown format", ""},
		{"uWSGI's log", "[pid: 1|app: 0|req: 1/1] 203.0.113.7 () {32 vars in 12 bytes} [Fri Jan  2 15:04:05 2026] GET / => generated 0 bytes\n", "uWSGI's log", ""},
		{"unbound's log", "[1767366245] unbound[1:0] info: 203.0.113.7 example.com. A IN\n", "a DNS server's log", ""},
		{"pretty JSON", "{\n  \"ClientIP\": \"203.0.113.7\"\n}\n", "JSON over several lines", "jq -c ."},
		{"a JSON array", `[{"ClientIP":"203.0.113.7"},{"ClientIP":"203.0.113.7"}]`, "a JSON array", "jq -c '.[]'"},
		{"HTML", "<!DOCTYPE html>\n<html></html>\n", "XML or HTML", ""},
		{"Zeek's dns.log", "#path\tdns\n#fields\tts\tid.orig_h\tquery\n1767366245.1\t203.0.113.7\texample.com\n", "Zeek's DNS (dns) log", "http.log"},
		{"a Zeek log with an unprintable name", "#path\t\x1b[2J\n#fields\tts\tid.orig_h\n1767366245.1\t203.0.113.7\n", "a Zeek log other than http.log", "http.log"},
		{"IIS's FTP log", "#Fields: date time c-ip cs-method cs-uri-stem sc-status\n2026-01-02 15:04:05 203.0.113.7 ControlChannelOpened - 0\n2026-01-02 15:04:05 203.0.113.7 USER a 331\n", "an FTP server's log", ""},
		{"IIS's SMTP log", "#Fields: date time c-ip cs-method cs-uri-stem sc-status\n2026-01-02 15:04:05 203.0.113.7 EHLO - 250\n", "a mail server's log", ""},
		{"no client", "#Fields: date time cs-method\n2026-01-02 15:04:05 GET\n", "a W3C log without the client's address", "c-ip"},
		{"no time", "#Fields: c-ip cs-method\n203.0.113.7 GET\n", "a W3C log without times", "date and time"},
		{"xz", "\xfd7zXZ\x00\x00\x04", "data compressed by xz", "xz -dc"},
		{"zip", "PK\x03\x04\x14\x00", "a zip archive", "unzip -p"},
		{"UTF-16", "\xff\xfe2\x000\x003\x00", "text in UTF-16", "iconv"},
		{"a program", "\x7fELF\x02\x01\x01\x00", "a program", ""},
		{"random bytes", strings.Repeat("\x00\x01\x02\x03", 100), "binary data", ""},
		{"random bytes with few zeros", strings.Repeat("\x03k\xfe9\x8e\xb1-\x17[\xd0\n", 100), "binary data", ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			_, err := text(test.text, accesslog.Options{})
			var refused *accesslog.RefusedError
			if !errors.As(err, &refused) {
				t.Fatalf("error %v, want a RefusedError", err)
			}
			if refused.Guess != test.guess || refused.File != "stdin" {
				t.Errorf("%s: looks like %s, want %s", refused.File, refused.Guess, test.guess)
			}
			if hint := refused.Hint(); hint == "" || !strings.Contains(hint, test.hint) {
				t.Errorf("hint %q, want one with %q", hint, test.hint)
			}
		})
	}
}

// Logs of IIS and CloudFront are read even without their directives, which are lost when logs are shipped line
// by line.
func TestWithoutDirectives(t *testing.T) {
	for want, line := range map[string]string{
		"w3c":        "2026-01-02 15:04:05 10.0.0.1 GET /a b=c 443 - 203.0.113.7 curl/8.5.0 - 200 0 0 15",
		"cloudfront": "2026-01-02\t15:04:05\tFRA50-P2\t512\t203.0.113.7\tGET\td111.cloudfront.net\t/a\t200\t-\tcurl/8.5.0\tb=c\t-\tHit\t6b1e\texample.com\thttps\t80\t0.001\t-\tTLSv1.3",
	} {
		l, err := text(line, accesslog.Options{})
		if err != nil {
			t.Fatal(err)
		}
		if err := l.Entries(t.Context(), func(e *accesslog.Entry) error {
			if e.Client != "203.0.113.7" || e.Path != "/a" || e.Query != "b=c" || e.Status != 200 {
				t.Errorf("%s: %+v", want, *e)
			}
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		if s := l.Stats(); s.Files[0].Format != want || s.Entries != 1 {
			t.Errorf("%s: %+v", want, s)
		}
	}
}

// Times in a W3C log are in UTC, unless its fields or directives say otherwise.
func TestW3CTimes(t *testing.T) {
	berlin, err := time.LoadLocation("Europe/Berlin")
	if err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct{ name, text string }{
		{"UTC", "#Fields: date time c-ip\n2026-01-02 15:04:05 203.0.113.7\n"},
		{"local", "#Fields: date-local time-local c-ip\n2026-01-02 16:04:05 203.0.113.7\n"},
		{"both", "#Fields: date-local time-local date time c-ip\n2026-01-02 16:04:05 2026-01-02 15:04:05 203.0.113.7\n"},
		{"both, local last", "#Fields: date time c-ip date-local time-local\n2026-01-02 15:04:05 203.0.113.7 2026-01-02 16:04:05\n"},
		{"an offset", "#GMT-Offset: -0800\n#Fields: date time c-ip\n2026-01-02 07:04:05 203.0.113.7\n"},
		{"an offset does not apply to times since the epoch", "#GMT-Offset: -0800\n#Fields: timestamp c-ip\n1767366245 203.0.113.7\n"},
	} {
		l, err := text(test.text, accesslog.Options{Location: berlin})
		if err != nil {
			t.Fatal(err)
		}
		if err := l.Arrivals(t.Context(), func(as []accesslog.Arrival) error {
			if at := time.UnixMicro(as[0].Time).UTC(); at.Unix() != 1767366245 {
				t.Errorf("%s: %v", test.name, at)
			}
			return nil
		}); err != nil || l.Stats().Entries != 1 {
			t.Errorf("%s: %d entries, error %v", test.name, l.Stats().Entries, err)
		}
	}
}

// If a format is given, the file must be in it.
func TestNamedFormat(t *testing.T) {
	_, err := text(plain, accesslog.Options{Format: "alb"})
	want := "accesslog: stdin is not in the format alb (no type of connection, such as https): it looks like text in an unknown format"
	if err == nil || err.Error() != want {
		t.Errorf("error %v, want %s", err, want)
	}
	_, err = text(plain, accesslog.Options{Format: "apache"})
	var unknown *accesslog.FormatError
	if !errors.As(err, &unknown) || !strings.Contains(unknown.Hint(), "combined, clf, json") {
		t.Errorf("error %v, want a FormatError that names the formats", err)
	}
	for _, empty := range []string{"", "\n\n", "# nothing yet\n"} {
		l, err := text(empty, accesslog.Options{Format: "alb"})
		if err != nil {
			t.Fatalf("%q: %v", empty, err)
		}
		if err := l.Arrivals(t.Context(), func([]accesslog.Arrival) error { return nil }); err != nil || l.Stats().Malformed != 0 {
			t.Errorf("%q: %v, %+v", empty, err, l.Stats())
		}
	}
}

// Formats can be described: fields by their names, lines by a pattern.
func TestDescribedFormats(t *testing.T) {
	for _, test := range []struct {
		name, format, text string
		want               accesslog.Entry
	}{
		{
			"JSON with custom names",
			"json:time=at,client=peer.addr,method=verb,host=site,path=what,query=rest,status=outcome,header:x-api-key=key",
			`{"at":1767366245,"remote_addr":"10.0.0.1","peer":{"addr":"203.0.113.7:80"},"verb":"GET","site":"example.com","what":"/a","rest":"b=c","outcome":"200","key":"k"}`,
			accesslog.Entry{Client: "203.0.113.7", Method: "GET", Host: "example.com", Path: "/a", Query: "b=c", Status: 200, Header: []accesslog.Field{{Name: "X-Api-Key", Value: "k"}}},
		},
		{
			"a mark under another name", "json:attack=is_bot",
			`{"time":1767366245,"remote_addr":"203.0.113.7","uri":"/","is_bot":1,"attack":false}`,
			accesslog.Entry{Client: "203.0.113.7", Path: "/", Attack: true},
		},
		{
			"another client in a vendor's JSON", "caddy:client=request.headers.Cf-Connecting-Ip",
			`{"ts":1767366245,"request":{"remote_ip":"10.0.0.1","proto":"HTTP/1.1","method":"GET","uri":"/","headers":{"Cf-Connecting-Ip":["203.0.113.7"]}},"status":200}`,
			accesslog.Entry{Client: "203.0.113.7", Method: "GET", Path: "/", Status: 200, Header: []accesslog.Field{{Name: "Cf-Connecting-Ip", Value: "203.0.113.7"}}},
		},
		{
			"another client in a W3C log", "w3c:client=X-Forwarded-For",
			"#Fields: date time cs-method c-ip X-Forwarded-For\n2026-01-02 15:04:05 GET 10.0.0.1 203.0.113.7,+10.0.0.2\n",
			accesslog.Entry{Client: "203.0.113.7", Method: "GET"},
		},
		{
			"a pattern", `$http_x_forwarded_for|$remote_addr [$time_local] "$request" $status "$http_user_agent" $request_time`,
			`198.51.100.3|203.0.113.7 [02/Jan/2026:15:04:05 +0000] "GET /a?b=c HTTP/1.1" 200 "quo\"ted" 0.1`,
			accesslog.Entry{Client: "203.0.113.7", Method: "GET", Path: "/a", Query: "b=c", Status: 200, Header: []accesslog.Field{{Name: "X-Forwarded-For", Value: "198.51.100.3"}, {Name: "User-Agent", Value: `quo"ted`}}},
		},
		{
			"Apache's combined", `%h %l %u %t "%r" %>s %O "%{Referer}i" "%{User-Agent}i"`,
			`203.0.113.7 - - [02/Jan/2026:15:04:05 +0000] "GET /a?b=c HTTP/1.1" 200 5 "-" "quo\"ted"`,
			accesslog.Entry{Client: "203.0.113.7", Method: "GET", Path: "/a", Query: "b=c", Status: 200, Header: []accesslog.Field{{Name: "User-Agent", Value: `quo"ted`}}},
		},
		{
			"a directive of Apache's configuration", `LogFormat "%v:%p %{c}a %a %t \"%m %U%q %H\" %!200,304>s \"%400,501{User-agent}i\" 100%% %D" vhost`,
			`example.com:443 10.0.0.1 203.0.113.7 [02/Jan/2026:16:04:05 +0100] "GET /a?b=c HTTP/1.1" 200 "curl/8.5.0" 100% 12`,
			accesslog.Entry{Client: "203.0.113.7", Method: "GET", Host: "example.com", Path: "/a", Query: "b=c", Status: 200, Header: []accesslog.Field{{Name: "User-Agent", Value: "curl/8.5.0"}}},
		},
		{
			"Apache's time in parts", `%{X-Forwarded-For}i [%{%d/%b/%Y:%T}t.%{msec_frac}t %{%z}t] %>s`,
			`203.0.113.7, 10.0.0.1 [02/Jan/2026:16:04:05.678 +0100] 200`,
			accesslog.Entry{Client: "203.0.113.7", Status: 200},
		},
		{
			"a time before a space", `%{%Y-%m-%d %H:%M:%S %z}t %h %{usec}t`,
			`2026-01-02 16:04:05 +0100 203.0.113.7 1767366245000000`,
			accesslog.Entry{Client: "203.0.113.7"},
		},
		{
			"a directive of nginx's configuration", `log_format main escape=default '$time_local $upstream_addr $http_x_forwarded_for '
				'"$request" $status';`,
			`02/Jan/2026:15:04:05 +0000 10.0.0.1:80, 10.0.0.2:80 : 10.0.0.3:80 203.0.113.7, 10.0.0.1 "GET /a HTTP/1.1" 200`,
			accesslog.Entry{Client: "203.0.113.7", Method: "GET", Path: "/a", Status: 200},
		},
		{
			"columns of a W3C log", "w3c:fields=date time s-sitename cs-method cs-uri-stem c-ip sc-status",
			"2026-01-02 15:04:05 W3SVC1 GET /a 203.0.113.7 200\n",
			accesslog.Entry{Client: "203.0.113.7", Method: "GET", Path: "/a", Status: 200},
		},
		{
			"a pattern of parts", "at=${msec}s\tip=$client\t$request_method\t$host\t$uri\t$args\t$status",
			"at=1767366245.000s\tip=203.0.113.7, 10.0.0.1\tGET\texample.com\t/a\tb=c\t200",
			accesslog.Entry{Client: "203.0.113.7", Method: "GET", Host: "example.com", Path: "/a", Query: "b=c", Status: 200},
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			l, err := text(test.text, accesslog.Options{Format: test.format})
			if err != nil {
				t.Fatal(err)
			}
			n := 0
			if err := l.Entries(t.Context(), func(e *accesslog.Entry) error {
				n++
				got := *e
				if at := time.UnixMicro(got.Time); at.Unix() != 1767366245 {
					t.Errorf("time %v", at)
				}
				if got.Addr.String() != test.want.Client {
					t.Errorf("address %v", got.Addr)
				}
				got.Time, got.Addr = 0, netip.Addr{}
				if diff := cmp.Diff(test.want, got, cmpopts.EquateComparable(netip.Addr{}), cmpopts.EquateEmpty()); diff != "" {
					t.Errorf("(-want +got):\n%s", diff)
				}
				return nil
			}); err != nil || n != 1 {
				t.Errorf("%d entries, error %v", n, err)
			}
		})
	}
}

func TestBadDescriptions(t *testing.T) {
	for format, want := range map[string]string{
		"json:time":                        `invalid "time" in format "json:time": write it as in json:time=at,client=ip`,
		"w3c:fields=date time cs-method":   "names the client: call it c-ip",
		"w3c:fields=date c-ip":             "has the time: call them date and time",
		"%h %u %Q%":                        "has no directive after %",
		"%h%t":                             "nothing between %h and the next variable",
		"%u %t":                            "no variable for the client",
		"json:size=bytes":                  `unknown field "size"`,
		"alb:client=ip":                    "the fields of alb have no names",
		"w3c:time=at":                      "only client and fields can be named",
		"$remote_addr$status":              "nothing between $remote_addr and the next variable",
		"$remote_addr $":                   "a $ without a name",
		"${remote_addr":                    "an unclosed brace",
		"$status $time_local":              "no variable for the client",
		"$remote_addr [$time] $ip $client": "",
		"$remote_addr $status":             "no variable for the time",
	} {
		_, err := text("", accesslog.Options{Format: format})
		if want == "" && err == nil {
			continue
		}
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: error %v, want one with %q", format, err, want)
		}
	}
}

// If nearly all requests are of one private client and X-Forwarded-For is in the last field, a pattern that
// reads the clients from there is suggested.
func TestBehindProxy(t *testing.T) {
	line := func(client, agent, rest string) string {
		return client + ` - - [02/Jan/2026:15:04:05 +0000] "GET / HTTP/1.1" 200 5 "-" "` + agent + `"` + rest + "\n"
	}
	for _, test := range []struct {
		name, text, client string
		proxied            bool
	}{
		{"the field after the agent", line("10.0.0.5", "curl", ` "203.0.113.7"`), "203.0.113.7", true},
		{"more fields", line("100.64.0.1", "a b", ` 0.1 "x" "2001:db8::17, 10.0.0.1" z`), "2001:db8::17", true},
		{"a client that is not private", line("203.0.113.9", "curl", ` "203.0.113.7"`), "", false},
		{"several clients", line("10.0.0.5", "curl", ` "203.0.113.7"`) + line("10.0.0.6", "curl", ` "203.0.113.7"`), "", false},
		{"no addresses", line("10.0.0.5", "curl", ` "-"`), "", false},
		{"nothing after the agent", line("10.0.0.5", "203.0.113.7", ""), "203.0.113.7", true}, // an agent that is an address
	} {
		t.Run(test.name, func(t *testing.T) {
			l, err := text(test.text, accesslog.Options{})
			if err != nil {
				t.Fatal(err)
			}
			if err := l.Arrivals(t.Context(), func([]accesslog.Arrival) error { return nil }); err != nil {
				t.Fatal(err)
			}
			f := l.Stats().Files[0]
			if f.Proxied != test.proxied {
				t.Fatalf("proxied %v, want %v", f.Proxied, test.proxied)
			}
			if !test.proxied || f.Pattern == "" {
				return
			}
			if l, err = text(test.text, accesslog.Options{Format: f.Pattern}); err != nil {
				t.Fatal(err)
			}
			if err := l.Entries(t.Context(), func(e *accesslog.Entry) error {
				if e.Client != test.client {
					t.Errorf("%s: client %s, want %s", f.Pattern, e.Client, test.client)
				}
				return nil
			}); err != nil {
				t.Fatal(err)
			}
		})
	}
}
