package rule_test

import (
	"bytes"
	"encoding/hex"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/edgelimit/edge/rule"
	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

// keyed returns a rule with characteristics in the form of rules files.
func keyed(t testing.TB, characteristics string) *rule.Rule {
	t.Helper()
	return parse(t, withCharacteristics(characteristics)).Rules()[0]
}

// key canonicalizes req and returns r's key for it.
func key(r *rule.Rule, req rule.Request) (string, bool) {
	req.Canonicalize(rule.ClientPrefix{})
	b, counted := r.AppendKey(nil, &req)
	return string(b), counted
}

// A change here makes every node start counting from 0, and splits the counts of a PoP whose
// nodes run different versions.
func TestAppendKeyGolden(t *testing.T) {
	set := parse(t, `
rules:
- id: golden
  characteristics: [ip, host, path, method, "header:X-Api-Key", "cookie:sid", "query:q", {header: accept, missing: share}]
  limits: [{threshold: 5, period: 1m}]
`)
	req := rule.Request{
		Addr:   netip.MustParseAddr("2001:db8:1:2:3:4:5:6"),
		Method: "POST", Host: "Example.com:443", Path: "/a%2Fb", Query: "x=2&%71=a+b%2Bc",
		Header: map[string][]string{"X-Api-Key": {"k1"}, "Cookie": {`a=b; sid="s"`}},
	}
	req.Canonicalize(rule.ClientPrefix{})
	got, counted := set.Rules()[0].AppendKey([]byte("before"), &req)
	want := []string{
		"6265666f7265",          // what was in the buffer: "before"
		"01",                    // version
		"00000006 676f6c64656e", // rule ID: "golden"
		"01 00000000",           // ip, no name
		"00000001 00000010",     // one value of 16 bytes
		"20010db8000100020000000000000000",
		"02 00000000",                     // host, no name
		"00000001",                        // one value
		"0000000b 6578616d706c652e636f6d", // "example.com"
		"03 00000000",                     // path, no name
		"00000001",                        // one value
		"00000004 2f612f62",               // "/a/b"
		"04 00000000",                     // method, no name
		"00000001",                        // one value
		"00000004 504f5354",               // "POST"
		"05 00000009 782d6170692d6b6579",  // header "x-api-key"
		"00000001",                        // one value
		"00000002 6b31",                   // "k1"
		"06 00000003 736964",              // cookie "sid"
		"00000001",                        // one value
		"00000001 73",                     // "s"
		"07 00000001 71",                  // query "q"
		"00000001",                        // one value
		"00000005 612062" + "2b63",        // "a b+c"
		"05 00000006 616363657074",        // header "accept"
		"00000000",                        // missing: no value
	}
	if hexed := strings.ReplaceAll(strings.Join(want, ""), " ", ""); hex.EncodeToString(got) != hexed || !counted {
		t.Errorf("AppendKey = %x, %t\nwant %s, true", got, counted, hexed)
	}

	// The request now has five values of a header, and one of everything else.
	req.Header["X-Api-Key"] = []string{"a", "b", "c", "d", "e"}
	keys := set.Rules()[0].Keys(nil, &req)
	want = slices.Replace(want[1:], 15, 17, "ffffffff") // several
	if hexed := strings.ReplaceAll(strings.Join(want, ""), " ", ""); keys.Len() != 1 || hex.EncodeToString(keys.At(0)) != hexed {
		t.Errorf("%d keys of several values, the first %x\nwant %s", keys.Len(), keys.At(0), hexed)
	}
}

// Only the values of characteristics are in the key of a request.
func TestAppendKeyValues(t *testing.T) {
	header := func(lines ...string) rule.Request {
		req := rule.Request{Header: map[string][]string{}}
		for _, line := range lines {
			name, v, _ := strings.Cut(line, ": ")
			req.Header[name] = append(req.Header[name], v)
		}
		return req
	}
	sends := func(lines ...string) rule.Request {
		return rule.Request{Header: map[string][]string{"Authorization": lines}}
	}
	cookie := func(lines ...string) rule.Request { return rule.Request{Header: map[string][]string{"Cookie": lines}} }
	query := func(q string) rule.Request { return rule.Request{Query: q} }
	ip := func(addr string) rule.Request { return rule.Request{Addr: netip.MustParseAddr(addr)} }
	for _, test := range []struct {
		name, characteristics string
		groups                [][]rule.Request // requests of a group share a key; each group has a different one
	}{
		{"ip", "[ip]", [][]rule.Request{
			{ip("192.0.2.1"), ip("::ffff:192.0.2.1"), {Addr: netip.MustParseAddr("192.0.2.1"), Host: "a", Path: "/b", Query: "c"}},
			{ip("192.0.2.2")},
			{ip("2001:db8::1"), ip("2001:db8::2"), ip("2001:db8::1%eth0")},
			{ip("2001:db8:0:1::1")},
			{ip("0.0.0.0")},
			{ip("::")},
			{{}},
		}},
		{"host", "[host]", [][]rule.Request{
			{{Host: "example.com"}, {Host: "EXAMPLE.com.:80"}},
			{{Host: "www.example.com"}},
			{{}, {Host: ":80"}},
		}},
		{"path", "[path]", [][]rule.Request{
			{{Path: "/a/b"}, {Path: "/a//%62"}, {Path: "/a/b/"}, {Path: "/A/b"}, {Path: "/a;x/b;y=z"}, {Path: "/a/b/%2F"}},
			{{Path: "/ÅÉ"}, {Path: "/%c3%a5%c3%a9"}},
			{{}, {Path: "/"}},
			{{Path: "*"}},
		}},
		{"method", "[method]", [][]rule.Request{{{Method: "GET"}, {Method: "get"}}, {{Method: "PURGE"}}, {{Method: "purge"}}, {{}}}},
		{"header", "[header:x-api_key]", [][]rule.Request{
			{header("X-Api_key: a"), header("X-Api_key: a", "X-Other: b"), header("X-Api_key: a", "X-Api_key: a")},
			{header("X-Api_key: A")},
			{header("X-Api_key: a,b")},
			{header("X-Api_key: ")},
			{header(), {}, {Header: map[string][]string{"X-Api_key": {}}}, header("X-Api-Key: a")},
		}},
		{"authorization", "[header:authorization]", [][]rule.Request{
			{sends("Bearer a"), sends("bEARER a"), sends("Bearer    a"), sends("Bearer\ta "), sends("Bearer \xa0a"), sends("bearer a b"), sends("bearer a\xa0b")},
			{sends("Bearer A")},
			{sends("Bearera")},
			{sends("Bearer")},
			{sends("bearer")},
			{sends("a")},
			{sends("A")},
			{sends("Bearer h.p.aQ"), sends("Bearer h.p.aR"), sends("Bearer h.p.aQ=="), sends("Bearer h.p.a!Q"), sends("Bearer h.p.aQ ")},
			{sends("Bearer h.P.aQ")},
			{sends("Bearer h.p.aQ.a")},
			{sends("Bearer h.p.-_-_"), sends("Bearer h.p.+/+/")},
			{sends("Basic YWxpY2U6cHc="), sends("bASIC  YWxpY2U6cHc"), sends("Basic YWxpY2U6cHd="), sends("Basic YWxpY2U6cHc===="), sends("Basic YWxp Y2U6cHc="),
				sends("Basic YWxp!Y2U6\xffcHc=!"), sends("Basic YWxpY2U6cHcA"), sends("Basic YWxpY2U6cHc\t=")},
			{sends("Basic YWxpY2U6cHcx")},
			{sends("Basic alice:pw")},
			{sends("Basic ="), sends("Basic !")},
			{sends("Digest a=\"b\",  c"), sends("DIGEST  a=\"b\",  c")},
			{sends("Digest a=\"b\", c")},
			{sends("Basic YWxpY2U6cHc=A"), sends("Basic YW=xpY2U6cHc="), sends("Bearer h.p.a=Q"), sends("Basic " + strings.Repeat("a", 5000)), sends("1", "2", "3", "4", "5")},
		}},
		{"cookie", "[cookie:sid]", [][]rule.Request{
			{cookie("sid=a"), cookie("sid=a;"), cookie("x=y; sid=a; z"), cookie("x=y", "sid=a"), cookie(";;sid=a"), cookie(" sid = a "), cookie(`sid="a"`), cookie("x=y;sid=a"), cookie("x=y;\tsid=a"), cookie("sid=a; sid=a", `sid="a"`),
				cookie("sid=%61"), cookie(`sid="%61"`), cookie(`sid="\141"`), cookie(`sid="\a"`), cookie("sid=%61; sid=a"), cookie("sid=a\xa0"), cookie("sid=\x85 a"), cookie("\xa0sid=a")},
			{cookie("sid=A"), cookie("sid=%41")},
			{cookie("sid=%2541"), cookie("sid=%25%34%31")},
			{cookie("sid=%zz"), cookie("sid=%25zz")},
			{cookie(`sid=\141`), cookie(`sid="\\141"`), cookie("sid=%5c141")},
			{cookie(`sid="\"`), cookie(`sid=\`)},
			{cookie(`sid="\14"`), cookie(`sid=14`)},
			{cookie("sid=a=b"), cookie("sid=a%3Db")},
			{cookie("sid=a%3Bb")},
			{cookie(`sid="a`)},
			{cookie(`sid=""a""`)},
			{cookie(`sid="`)},
			{cookie("sid=a%20b"), cookie("sid=a b"), cookie("sid=a+b"), cookie("sid=a%2Bb")},
			{cookie("sid="), cookie("sid"), cookie(`sid=""`), cookie("x; sid")},
			{cookie(), cookie(""), cookie("SID=a"), cookie("xsid=a"), cookie("x=sid=a"), {}, header("cookie: sid=a")},
		}},
		{"query", "[query:q]", [][]rule.Request{
			{query("q=a"), query("&q=a&"), query("?q=a"), query("?+q=a"), query("q[]=a"), query("[q]=a"), query("q%00x=a"), query("x;q=a"), query("x=y&q=a"), query("%71=%61"), query("q=a&Q=b"), query("q=a&q=%61")},
			{query("q=a b"), query("q=a+b"), query("q=a%20b")},
			{query("q=a%2Bb"), query("q=a%2bb")},
			{query("q=a,b"), query("q=a%2Cb")},
			{query("q=a;q=b"), query("q=a%3Bq%3Db")},
			{query("q=a=b"), query("q=a%3Db")},
			{query("q=a%26q=b"), query("q=a%26q%3Db")},
			{query("q=%"), query("q=%25")},
			{query("q=%zz"), query("q=%25zz")},
			{query("q=%2541"), query("q=%25%34%31")},
			{query("q=%41"), query("q=A")},
			{query("q="), query("q"), query("q&q="), query("x&q"), query("%71"), query("q[]")},
			{query(""), query("q%3Da"), query("x=q"), query("qq=a"), query("=q"), query("q%7=a"), query("x;q"), query("%7=a"), query("q+=a"), query("Q=a")},
		}},
		{"query whose name has a space", `["query:a b"]`, [][]rule.Request{
			{query("a+b=1"), query("a%20b=1"), query("a b=1"), query("%61+%62=1")},
			{query("a%2Bb=1"), query("ab=1"), query("a++b=1"), query("a+=1"), query("a+b+=1"), query("a%20=1")},
		}},
		{"several", "[header:a, header:b, query:c]", [][]rule.Request{
			{header("A: x", "B: y")},
			{header("A: y", "B: x")},
			{header("A: x")},
			{header("B: x")},
			{header("A: ", "B: ")},
			{{Query: "c=x"}},
			{{}},
		}},
	} {
		r := keyed(t, test.characteristics)
		seen := map[string]int{}
		for i, group := range test.groups {
			first, _ := key(r, group[0])
			for _, req := range group {
				got, counted := key(r, req)
				if !counted || got != first {
					t.Errorf("%s: key of %+v = %q, %t, want %q as of %+v, true", test.name, req, got, counted, first, group[0])
				}
			}
			if j, ok := seen[first]; ok {
				t.Errorf("%s: %+v and %+v have the same key %q", test.name, test.groups[j][0], group[0], first)
			}
			seen[first] = i
		}
	}
}

// A request with several values is counted together with every request that has one of them.
func TestKeysOfSeveralValues(t *testing.T) {
	header := func(values ...string) rule.Request {
		return rule.Request{Header: map[string][]string{"A": values}}
	}
	query := func(q string) rule.Request { return rule.Request{Query: q} }
	cookie := func(line string) rule.Request { return rule.Request{Header: map[string][]string{"Cookie": {line}}} }
	both := func(a, b []string) rule.Request { return rule.Request{Header: map[string][]string{"A": a, "B": b}} }
	one := func(a, b string) rule.Request { return both([]string{a}, []string{b}) }
	path := func(p string) rule.Request { return rule.Request{Path: p} }
	for _, test := range []struct {
		name, characteristics string
		req                   rule.Request
		want                  []rule.Request // with one value each
	}{
		{"two", "[header:a]", header("x", "y"), []rule.Request{header("x"), header("y")}},
		{"one of them twice", "[header:a]", header("x", "y", "x"), []rule.Request{header("x"), header("y")}},
		{"an empty one", "[header:a]", header("", "y"), []rule.Request{header(""), header("y")}},
		{"four", "[header:a]", header("a", "b", "c", "d", "b"), []rule.Request{header("a"), header("b"), header("c"), header("d")}},
		{"cookies in two lines", "[cookie:a]", rule.Request{Header: map[string][]string{"Cookie": {"a=1; b=2", "a=3"}}},
			[]rule.Request{{Header: map[string][]string{"Cookie": {"a=1"}}}, {Header: map[string][]string{"Cookie": {"a=3"}}}}},
		{"parameters", "[query:user]", rule.Request{Query: "user=a&x&%75ser=%62"}, []rule.Request{{Query: "user=a"}, {Query: "user=b"}}},
		{"two, and another header missing", "[header:a, header:b]", header("x", "y"), []rule.Request{header("x"), header("y")}},
		{"two, and one of another header", "[header:b, header:a]", both([]string{"x", "y"}, []string{"z"}), []rule.Request{one("x", "z"), one("y", "z")}},
		{"two of two", "[header:a, header:b]", both([]string{"1", "2"}, []string{"3", "4"}),
			[]rule.Request{one("1", "3"), one("2", "3"), one("1", "4"), one("2", "4")}},
		{"a semicolon after a parameter", "[query:user]", query("user=a;x&y"), []rule.Request{query("user=a%3Bx"), query("user=a")}},
		{"parameters separated by semicolons", "[query:user]", query("x=1;user=a;user=b"), []rule.Request{query("user=a"), query("user=b")}},
		{"blanks around a parameter", "[query:user]", query("user=+a%E2%80%83&x"), []rule.Request{query("user=+a%E2%80%83"), query("user=a")}},
		{"control characters in a parameter", "[query:user]", query("user=a%01b%0A"), []rule.Request{query("user=a%01b%0A"), query("user=a+b")}},
		{"an index with an equals sign", "[query:user]", query("user[]=x]=a"), []rule.Request{query("user=x]=a"), query("user=a")}},
		{"a name as PHP writes it", "[query:a_b]", query("a.b=1&a+b=2&a[b=3"), []rule.Request{query("a_b=1"), query("a_b=2"), query("a_b=3")}},
		{"a cookie's name as PHP writes it", "[cookie:a_b]", cookie("a.b=1; a b=2; a[b=3; a_b[]=4"), []rule.Request{cookie("a_b=1"), cookie("a_b=2"), cookie("a_b=3"), cookie("a_b=4")}},
		{"a cookie after a blank", "[cookie:a]", cookie("x=1 a=2\ta = 3"), []rule.Request{cookie("a=2"), cookie("a=3")}},
		{"a cookie before a cookie", "[cookie:a]", cookie("a=1 x=2"), []rule.Request{cookie("a=1 x=2"), cookie("a=1")}},
		{"a cookie before an attribute", "[cookie:a]", cookie("a=1 Secure"), []rule.Request{cookie("a=1 Secure"), cookie("a=1")}},
		{"a cookie before an invalid one", "[cookie:a]", cookie(`a="1 2" "`), []rule.Request{cookie(`a="1 2" "`), cookie(`a="1 2"`)}},
		{"an unclosed quote", "[cookie:a]", cookie(`a="1x; b`), []rule.Request{cookie(`a="1x`), cookie("a=1")}},
		{"the two alphabets of base64", "[header:proxy-authorization]", rule.Request{Header: map[string][]string{"Proxy-Authorization": {"Basic YW-xpY2U6"}}},
			[]rule.Request{{Header: map[string][]string{"Proxy-Authorization": {"Basic YWxpY2U6"}}}, {Header: map[string][]string{"Proxy-Authorization": {"Basic YW+xpY2U6"}}}}},
		{"path after a host", "[path]", path("//localhost/Login/"), []rule.Request{path("/localhost/login"), path("/login")}},
		{"path with dot segments", "[path]", path("/a/..;/b"), []rule.Request{path("/b"), path("/a/%2e./b")}},
	} {
		r := keyed(t, test.characteristics)
		got := keysOf(r, test.req)
		var want []string
		for _, req := range test.want {
			want = append(want, keysOf(r, req)[0])
		}
		sort := cmpopts.SortSlices(strings.Compare)
		if test.name == "path with dot segments" {
			want = want[:1] // and the literal ones, which no request has alone
			got = slices.DeleteFunc(got, func(k string) bool { return !slices.Contains(want, k) })
		}
		if diff := cmp.Diff(want, got, sort); diff != "" {
			t.Errorf("%s (-want +got):\n%s", test.name, diff)
		}
	}

	// More than four combinations have one key, which contains only characteristics with one value.
	r := keyed(t, "[header:a, header:b]")
	many := []string{"1", "2", "3", "4", "5"}
	for _, test := range []struct {
		name       string
		a, b       []string
		like, than []string // values of b that give the same key, and a different one
	}{
		{"five", many, []string{"x"}, []string{"x"}, []string{"y"}},
		{"five and none", many, nil, nil, []string{"x"}},
		{"three and two", []string{"1", "2", "3"}, []string{"x", "y"}, []string{"x", "y", "z"}, []string{"x"}},
	} {
		got := keysOf(r, both(test.a, test.b))
		like := keysOf(r, both(append([]string{"6"}, many...), test.like))
		than := keysOf(r, both(append([]string{"6"}, many...), test.than))
		if len(got) != 1 || !slices.Equal(got, like) || slices.Equal(got, than) {
			t.Errorf("%s: keys are %q, want one, %q, not %q", test.name, got, like, than)
		}
	}
}

// An ordinary value, even one that some frameworks do not expect, has no keys of other values.
func TestOrdinaryValuesHaveOneKey(t *testing.T) {
	for _, value := range []string{"a", "a,b", "John Smith", "New York, NY", `{"a":1,"b":"c"}`, `"John Smith"`, "s%3Aa.b%2Bc", "a=b==", "voilà", "caf\xe9", "日本語", "%E6%97%A5", "a:b"} {
		header := map[string][]string{"Cookie": {"x=1; a=" + value + "; y=2"}, "A": {value}}
		for _, req := range []rule.Request{{Header: header}, {Query: "x=1&a=" + url.QueryEscape(value) + "&y"}} {
			for _, characteristic := range []string{"[header:a]", "[cookie:a]", "[query:a]"} {
				if keys := keysOf(keyed(t, characteristic), req); len(keys) != 1 {
					t.Errorf("%s of %q has the keys %q, want one", characteristic, value, keys)
				}
			}
		}
	}
}

// Only a bounded number of the cookies or parameters with the same name are read.
func TestRepeatedPairs(t *testing.T) {
	for _, repeated := range []string{"user=x&", "user=&", "user&", "%75ser=x;", "user=x;", "[user]=x&", "user = x; ", "user=a;%41=", "user ", "user=x ", `user="x`, "user=x\t"} {
		for _, cookies := range []bool{false, true} {
			const more = 5000
			if n := rule.Pairs(strings.Repeat(repeated, more), "user", cookies); n > 9 {
				t.Errorf("of %d times %q, %d are read as cookies: %t", more, repeated, n, cookies)
			}
		}
	}
	r := keyed(t, "[ip, query:user]")
	repeated := func(n int) []string { return keysOf(r, rule.Request{Query: strings.Repeat("user=x&", n)}) }
	if got, want := repeated(8), repeated(1); !slices.Equal(got, want) {
		t.Errorf("the keys of 8 parameters are %q, want %q", got, want)
	}
	many := keysOf(r, rule.Request{Query: "user=1&user=2&user=3&user=4&user=5"})
	for _, n := range []int{9, 10, 200} {
		if got := repeated(n); !slices.Equal(got, many) {
			t.Errorf("the keys of %d parameters are %q, want %q, of several values", n, got, many)
		}
	}
	for n, want := range map[int][]string{255: repeated(1), 256: many} {
		for _, other := range []string{"+&", "a&", "&"} {
			if got := keysOf(r, rule.Request{Query: strings.Repeat(other, n) + "user=x"}); !slices.Equal(got, want) {
				t.Errorf("the keys of a parameter after %d times %q are %q, want %q", n, other, got, want)
			}
		}
	}
}

// Only a bounded number of the lines of a header are read, and kept at all. Cookies may be one to a line, as in HTTP/2.
func TestRepeatedLines(t *testing.T) {
	r := keyed(t, "[ip, header:x-api-key]")
	keys := func(values ...string) []string {
		return keysOf(r, rule.Request{Header: map[string][]string{"X-Api-Key": values}})
	}
	one, many := keys("a"), keys("a", "b", "c", "d", "e")
	for n, want := range map[int][]string{8: one, 9: many, 100: many} {
		if got := keys(slices.Repeat([]string{"a"}, n)...); !slices.Equal(got, want) {
			t.Errorf("the keys of %d equal lines are %q, want %q", n, got, want)
		}
	}
	sessions := keyed(t, "[header:x-api-key, cookie:a]")
	set := rule.NewSet([]*rule.Rule{sessions}, nil, 0)
	header := map[string][]string{}
	for range 100 {
		set.AddField(header, "X_Api_Key", "a")
		set.AddField(header, "Cookie", "b=1")
	}
	if lines, cookies := len(header["X-Api-Key"]), len(header["Cookie"]); lines != 9 || cookies != 100 {
		t.Errorf("of 100 lines, %d were kept of a header and %d of cookies", lines, cookies)
	}
}

// A cookie or parameter that is longer than any that a browser sends counts as several values, without being decoded.
func TestLongValues(t *testing.T) {
	for _, characteristic := range []string{"[ip, query:user]", "[ip, cookie:user]"} {
		r := keyed(t, characteristic)
		keys := func(value string) []string {
			return keysOf(r, rule.Request{Query: "user=" + value, Header: map[string][]string{"Cookie": {"user=" + value}}})
		}
		for n, long := range map[int]bool{4096: false, 4097: true, 9000: true} {
			a, b := keys(strings.Repeat("a", n)), keys(strings.Repeat("b", n))
			if len(a) != 1 || slices.Equal(a, b) != long {
				t.Errorf("%s: values of %d bytes have equal keys: %t, want %t", characteristic, n, !long, long)
			}
			if long && len(a[0]) > 100 {
				t.Errorf("%s: a value of %d bytes has a key of %d bytes", characteristic, n, len(a[0]))
			}
		}
	}
}

func keysOf(r *rule.Rule, req rule.Request) (all []string) {
	req.Canonicalize(rule.ClientPrefix{})
	keys := r.Keys([]byte("before"), &req)
	for i := range keys.Len() {
		all = append(all, string(keys.At(i)))
	}
	return all
}

func TestAppendKeyTellsRulesApart(t *testing.T) {
	limits := "limits: [{threshold: 5, period: 1m}]"
	set := parse(t, "rules:\n"+
		"- {id: a, characteristics: [header:b], "+limits+"}\n"+
		"- {id: ab, characteristics: [header:b], "+limits+"}\n"+
		"- {id: c, characteristics: [cookie:b], "+limits+"}\n"+
		"- {id: d, characteristics: [header:b, header:c], "+limits+"}\n"+
		"- {id: e, characteristics: [header:c, header:b], "+limits+"}\n")
	seen := map[string]string{}
	for _, r := range set.Rules() {
		got, _ := key(r, rule.Request{})
		if other, ok := seen[got]; ok {
			t.Errorf("rules %s and %s have the same key %q", r.ID, other, got)
		}
		seen[got] = r.ID
	}
}

func TestAppendKeySkip(t *testing.T) {
	r := keyed(t, "[ip, {header: x-api-key, missing: skip}, {cookie: sid, missing: skip}, {query: q, missing: skip}]")
	all := func() rule.Request {
		return rule.Request{Query: "q=", Header: map[string][]string{"X-Api-Key": {""}, "Cookie": {"sid"}}}
	}
	if _, counted := key(r, all()); !counted {
		t.Errorf("a request with empty values is not counted")
	}
	for name, drop := range map[string]func(*rule.Request){
		"header": func(req *rule.Request) { delete(req.Header, "X-Api-Key") },
		"cookie": func(req *rule.Request) { req.Header["Cookie"] = []string{"SID=a"} },
		"query":  func(req *rule.Request) { req.Query = "Q=" },
	} {
		req := all()
		drop(&req)
		if got, counted := key(r, req); counted {
			t.Errorf("a request without the %s is counted under %q", name, got)
		}
	}
	// Rules cannot skip requests without an address.
	if _, counted := key(keyed(t, "[ip, host, path, method]"), rule.Request{}); !counted {
		t.Error("an empty request is not counted by a rule that skips nothing")
	}
}

func TestAppendKeyAppends(t *testing.T) {
	r := keyed(t, "[host]")
	req := rule.Request{Host: "a"}
	alone, _ := r.AppendKey(nil, &req)
	behind, _ := r.AppendKey([]byte("x"), &req)
	if !bytes.Equal(behind, append([]byte("x"), alone...)) {
		t.Errorf("AppendKey after x = %q, alone %q", behind, alone)
	}
}
