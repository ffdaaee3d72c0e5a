package mix_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/edgelimit/edge/internal/strictyaml"
	"github.com/edgelimit/edge/load/mix"
)

// head begins a file with a component without a kind.
const head = "duration: 1m\ncomponents:\n- name: a\n  "

// invalid are rejected files, with all of their errors.
var invalid = []struct {
	name, text string
	want       []string
}{
	{"empty file", "", []string{`m.yaml: the file is empty (begin it with the lines "duration: 10m" and "components:")`}},
	{"only null", "~\n", []string{`m.yaml: the file is empty (begin it with the lines "duration: 10m" and "components:")`}},
	{"a list", "[]\n", []string{`m.yaml:1:1: the file is a list, not a mapping (its keys are seed, start, duration, requests and components)`}},
	{"no components", "duration: 1m\n", []string{`m.yaml:1:1: the file has no components (write components: and a list of them, each with a name and one of steady, zipf, pages, flash_crowd, boundary, on_off, botnet, spread, guessing or random_keys)`}},
	{"empty list of components", "duration: 1m\ncomponents: []\n", []string{`m.yaml:2:13: components is an empty list (begin every component with "- name:")`}},
	{"components not a list", "duration: 1m\ncomponents: {}\n", []string{`m.yaml:2:13: components is a mapping, not a list (begin every component with "- name:")`}},
	{"second document", "duration: 1m\n---\nduration: 1m\n", []string{`m.yaml:2:1: a second document begins here (write one document into each file)`}},
	{"bracket not closed", "duration: [\n", []string{`m.yaml:1:11: something is missing at the end of the file (close every bracket, brace and quote)`}},
	{"tab indents a line", "\tduration: 1m\n", []string{`m.yaml:1:1: a tab character indents this line (indent with spaces instead of tabs)`}},
	{"key twice", "duration: 1m\nduration: 2m\ncomponents: [{name: a, steady: {clients: 1, rate: 1/s}}]\n", []string{`m.yaml:2:1: duration is in the file twice, first in line 1 (remove one of them)`}},
	{"not UTF-8", "duration: \xff\n", []string{`m.yaml:1:11: the byte 0xff is not UTF-8 (save the file as UTF-8)`}},
	{"no unit", "duration: 60\ncomponents: [{name: a, steady: {clients: 1, rate: 1/s}}]\n", []string{`m.yaml:1:11: duration cannot be "60" (write whole numbers with units, such as 250ms, 10s, 1h30m or 7d; at most 366d)`}},
	{"bad values of the file", "seed: -1\nstart: yesterday\nduration: 1.5h\nrequests: 0\ncomponents: [{name: a, steady: {clients: 1, rate: 1/s}}]\n", []string{
		`m.yaml:1:7: seed cannot be "-1" (write a whole number from 0 to 18446744073709551615)`,
		`m.yaml:2:8: start cannot be "yesterday" (write it as 2026-01-01T00:00:00Z, from 1970 to 2200)`,
		`m.yaml:3:11: duration cannot be "1.5h" (write whole numbers with units, such as 250ms, 10s, 1h30m or 7d; at most 366d)`,
		`m.yaml:4:11: requests cannot be "0" (write a whole number from 1 to 9223372036854775808)`,
	}},
	{"too short", "duration: 500ms\ncomponents: [{name: a, steady: {clients: 1, rate: 1/s}}]\n", []string{`m.yaml:1:11: duration cannot be "500ms" (must be from 1s to 366d)`}},
	{"too long", "duration: 400d\ncomponents: [{name: a, steady: {clients: 1, rate: 1/s}}]\n", []string{`m.yaml:1:11: duration cannot be "400d" (write whole numbers with units, such as 250ms, 10s, 1h30m or 7d; at most 366d)`}},
	{"a name for a component", "duration: 1m\ncomponents: [a]\n", []string{`m.yaml:2:14: this component is the string "a", not a mapping (its keys are name, attack, from, to, clients_of, addresses, diurnal, request, steady, zipf, pages, flash_crowd, boundary, on_off, botnet, spread, guessing and random_keys)`}},
	{"no kind", head, []string{`m.yaml:3:3: this component has no kind (give it one of steady, zipf, pages, flash_crowd, boundary, on_off, botnet, spread, guessing and random_keys)`}},
	{"kind misspelled", head + "stedy: {clients: 1, rate: 1/s}\n", []string{`m.yaml:4:3: unknown key "stedy" in this component (did you mean steady?)`}},
	{"two kinds", head + "steady: {clients: 1, rate: 1/s}\n  zipf: {clients: 1, rate: 1/s, exponent: 1}\n", []string{`m.yaml:3:3: this component has 2 kinds (make a component for each)`}},
	{"bad values of steady", head + "steady: {clients: 0, rate: fast, poisson: yes}\n", []string{
		`m.yaml:4:21: clients cannot be "0" (write a whole number from 1 to 16777216)`,
		`m.yaml:4:30: rate cannot be "fast" (write requests per duration, such as 50/1m or 2_000/s; the duration is at most 31d)`,
		`m.yaml:4:45: poisson is the string "yes", not true or false (write poisson: true)`,
	}},
	{"too much for steady", head + "steady: {clients: 16777217, rate: 1/32d, poison: true}\n", []string{
		`m.yaml:4:21: clients cannot be "16777217" (write a whole number from 1 to 16777216)`,
		`m.yaml:4:37: rate cannot be "1/32d" (write requests per duration, such as 50/1m or 2_000/s; the duration is at most 31d)`,
		`m.yaml:4:44: unknown key "poison" in steady (did you mean poisson?)`,
	}},
	{"too many requests", head + "steady: {clients: 1_000_000, rate: 1000/s}\n", []string{`m.yaml:4:11: this component has too many requests a second (at most 10 million a second)`}},
	{"list for a mapping", head + "steady: []\n", []string{`m.yaml:4:11: steady is a list, not a mapping (its keys are clients, rate and poisson)`}},
	{"no rate", head + "steady: {clients: 1}\n", []string{`m.yaml:4:11: steady has no rate (write rate: 50/1m)`}},
	{"bad values of zipf", head + "zipf: {clients: 1, rate: 0/s, exponent: -1, offset: 1e3}\n", []string{
		`m.yaml:4:28: rate cannot be "0/s" (write requests per duration, such as 50/1m or 2_000/s; the duration is at most 31d)`,
		`m.yaml:4:43: exponent cannot be "-1" (write a number from 0 to 10)`,
		`m.yaml:4:55: offset cannot be "1e3" (write a number from 0 to 1000000000)`,
	}},
	{"empty crowd", head + "flash_crowd: {clients: 1, rate: 1/s}\n", []string{`m.yaml:4:16: this crowd is empty: it has no ramp, hold or decay (write ramp: 30s, hold: 2m and decay: 10m)`}},
	{"bursts that overlap", head + "boundary: {clients: 1, requests: 5, period: 1m, width: 3m}\n", []string{`m.yaml:4:13: the bursts of this component overlap (make width shorter)`}},
	{"bursts once in a decade", head + "boundary: {clients: 1, requests: 5, period: 31d, every: 1000}\n", []string{`m.yaml:4:13: there is more than a year between the bursts of this component (make period or every smaller)`}},
	{"on for ever", head + "on_off: {clients: 1, rate: 1000/s, on: 31d, off: 1s}\n", []string{`m.yaml:4:11: a client of this component sends more than a billion requests before it pauses (use steady)`}},
	{"botnet with too large a spread", head + "botnet: {clients: 1, rate: 1/s, spread: 1}\n", []string{`m.yaml:4:43: spread cannot be "1" (write a number from 0 to 0.9)`}},
	{"bad values of spread", head + "spread: {clients: 1, rate: 1/s, requests: 0, prefix: 65, shared: 25}\n", []string{
		`m.yaml:4:11: spread has no networks (write networks: 200, or how many the clients are in)`,
		`m.yaml:4:45: requests cannot be "0" (write a whole number from 1 to 1000000)`,
		`m.yaml:4:56: prefix cannot be "65" (write a whole number from 8 to 64)`,
		`m.yaml:4:68: shared cannot be "25" (write a number from 0 to 1)`,
	}},
	{"spread with the clients of another component", head + "spread: {clients: 1, rate: 1/s, networks: 1}\n  clients_of: b\n- name: b\n  steady: {clients: 3, rate: 1/s}\n", []string{`m.yaml:5:15: spread has its own clients (leave clients_of out)`}},
	{"spread over both families", head + "spread: {clients: 1, rate: 1/s, networks: 1}\n  addresses: [192.0.2.0/24, 2001:db8::/48]\n", []string{`m.yaml:5:14: the addresses of spread are IPv4 and IPv6 (make a component for each)`}},
	{"spread over larger networks", head + "spread: {clients: 1, rate: 1/s, networks: 1, prefix: 16}\n  addresses: [192.0.2.0/24]\n", []string{`m.yaml:5:14: 192.0.2.0/24 has no networks of length 16 (choose another prefix)`}},
	{"spread over too many networks", head + "spread: {clients: 1, rate: 1/s, networks: 3}\n  addresses: [198.18.0.0/23]\n", []string{`m.yaml:5:14: [198.18.0.0/23] do not contain 3 free networks of length 24 (give it other addresses, or fewer networks or clients)`}},
	{"spread with too many clients", head + "spread: {clients: 257, rate: 1/s, networks: 1}\n", []string{`m.yaml:3:3: 10.96.130.0/24 has too few free addresses for its share of 257 clients (give it other addresses, or fewer networks or clients)`}},
	{"spread with too many shared networks", head + "spread: {clients: 4, rate: 1/s, networks: 4, shared: 0.5}\n- name: b\n  steady: {clients: 3, rate: 1/s}\n", []string{`m.yaml:3:3: cannot share 2 networks of length 24: legitimate clients are in only 1 (give it other addresses, or fewer networks or clients)`}},
	{"begins at the end", head + "steady: {clients: 3, rate: 1/s}\n  from: 1m\n", []string{`m.yaml:5:9: this component ends before it begins (from and to are counted from the start of the mix, which lasts 1m)`}},
	{"ends after the mix", head + "steady: {clients: 3, rate: 1/s}\n  to: 2m\n", []string{`m.yaml:5:7: this component ends after the mix (the duration of the mix is 1m)`}},
	{"ends before it begins", head + "steady: {clients: 3, rate: 1/s}\n  from: 30s\n  to: 10s\n", []string{`m.yaml:5:9: this component ends before it begins (from and to are counted from the start of the mix, which lasts 1m)`}},
	{"bad networks", head + "steady: {clients: 3, rate: 1/s}\n  addresses: [192.0.2.1/24, 192.0.2.0/24, 192.0.2.0/25, 2001:db8::/65, ::/0, x, 1]\n", []string{
		`m.yaml:5:15: "192.0.2.1/24" is an address within a network (write 192.0.2.0/24)`,
		`m.yaml:5:43: "192.0.2.0/25" overlaps an earlier network (leave it out)`,
		`m.yaml:5:57: "2001:db8::/65" is smaller than a /64 (every client has its own /64, since limiters treat it as one client)`,
		`m.yaml:5:72: "::/0" is too large (write /8 or more)`,
		`m.yaml:5:78: "x" is not a network (write a network such as 192.0.2.0/24 or 2001:db8::/48)`,
		`m.yaml:5:81: a network is the number 1, not a string (quote it: "1")`,
	}},
	{"too few addresses", head + "steady: {clients: 300, rate: 1/s}\n  addresses: [192.0.2.0/24]\n", []string{`m.yaml:5:14: there are 256 addresses for 300 clients (give it larger networks)`}},
	{"one network", head + "steady: {clients: 3, rate: 1/s}\n  addresses: 192.0.2.0/24\n", []string{`m.yaml:5:14: addresses is the string "192.0.2.0/24", not a list (write a list: [192.0.2.0/24])`}},
	{"no networks", head + "steady: {clients: 3, rate: 1/s}\n  addresses: []\n", []string{`m.yaml:5:14: addresses is an empty list (write a list: [192.0.2.0/24, 2001:db8::/48])`}},
	{"clients_of in a flood", head + "random_keys: {rate: 1/s}\n  clients_of: a\n", []string{`m.yaml:5:15: every request of random_keys has its own client (leave clients_of out)`}},
	{"clients_of an unknown component", head + "steady: {clients: 3, rate: 1/s}\n  clients_of: b\n", []string{`m.yaml:5:15: there is no component "b" (there are a)`}},
	{"clients_of itself", head + "steady: {clients: 3, rate: 1/s}\n  clients_of: a\n", []string{`m.yaml:5:15: "a" uses the clients of another component (name the component that has the clients)`}},
	{"clients_of a flood", head + "steady: {clients: 3, rate: 1/s}\n  clients_of: b\n- name: b\n  random_keys: {rate: 1/s}\n", []string{`m.yaml:5:15: the clients of "b" never return (name a component of another kind)`}},
	{"more clients than clients_of has", head + "steady: {clients: 3, rate: 1/s}\n  clients_of: b\n- name: b\n  steady: {clients: 2, rate: 1/s}\n", []string{`m.yaml:5:15: "b" has only 2 clients (use at most as many)`}},
	{"clients_of with addresses", head + "steady: {clients: 3, rate: 1/s}\n  clients_of: b\n  addresses: [192.0.2.0/24]\n- name: b\n  steady: {clients: 3, rate: 1/s}\n", []string{`m.yaml:6:14: the clients of another component already have addresses (leave addresses out)`}},
	{"same name", head + "steady: {clients: 3, rate: 1/s}\n- name: a\n  steady: {clients: 3, rate: 1/s}\n", []string{`m.yaml:5:9: component "a" already exists (names must be unique)`}},
	{"same addresses", head + "steady: {clients: 3, rate: 1/s}\n  addresses: [192.0.2.0/24]\n- name: b\n  steady: {clients: 3, rate: 1/s}\n  addresses: [192.0.2.128/25]\n", []string{`m.yaml:8:14: 192.0.2.128/25 overlaps 192.0.2.0/24 of another component (use clients_of for the same clients in two components)`}},
	{"bad values of diurnal", head + "steady: {clients: 3, rate: 1/s}\n  attack: 1\n  diurnal: {depth: 2, period: 1s}\n", []string{
		`m.yaml:5:11: attack is the number 1, not true or false (write attack: true)`,
		`m.yaml:6:20: depth cannot be "2" (write a number from 0 to 1)`,
		`m.yaml:6:31: period cannot be "1s" (must be from 1m to 366d)`,
	}},
	{"diurnal without depth", head + "steady: {clients: 3, rate: 1/s}\n  diurnal: {}\n", []string{`m.yaml:5:12: diurnal has no depth (write depth: 0.5, or how far the rate swings above and below its average)`}},
	{"bad values of request", head + "steady: {clients: 3, rate: 1/s}\n  request: {hosts: [a b], methods: [get], paths: [x, '/\"'], status: 99, user_agents: ['\"', 3]}\n", []string{
		`m.yaml:5:21: an entry of hosts cannot be "a b" (must consist of letters, digits, dots, hyphens and colons)`,
		`m.yaml:5:37: an entry of methods cannot be "get" (must consist of capital letters)`,
		`m.yaml:5:51: an entry of paths cannot be "x" (must consist of a slash and then printable characters without quotes)`,
		`m.yaml:5:54: an entry of paths cannot be "/\"" (must consist of a slash and then printable characters without quotes)`,
		`m.yaml:5:69: status cannot be "99" (write a whole number from 200 to 599)`,
		`m.yaml:5:87: an entry of user_agents cannot be "\"" (must consist of printable characters without quotes and backslashes)`,
		`m.yaml:5:92: an entry of user_agents is the number 3, not a string (quote it: "3")`,
	}},
	{"assets without pages", head + "steady: {clients: 3, rate: 1/s}\n  request: {assets: [/a]}\n", []string{`m.yaml:5:21: only pages have assets (leave assets out)`}},
	{"flood with too few addresses", head + "random_keys: {rate: 1000000/s}\n  addresses: [10.0.0.0/8]\n", []string{`m.yaml:5:14: there are 16777216 addresses for 66001000 clients (give it larger networks)`}},
	{"flood beyond all addresses", "duration: 366d\ncomponents:\n- name: a\n  random_keys: {rate: 10000000/s}\n", []string{`m.yaml:3:3: 2001:db8::/32 has no room for 347846400001000 clients (write addresses: [2001:db8::/32], or another network)`}},
	{"addresses used up", head + "steady: {clients: 10000000, rate: 1/m}\n- name: b\n  steady: {clients: 10000000, rate: 1/m}\n", []string{`m.yaml:5:3: 10.0.0.0/8 has no room left for 10000000 clients (write addresses: [2001:db8::/32], or another network)`}},
	{"bad name", "duration: 1m\ncomponents:\n- name: a b\n  steady: {clients: 3, rate: 1/s}\n", []string{`m.yaml:3:9: name cannot be "a b" (must be 1 to 64 letters, digits, dots, hyphens and underscores)`}},
}

