package rule_test

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/edgelimit/edge/pop/rule"
	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

// from returns a GET request of an address, with headers "Name: value".
func from(addr string, fields ...string) rule.Request {
	req := rule.Request{Method: "GET", Path: "/", Header: map[string][]string{}}
	req.Addr, _ = netip.ParseAddr(addr)
	for _, field := range fields {
		name, value, _ := strings.Cut(field, ": ")
		req.Header[name] = append(req.Header[name], value)
	}
	return req
}

// loaded returns the rules of rules.yaml among files, which rules name.
func loaded(t *testing.T, files map[string]string) (*rule.Set, error) {
	t.Helper()
	dir := write(t, files)
	set, err := rule.Load(dir + "/rules.yaml")
	if err != nil {
		err = errors.New(strings.ReplaceAll(err.Error(), dir+"/", ""))
	}
	return set, err
}

// Addresses of the same network have the same key, others have different ones.
func TestNetworkKeys(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		ipv4, ipv6 := rapid.IntRange(1, 31).Draw(t, "ipv4"), rapid.IntRange(1, 64).Draw(t, "ipv6")
		set, err := rule.Parse("r.yaml", []byte(withCharacteristics(fmt.Sprintf("[network:%d/%d]", ipv4, ipv6))))
		if err != nil {
			t.Fatal(err)
		}
		bits := map[bool]int{true: ipv4, false: ipv6}
		addr := rapid.Custom(func(t *rapid.T) netip.Addr {
			b := rapid.SliceOfN(rapid.Byte(), 16, 16).Draw(t, "bytes")
			if rapid.Bool().Draw(t, "IPv4") {
				return netip.AddrFrom4([4]byte(b))
			}
			return netip.AddrFrom16([16]byte(b)).Unmap()
		})
		a := addr.Draw(t, "a")
		b := addr.Draw(t, "b")
		if rapid.Bool().Draw(t, "flip a bit") {
			raw, at := a.AsSlice(), rapid.IntRange(0, a.BitLen()-1).Draw(t, "bit")
			raw[at/8] ^= 1 << (7 - at%8)
			b, _ = netip.AddrFromSlice(raw)
			b = b.Unmap()
		}
		network, _ := a.Prefix(bits[a.Is4()])
		one, _ := key(set.Rules()[0], rule.Request{Addr: a})
		other, _ := key(set.Rules()[0], rule.Request{Addr: b})
		if same := one == other; same != network.Contains(b) {
			t.Fatalf("%v and %v have the same key: %t; their networks: IPv4 /%d, IPv6 /%d", a, b, same, ipv4, ipv6)
		}
	})
}

// The longest prefix determines the label, and rules do not apply to addresses without one.
func TestLabels(t *testing.T) {
	set, err := loaded(t, map[string]string{
		"rules.yaml": "labels: {asn: {file: asn.txt}}\n" + withCharacteristics("[label:asn]"),
		"asn.txt":    "\ufeff192.0.2.0/24 AS64500 # a provider\r\n192.0.2.128/25,Example Hosting\n\n2001:db8::/32\tAS64500\n",
	})
	if err != nil {
		t.Fatal(err)
	}
	of := func(addr string) string {
		k, counted := key(set.Rules()[0], from(addr))
		return fmt.Sprint(counted, k)
	}
	if one := of("192.0.2.1"); one != of("2001:db8::1") || one == of("192.0.2.129") || !strings.Contains(of("192.0.2.129"), "Example Hosting") {
		t.Errorf("keys: %q, %q, %q", one, of("2001:db8::1"), of("192.0.2.129"))
	}
	if k, counted := key(set.Rules()[0], from("198.51.100.1")); counted {
		t.Errorf("an address without a label has the key %q", k)
	}
	req, err := set.Rules()[0].RequestOf("Example Hosting")
	if k, _ := key(set.Rules()[0], req); err != nil || fmt.Sprint(true, k) != of("192.0.2.200") {
		t.Errorf("RequestOf(Example Hosting) = %v, %v", req, err)
	}
	if _, err := set.Rules()[0].RequestOf("AS1"); err == nil {
		t.Error("RequestOf(AS1) has no error")
	}
}

