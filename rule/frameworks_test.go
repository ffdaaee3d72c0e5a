package rule_test

import (
	"bufio"
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/edgelimit/edge/internal/harness"
	"github.com/edgelimit/edge/rule"
)

// frameworks are programs of Debian that answer what they read in a request.
var frameworks = []struct{ name, command string }{
	{"django", "/usr/bin/python3 -I python.py django PORT"}, // another Python in PATH may lack the packages
	{"flask", "/usr/bin/python3 -I python.py flask PORT"},
	{"aiohttp", "/usr/bin/python3 -I python.py aiohttp PORT"},
	{"tornado", "/usr/bin/python3 -I python.py tornado PORT"},
	{"express", "node express.js PORT"},
	{"php", "php -n -S 127.0.0.1:PORT index.php"},
	{"rack", "/usr/bin/ruby rack.rb PORT"},
}

// oddRequests are requests that some framework reads in its own way, and pieces from which more are drawn.
var oddRequests = []sentRequest{
	{cookie: "user_id=secret,x", query: "?user_id=secret", header: "secret"},
	{cookie: "user_id=secret x=1", query: "?+user_id=secret", header: "secret\xa0"},
	{cookie: "user_id=secret secure", query: "user_id%00x=secret", header: "\x85secret"},
	{cookie: "user_id=secret $x", query: "%20user_id=secret", header: "secret\xc2\xa0"},
	{cookie: "x=1 user_id=secret", query: "user.id=secret"},
	{cookie: "x=1\tuser_id = secret\ty=1", query: "user+id=secret"},
	{cookie: `user_id="secretX`, query: "user[id=secret"},
	{cookie: `user_id="sec;ret"`, query: "user_id[]=secret"},
	{cookie: `user_id="sec\145\t"`, query: "user_id[0][]=secret"},
	{cookie: "user_id=secret\xa0", query: "user_id%5B%5D=secret"},
	{cookie: "user_id=secret\xc2\xa0; x", query: "[user_id]=secret"},
	{cookie: "user_id=secret\xe2\x80\x83", query: "%5Buser_id]=secret"},
	{cookie: "\xa0user_id=secret", query: "][user_id]]=secret"},
	{cookie: "user_id\xc2\xa0=secret", query: "user_id]=secret"},
	{cookie: "user.id=secret", query: "user_id=secret;x"},
	{cookie: "user id=secret", query: "x;user_id=secret"},
	{cookie: "user[id=secret", query: "user_id=secret%00"},
	{cookie: "user_id[]=secret", query: "user_id=%20secret%0a"},
	{cookie: "user_id=secret%zz%41", query: "user_id=%01secret"},
	{cookie: `user_id="secret" x=1`, query: "user_id=secret%E2%80%83"},
	{cookie: `user_id=%22secret%22`, query: "user_id=s%01t"},
	{cookie: `user_id="%41\"b\\"`, query: "user_id=a%zz%41"},
	{cookie: "user_id=a; user_id=b", query: "user_id=a&user_id=b"},
	{cookie: "user_id=a+b%2Bc", query: "user_id=a+b%2Bc"},
	{authorization: "Basic YWxpY2U6cHc="},
	{authorization: "bASIC  YWxpY2U6cHd="},
	{authorization: "Basic YWxp!Y2U6cHc===="},
	{authorization: "Basic YW=xpY2U6cHc=A"},
	{authorization: "Basic YW-xpY2U6cHc"},
	{authorization: "Basic YWxpY2U6cHcA"},
}