func TestParseInvalid(t *testing.T) {
	for _, test := range invalid {
		m, err := mix.Parse("m.yaml", []byte(test.text))
		var errs strictyaml.Errors
		if m != nil || !errors.As(err, &errs) {
			t.Errorf("%s: Parse = %v, %v", test.name, m, err)
			continue
		}
		if diff := cmp.Diff(test.want, strings.Split(err.Error(), "\n")); diff != "" {
			t.Errorf("%s:\n%s", test.name, diff)
		}
	}
}

func TestExcerpt(t *testing.T) {
	for _, test := range []struct{ name, text, want string }{
		{"in a line", head + "steady: {clients: 1, rate: 7}\n", "  steady: {clients: 1, rate: 7}\n                             ^"},
		{"whole file", "", ""},
		{"long line", "duration: x # " + strings.Repeat("z", 1000), "duration: x # " + strings.Repeat("z", 145) + "…\n          ^"},
		{"control character", "duration: \"\\u0007\" # é\n", "duration: \"\\u0007\" # é\n          ^"},
	} {
		_, err := mix.Parse("m.yaml", []byte(test.text))
		var one *strictyaml.Error
		if !errors.As(err, &one) {
			t.Fatalf("%s: %v", test.name, err)
		}
		errs := err.(strictyaml.Errors)
		if got := errs[len(errs)-1].Excerpt(); got != test.want {
			t.Errorf("%s: excerpt\n%s\nwant\n%s", test.name, got, test.want)
		}
	}
}