func TestLabelErrors(t *testing.T) {
	rules := "labels: {asn: {file: asn.txt}}\n" + withCharacteristics("[label:asn]")
	for _, test := range []struct{ name, rules, file, want string }{
		{"no network", rules, "x AS1\n", `asn.txt:1:1: "x" is not a network (write a network such as 192.0.2.0/24 or 2001:db8::/32, or one address)`},
		{"no label", rules, "# one\n 192.0.2.0/24\n", `asn.txt:2:2: "192.0.2.0/24" has no label`},
		{"twice", rules, "192.0.2.0/24 a\n192.0.2.0/24 b\n", "asn.txt:2:1: 192.0.2.0/24 is listed twice"},
		{"long", rules, "192.0.2.0/24 " + strings.Repeat("a", 65), "asn.txt:1:1: a label has 65 bytes"},
		{"empty", rules, "# nothing\n", "asn.txt: the file has no labels"},
		{"unknown", "labels: {asn: {file: asn.txt}}\n" + withCharacteristics("[label:ans]"), "192.0.2.0/24 a\n", `rules.yaml:4:21: there are no labels "ans" (did you mean asn?)`},
		{"none", withCharacteristics("[ip, label:asn]"), "", `there are no labels "asn" (write labels: at the beginning of a line`},
		{"no file", "labels: {asn: {file: other.txt}}\n" + withCharacteristics("[label:asn]"), "", "rules.yaml:1:22: open other.txt: no such file"},
		{"an alternative", "labels: {asn: {file: asn.txt}}\n" + withCharacteristics("[{first: [label:x, ip]}]"), "192.0.2.0/24 a\n", `there are no labels "x"`},
	} {
		set, err := loaded(t, map[string]string{"rules.yaml": test.rules, "asn.txt": test.file})
		if err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: %v, %v, want the error %s", test.name, set, err, test.want)
		}
	}
	if set, err := rule.Parse("r.yaml", []byte(rules)); err == nil || !strings.Contains(err.Error(), "rules that are not in a file cannot name one") {
		t.Errorf("Parse = %v, %v", set, err)
	}
}

// A request is counted by the first alternative that it has. Alternatives never share values.
func TestFirst(t *testing.T) {
	r := keyed(t, "[{first: [cookie:sid, {header: x-key, missing: skip}, ip]}, host]")
	keys := map[string]string{}
	for name, req := range map[string]rule.Request{
		"cookie":           from("192.0.2.1", "Cookie: sid=1", "X-Key: 2"),
		"other cookie":     from("192.0.2.1", "Cookie: sid=2"),
		"header":           from("192.0.2.1", "X-Key: 1"),
		"address":          from("192.0.2.1", "Cookie: other=1"),
		"another address":  from("192.0.2.2"),
		"no address":       from(""),
		"two cookies":      from("192.0.2.1", "Cookie: sid=3; sid=4"),
		"an empty cookie":  from("192.0.2.1", "Cookie: sid="),
		"cookie of four":   from("192.0.2.1", "Cookie: sid=\xc0\x00\x02\x01"),
		"a header of four": from("192.0.2.1", "X-Key: \xc0\x00\x02\x01"),
	} {
		k, counted := key(r, req)
		if !counted {
			t.Errorf("%s is not counted", name)
		}
		if same, twice := keys[k]; twice {
			t.Errorf("%s and %s have the same key", name, same)
		}
		keys[k] = name
	}
	a, _ := key(r, from("192.0.2.1", "Cookie: sid=1"))
	b, _ := key(r, from("192.0.2.9", "Cookie: sid=1"))
	if a != b {
		t.Error("the same cookie from two addresses has two keys")
	}
	skips := keyed(t, "[{first: [cookie:sid, {header: x-key, missing: skip}]}]")
	if k, counted := key(skips, from("192.0.2.1")); counted {
		t.Errorf("without the last alternative, which is to be skipped, the key is %q", k)
	}
}

func TestWidth(t *testing.T) {
	order := []string{"[ip]", "[network:24/48]", "[network:16/32, path]", "[network:8/16]", "[label:a]", "[host]"}
	last := -1
	for i, each := range order {
		set, err := loaded(t, map[string]string{"rules.yaml": "labels: {a: {file: a.txt}}\n" + withCharacteristics(each), "a.txt": "192.0.2.0/24 x\n"})
		if err != nil {
			t.Fatal(err)
		}
		r := set.Rules()[0]
		if got, parent := r.Width(), r.Parent(); got <= last || parent != (i > 0 && i < len(order)-1) {
			t.Errorf("Width of %s = %d, Parent = %t; that before is %d", each, got, parent, last)
		}
		last = r.Width()
	}
	for _, each := range []string{"[ip, network:24/48]", "[host, header:a]", "[{first: [header:a, ip]}]"} {
		if got := keyed(t, each).Width(); got != 0 {
			t.Errorf("Width of %s = %d", each, got)
		}
	}
}

