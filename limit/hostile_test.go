package limit_test

import (
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/edgelimit/edge/limit"
	"github.com/edgelimit/edge/rule"
)

// hostile are requests of the same size that try to make a decision expensive. The first two are plain.
var hostile = []struct {
	name                string
	path, query, cookie string // repeated up to size
}{
	{"plain path", "/segments-of-a-path", "", ""},
	{"plain cookie", "", "", "name=value-of-a-cookie; "},
	{"dot segments", "/./", "", ""},
	{"few dot segments", "/./a/../some-longer-names", "", ""},
	{"parameters", "/a;b", "", ""},
	{"few parameters", "/some;longer-names", "", ""},
	{"a thousand parameters", "/a;;;;;;;;;;;;;;;;;;", "", ""},
	{"semicolons", ";a", "", ""},
	{"few long segments with parameters", "/" + strings.Repeat("segment", 9) + ";a/%2e", "", ""},
	{"few long segments of all kinds", "/" + strings.Repeat("segment", 80) + `;a%5cb\c//../..;x%2f`, "", ""},
	{"slashes", "/", "", ""},
	{"few slashes", "//a-longer-name-here", "", ""},
	{"backslashes", `\`, "", ""},
	{"all of them", `/a;b\c/.././%2f;d%5c-some-more-bytes-for-few`, "", ""},
	{"escapes", "%61%2e", "", ""},
	{"escaped parameters", "%3b;%61", "", ""},
	{"escaped slashes", "%2f", "", ""},
	{"capitals", "/SEGMENTS-OF-A-PATH", "", ""},
	{"Greek", "ΑΒΓ", "", ""},
	{"empty parameters", "", "q=&", ""},
	{"unnamed parameters", "", "&", ""},
	{"parameters with other names", "", "a=&", ""},
	{"escaped names", "", "%71=%61&", ""},
	{"values", "", "q=a&q=b&q=c&q=d&", ""},
	{"values of two readings", "", "q=a;%41=&", ""},
	{"values of two readings without ampersands", "", "q=a;%41=", ""},
	{"empty cookies", "", "", "sid=;"},
	{"unnamed cookies", "", "", ";"},
	{"cookies with other names", "", "", "a=;"},
	{"cookies without values", "", "", "sid;"},
	{"four cookies", "", "", "sid=a;sid=b;sid=c;sid=d;"},
	{"spaces", "", "", "sid  =   a   ; "},
	{"quoted", "", "", `sid="\141\142";`},
	{"a long value", "", "", "sid=bocraspide"},
}

const hostileSize = 3900

// hostileRequest returns the ith hostile request of a client.
func hostileRequest(i int) rule.Request {
	h := hostile[i]
	fill := func(part string) string {
		return strings.Repeat(part, hostileSize/max(1, len(part)))[:hostileSize/max(1, len(part))*len(part)]
	}
	req := request(1)
	switch {
	case h.path != "":
		req.Path = fill(h.path)
	case h.query != "":
		req.Query = fill(h.query)
	default:
		req.Header = map[string][]string{"Cookie": {fill(h.cookie)}}
	}
	return req
}

// BenchmarkHostile measures decisions on hostile requests of refused clients. x-plain is their CPU time, as a multiple
// of that for a plain path.
func BenchmarkHostile(b *testing.B) {
	for _, set := range []struct{ name, rules string }{
		{"refused by address", `
- {id: all, characteristics: [ip], limits: [{threshold: 5, period: 1m}]}
- {id: login, match: {paths: [/login, /api/*]}, characteristics: [ip], limits: [{threshold: 5, period: 1m}]}
`},
		{"refused by address, and sessions are counted", `
- {id: all, characteristics: [ip], limits: [{threshold: 5, period: 1m}]}
- {id: login, match: {paths: [/login, /api/*]}, characteristics: ["cookie:sid", "query:q"], limits: [{threshold: 5, period: 1m}]}
- {id: sessions, characteristics: ["cookie:sid", "query:q"], limits: [{threshold: 5, period: 1m}]}
`},
		{"refused by address, and expressions are about cookies", `
- {id: all, characteristics: [ip], limits: [{threshold: 5, period: 1m}]}
- {id: bots, match: {cookies: {sid: "~bot|crawl|spider"}}, characteristics: [ip], limits: [{threshold: 5, period: 1m}]}
`},
		{"refused on some paths", `
- {id: all, except: {paths: [/health]}, characteristics: [ip], limits: [{threshold: 5, period: 1m}]}
- {id: login, match: {paths: [/login], path_parameters: exact}, characteristics: [ip], limits: [{threshold: 5, period: 1m}]}
`},
	} {
		plain := 0.0
		for i, h := range hostile {
			b.Run(set.name+"/"+h.name, func(b *testing.B) {
				l, table, secret := newLimiter(b, "rules:"+set.rules)
				now := time.Now()
				mitigate(b, l, table, secret, 1, now)
				received := hostileRequest(i)
				b.ReportAllocs()
				before := cpuTime(b)
				for b.Loop() {
					req := received
					if d := l.Decide(&req, now); !d.Verdict.Refused() {
						b.Fatal(d.Verdict)
					}
				}
				each := float64(cpuTime(b)-before) / float64(b.N)
				if i == 0 {
					plain = each
				}
				b.ReportMetric(each/hostileSize, "ns/byte")
				b.ReportMetric(each/plain, "x-plain")
			})
		}
	}
}

// cpuTime returns the CPU time of the process.
func cpuTime(tb testing.TB) time.Duration {
	tb.Helper()
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		tb.Fatal(err)
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}

// A client whose address suffices to refuse it makes the node read no path or query, however odd, and no field, not
// even for rules that count by these while none of their keys is mitigated.
func TestRefusedByAddressReadsNoPath(t *testing.T) {
	rules := "rules:\n- {id: all, characteristics: [ip], limits: [{threshold: 5, period: 1m}]}\n" +
		"- {id: path, characteristics: [path], limits: [{threshold: 5, period: 1m}]}\n" +
		"- {id: key, characteristics: ['query:q'], limits: [{threshold: 5, period: 1m}]}\n" +
		"- {id: bots, match: {headers: {user-agent: '~bot'}}, characteristics: [ip, 'cookie:sid'], limits: [{threshold: 5, period: 1m}]}\n"
	for _, path := range []string{"/login", "/api/*", "/x", "/y"} {
		rules += `- {id: "` + path[1:2] + `", match: {paths: [` + path + `], path_parameters: exact}, characteristics: [ip], limits: [{threshold: 5, period: 1m}]}` + "\n"
	}
	l, table, secret := newLimiter(t, rules)
	now := time.Now()
	mitigate(t, l, table, secret, 1, now)
	for i, h := range hostile {
		received := hostileRequest(i)
		fields := &unread{}
		if n := testing.AllocsPerRun(10, func() {
			req := received
			req.Header, req.Fields = nil, fields
			if d := l.Decide(&req, now); !d.Verdict.Refused() {
				t.Fatal(d.Verdict)
			}
		}); n > 0 || fields.reads > 0 {
			t.Errorf("%s: a refusal allocates %v times and reads the fields %d times, want 0", h.name, n, fields.reads)
		}
	}
}

// unread counts how often the fields of a request are read.
type unread struct{ reads int }

func (u *unread) RuleFields() map[string][]string {
	u.reads++
	return nil
}

// A path with too many segments is malformed, and counts like other malformed requests.
func TestTooManySegmentsAreMalformed(t *testing.T) {
	l, table, secret := newLimiter(t, "rules:\n- {id: all, characteristics: [ip], limits: [{threshold: 5, period: 1m}]}\n")
	now := time.Now()
	mitigate(t, l, table, secret, 1, now)
	for client, want := range []limit.Verdict{limit.Malformed, limit.Blocked} {
		req := request(uint32(client))
		req.Path = strings.Repeat("/.", rule.MaxOddSegments+1)
		if d := l.Decide(&req, now); d.Verdict != want {
			t.Errorf("client %d is %v, want %v", client, d.Verdict, want)
		}
	}
}