var (
	names        = []string{"user_id", "user_id", "user_id", "user.id", "user id", "user[id", "user_id[]", "[user_id]"}
	cookiePieces = append([]string{"secret", "=", ";", " ", "\t", `"`, `\`, `\145`, ",", "%41", "%zz", "+", "\xa0", "\x85", "\xc2\xa0", "\u2003",
		"x=1", "$", "secure", "=", ";", `"`, " "}, names...)
	queryPieces = append([]string{"secret", "=", "&", ";", "+", "?", "%20", "%00", "%01", "%0a", "%E2%80%83", "%C2%A0", "%41", "%5B", "%5D", "[", "]", ".",
		",", "x=1", "%3D", "%3B", "%26", "0"}, names...)
	basicPieces  = []string{"YWxp", "Y2U6", "cHc", "=", "=", "!", "-", "_", "A", "AA", " ", "\t"}
	headerPieces = []string{"secret", " ", "\t", "\xa0", "\x85", "\xc2\xa0", "\u2003", ",", `"`, "%41", "="}
)

// A sentRequest has a Cookie header, a query, a header X-User-Id and credentials. Rules count by the values of user_id in
// the first two.
type sentRequest struct{ cookie, query, header, authorization string }

func (r sentRequest) request() rule.Request {
	return rule.Request{Path: "/", Query: r.query, Header: map[string][]string{"Cookie": {r.cookie}, "X-User-Id": {r.header},
		"Authorization": {r.authorization}}}
}

func drawRequest(t *rapid.T) (r sentRequest) {
	text := func(label string, pieces []string, most int) string {
		return strings.Join(rapid.SliceOfN(rapid.SampledFrom(pieces), 0, most).Draw(t, label), "")
	}
	r.cookie = text("cookies before", cookiePieces, 4) + rapid.SampledFrom(names).Draw(t, "cookie") + "=" + text("cookies", cookiePieces, 7)
	r.query = text("parameters before", queryPieces, 4) + rapid.SampledFrom(names).Draw(t, "parameter") + "=" + text("parameters", queryPieces, 7)
	r.header = text("header", headerPieces, 5)
	r.authorization = rapid.SampledFrom([]string{"Basic ", "bASIC ", "Basic  ", "Basic\t"}).Draw(t, "scheme") + text("credentials", basicPieces, 8)
	for _, field := range []*string{&r.cookie, &r.header, &r.authorization} {
		*field = strings.Trim(*field, " \t") // as a proxy does
	}
	r.query = strings.ReplaceAll(r.query, " ", "+")
	return r
}

// plain returns requests with the plain spellings of a value, in which only a header has several.
func plain(kind, value string) (all []sentRequest) {
	switch kind {
	case "cookie":
		all = []sentRequest{{cookie: "user_id=" + url.PathEscape(value)}}
		for _, quoted := range []string{value, `"` + value + `"`, `"` + value} {
			all = append(all, sentRequest{cookie: "user_id=" + quoted})
		}
	case "query":
		all = []sentRequest{{query: "user_id=" + url.QueryEscape(value)}}
		if !strings.ContainsAny(value, "&;") {
			all = append(all, sentRequest{query: "user_id=" + value})
		}
	case "authorization":
		all = []sentRequest{{authorization: "Basic " + base64.StdEncoding.EncodeToString([]byte(value))}}
	default:
		all = []sentRequest{{header: value}}
	}
	return all
}

// Whatever value a framework reads, a rule counts the request under a key of a plain spelling of the value.
// So no value has an unlimited number of keys.
func TestFrameworksReadNoOtherValues(t *testing.T) {
	rules := map[string]*rule.Rule{
		"cookie": keyed(t, "[cookie:user_id]"), "query": keyed(t, "[query:user_id]"), "header": keyed(t, "[header:x-user-id]"),
		"authorization": keyed(t, "[header:authorization]"),
	}
	several := map[string]string{}
	for kind, r := range rules {
		many := rule.Request{Query: "user_id=1&user_id=2&user_id=3&user_id=4&user_id=5",
			Header: map[string][]string{"Cookie": {"user_id=1;user_id=2;user_id=3;user_id=4;user_id=5"}, "X-User-Id": {"1", "2", "3", "4", "5"},
				"Authorization": {"1", "2", "3", "4", "5"}}}
		several[kind] = keysOf(r, many)[0]
	}
	for _, f := range frameworks {
		t.Run(f.name, func(t *testing.T) {
			t.Parallel()
			addr := startFramework(t, f.command)
			kinds := map[string]bool{}
			check := func(t rapid.TB, sent sentRequest) {
				for _, read := range ask(t, addr, sent) {
					kinds[read.kind] = true
					keys := keysOf(rules[read.kind], sent.request())
					ok := slices.Contains(keys, several[read.kind])
					for _, p := range plain(read.kind, read.value) {
						ok = ok || slices.Contains(keys, keysOf(rules[read.kind], p.request())[0])
					}
					if !ok {
						t.Fatalf("the %s of %+q is %+q to %s, but its keys are %+q", read.kind, sent, read.value, f.name, keys)
					}
				}
			}
			for _, sent := range oddRequests {
				check(t, sent)
			}
			if want := len(rules); len(kinds) != want && (len(kinds) != want-1 || kinds["authorization"]) { // some read no credentials
				t.Errorf("%s reads only values of %v", f.name, kinds)
			}
			rapid.Check(t, func(t *rapid.T) { check(t, drawRequest(t)) })
		})
	}
}

// startFramework starts a program with a port in place of PORT, and returns its address.
func startFramework(t *testing.T, command string) (addr string) {
	t.Helper()
	addr = harness.ReservePort(t)
	_, port, _ := net.SplitHostPort(addr)
	args := strings.Fields(strings.ReplaceAll(command, "PORT", port))
	cmd := exec.Command(harness.Installed(t, args[0]), args[1:]...)
	cmd.Dir, cmd.Env = "testdata/frameworks", append(os.Environ(), "NODE_PATH=/usr/share/nodejs") // where Debian installs modules
	p := harness.Start(t, cmd)
	harness.Until(t, args[0]+" listens", harness.Patience, 20*time.Millisecond, func() bool {
		if p.HasEnded() && p.End() == 3 {
			harness.Unavailable(t, p.Stderr.String())
		} else if p.HasEnded() {
			t.Fatal("the program ended")
		}
		conn, err := net.Dial("tcp", addr)
		if err == nil {
			conn.Close()
		}
		return err == nil
	})
	return addr
}

// A reading is a value of a cookie, parameter or header that a framework reads.
type reading struct{ kind, value string }

// ask sends a request to a framework, and returns what it reads. It leaves out empty values, cookies with blanks around
// them or semicolons in them, and values that are not ASCII: see docs/rules.md.
func ask(t rapid.TB, addr string, sent sentRequest) (all []reading) {
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(harness.Patience))
	fmt.Fprintf(conn, "GET /?%s HTTP/1.1\r\nHost: a\r\nConnection: close\r\nCookie: %s\r\nX-User-Id: %s\r\nAuthorization: %s\r\n\r\n", sent.query, sent.cookie, sent.header, sent.authorization)
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	if resp.StatusCode != http.StatusOK {
		return nil
	}
	for line := range strings.Lines(string(body)) {
		kind, digits, _ := strings.Cut(strings.TrimSuffix(line, "\n"), " ")
		value, err := hex.DecodeString(digits)
		if err != nil {
			t.Fatalf("%q: %v", body, err)
		}
		odd := kind == "cookie" && (len(bytes.TrimSpace(value)) < len(value) || bytes.IndexByte(value, ';') >= 0)
		if len(value) > 0 && !odd && !slices.ContainsFunc(value, func(c byte) bool { return c >= 0x80 }) {
			all = append(all, reading{kind, string(value)})
		}
	}
	return all
}