// The notes name a rule that limits clients that send a new value with each request, or suggest one.
func TestMadeUpValues(t *testing.T) {
	const byKey = `{id: key, characteristics: [{first: [header:a, ip]}], limits: [{threshold: 5, period: 1m}], match: {paths: [/a, /b]}}`
	for _, test := range []struct{ name, other, want string }{
		{"none", "", "no other rule limits it. Add one by ip alone with the same match, such as {id: key-by-ip, characteristics: [ip], limits: …}"},
		{"by ip", "characteristics: [ip]", "rule bound, by client address, limits it"},
		{"by network", "characteristics: [network:24/48], match: {paths: [/a, /b, /c]}", "rule bound, by network (IPv4 /24, IPv6 /48), limits it"},
		{"of fewer paths", "characteristics: [ip], match: {paths: [/a]}", "no other rule limits it"},
		{"of a method", "characteristics: [ip], match: {methods: [GET]}", "no other rule limits it"},
		{"with exceptions", "characteristics: [ip], except: {paths: [/a]}", "no other rule limits it"},
		{"of some answers", "characteristics: [ip], count: {statuses: [401]}", "no other rule limits it"},
		{"that sheds", "characteristics: [network:24/48], action: shed", "no other rule limits it"},
		{"of many clients", "characteristics: [network:24/48], min_clients: 2", "no other rule limits it"},
		{"that logs", "characteristics: [ip], action: log", "no other rule limits it"},
		{"by header", "characteristics: [header:b]", "no other rule limits it"},
	} {
		rules := "rules: [" + byKey
		if test.other != "" {
			rules += ", {id: bound, limits: [{threshold: 5, period: 1m}], " + test.other + "}"
		}
		set := parse(t, rules+"]")
		if notes := strings.Join(set.Notes(set.Rules()[0]), "\n"); !strings.Contains(notes, "is never counted twice: "+test.want) {
			t.Errorf("%s: %s\nwant %s", test.name, notes, test.want)
		}
	}
}

func TestSharedErrors(t *testing.T) {
	for text, want := range map[string]string{
		withKeys("action: shed"):                                                       "action: shed is for keys that many clients share",
		withKeys("min_clients: 2"):                                                     "min_clients is for keys that many clients share",
		withKeys("min_clients: 101"):                                                   "write a whole number from 1 to 100",
		withCharacteristics("[network:24]"):                                            "write network:24/48",
		withCharacteristics("[network:32/48]"):                                         "up to 31 bits",
		withCharacteristics("[network:24/65]"):                                         "up to 64",
		withCharacteristics("[network:024/48]"):                                        "write network:24/48",
		withCharacteristics("[network]"):                                               "network needs the sizes",
		withCharacteristics("[first:ip]"):                                              "write {first: [cookie:sid, ip]}",
		withCharacteristics("[{first: [ip]}]"):                                         "first needs at least two alternatives",
		withCharacteristics("[{first: [ip, ip]}]"):                                     "ip is listed twice",
		withCharacteristics("[{first: [ip, {first: [ip, host]}]}]"):                    "first cannot contain first",
		withCharacteristics("[{first: [header:a, ip], missing: skip}]"):                "first cannot have missing",
		withCharacteristics("[host]") + "  action: shed\n  count: {statuses: [401]}\n": "cannot have action: shed",
		"rules: [{id: a, characteristics: [host], limits: [{threshold: 5, period: 1m, sub_windows: 2}], action: shed}]": "a rule with sub_windows cannot have action: shed",
	} {
		if _, err := rule.Parse("r.yaml", []byte(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("Parse(%q) = %v, want an error with %q", text, err, want)
		}
	}
}

// The rules in docs/rules.md are valid, and do what it says.
func TestDocumentedParents(t *testing.T) {
	set, err := loaded(t, map[string]string{
		"rules.yaml":    documentedText(t, "Attacks from many addresses"),
		"providers.txt": "198.51.100.0/24 Example Hosting\n",
	})
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	for _, r := range set.Rules() {
		got[r.ID] = r.Describe()
	}
	const shed = "its further requests are refused with 429 Too Many Requests for as many of its clients as exceed the threshold, until the estimate is back at the threshold."
	want := map[string]string{
		"client":   "All requests are counted for each client address; once one has more than 60 in 10s, its further requests are refused with 429 Too Many Requests until the estimate is back at the threshold.",
		"block":    "All requests are counted for each network (IPv4 /24, IPv6 /48); once one has more than 200 in 10s, from at least 10 clients, " + shed,
		"wide":     "All requests are counted for each network (IPv4 /16, IPv6 /32); once one has more than 2000 in 10s, from at least 30 clients, " + shed,
		"provider": "All requests are counted for each label provider; once one has more than 5000 in 10s, from at least 30 clients, " + shed,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("what the rules mean (-want +got):\n%s", diff)
	}
	if clients := set.Rules()[1].MinClients; clients != 10 || set.Rules()[1].Action != rule.Shed {
		t.Errorf("block has min_clients %d and action %v", clients, set.Rules()[1].Action)
	}
}