func TestManyErrors(t *testing.T) {
	_, err := mix.Parse("m.yaml", []byte("duration: 1m\ncomponents:\n"+strings.Repeat("- {nme: a}\n", 10_000)))
	errs := err.(strictyaml.Errors)
	if last := errs[len(errs)-1].Error(); len(errs) != 21 || last != "m.yaml: too many errors; the rest is not shown" {
		t.Errorf("%d errors, the last one %s", len(errs), last)
	}
}

// Any file is rejected with positions, or generates requests in order without a panic.
func FuzzParse(f *testing.F) {
	for _, test := range invalid {
		f.Add([]byte(test.text))
	}
	bundled, err := filepath.Glob("mixes/*.yaml")
	if err != nil || len(bundled) == 0 {
		f.Fatalf("no bundled mixes: %v", err)
	}
	for _, file := range append(bundled, "testdata/all.yaml") {
		text, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		m, err := mix.Parse("m.yaml", text)
		if err != nil {
			errs, ok := err.(strictyaml.Errors)
			if m != nil || !ok || len(errs) == 0 {
				t.Fatalf("Parse = %v, %#v", m, err)
			}
			for _, e := range errs {
				e.Excerpt()
			}
			return
		}
		for _, c := range m.Components() {
			if c.Clients > 100_000 && c.Kind != "random_keys" {
				return // too many requests
			}
		}
		m.Requests = 1000
		var r mix.Request
		before := m.Start().UnixMicro()
		for s := m.Source(); s.Next(&r); before = r.Time {
			if r.Time < before || !m.Addr(r.Client).IsValid() || r.Path == "" || r.Host == "" {
				t.Fatalf("%+v after %d", r, before)
			}
		}
	})
}
