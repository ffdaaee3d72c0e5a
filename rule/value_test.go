package rule_test

import (
	"bytes"
	"net/netip"
	"strings"
	"testing"

	"github.com/edgelimit/edge/rule"
	rulefile "github.com/edgelimit/edge/rule/file"
)

// A request made from values has the same key as an HTTP request with these values.
func TestRequestFrom(t *testing.T) {
	set, err := rulefile.Parse("rules", []byte(`
rules:
  - id: several
    match: {paths: [/a/*]}
    except: [{paths: [/a/c]}]
    characteristics: [ip, host, path, method, "header:x-key", "cookie:a", "cookie:b", "query:q", "query:r", {header: x-plan, missing: skip}]
    limits: [{threshold: 1, period: 1s}]
    action: block
    mitigation_timeout: 0s
`))
	if err != nil {
		t.Fatal(err)
	}
	r := set.Rules()[0]
	values := map[string]string{
		"ip": "192.0.2.1", "host": "Example.com:80", "path": "/a/%62", "method": "PUT", "header:x-key": "k",
		"cookie:a": "1;2", "cookie:b": "3", "query:q": "x&y", "query:r": "", "header:x-plan": "gold",
	}
	from := func(values map[string]string) (rule.Request, error) {
		return r.RequestFrom(func(c *rule.Characteristic) (string, bool) {
			value, ok := values[c.String()]
			return value, ok
		})
	}
	got, err := from(values)
	if err != nil {
		t.Fatal(err)
	}
	want := rule.Request{
		Method: "PUT", Host: "example.com", Path: "/a/b", Query: "r=&q=x%26y",
		Header: map[string][]string{"X-Key": {"k"}, "X-Plan": {"gold"}, "Cookie": {"b=3; a=1%3B2"}},
		Addr:   got.Addr,
	}
	got.Canonicalize(rule.ClientPrefix{})
	want.Canonicalize(rule.ClientPrefix{})
	gotKey, _ := r.AppendKey(nil, &got)
	wantKey, counted := r.AppendKey(nil, &want)
	if !counted || !bytes.Equal(gotKey, wantKey) {
		t.Errorf("key %q, want that of the HTTP request, %q", gotKey, wantKey)
	}

	for _, c := range []struct{ name, characteristic, value, want string }{
		{"an invalid address", "ip", "alice", `rule several counts by ip, and "alice" is not an address`},
		{"a path that the rule does not match", "path", "/b", `rule several counts by path, and does not match "/b"`},
		{"a path that the rule excepts", "path", "/a/c", `rule several counts by path, and does not match "/a/c"`},
		{"no value", "cookie:b", "", "missing value of cookie:b, by which rule several counts"},
		{"no value, and the rule skips such requests", "header:x-plan", "", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			changed := map[string]string{}
			for name, value := range values {
				changed[name] = value
			}
			if changed[c.characteristic] = c.value; c.value == "" {
				delete(changed, c.characteristic)
			}
			req, err := from(changed)
			if c.want == "" {
				req.Canonicalize(rule.ClientPrefix{})
				if _, counted := r.AppendKey(nil, &req); err != nil || counted {
					t.Errorf("counted %t, err %v; want neither", counted, err)
				}
			} else if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("err = %v, want %q", err, c.want)
			}
		})
	}
}

// A request lacks the values of the alternatives before the one that is given.
func TestRequestFromAlternative(t *testing.T) {
	r := keyed(t, "[{first: [{header: x-key, missing: skip}, cookie:sid, ip]}]")
	for name, want := range map[string]rule.Request{
		"header:x-key": {Header: map[string][]string{"X-Key": {"192.0.2.1"}}},
		"cookie:sid":   {Header: map[string][]string{"Cookie": {"sid=192.0.2.1"}}},
		"ip":           {Addr: netip.MustParseAddr("192.0.2.1")},
	} {
		got, err := r.RequestFrom(func(c *rule.Characteristic) (string, bool) { return "192.0.2.1", c.String() == name })
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		gotKey, _ := key(r, got)
		if wantKey, _ := key(r, want); gotKey != wantKey {
			t.Errorf("%s: key %q, want that of the HTTP request, %q", name, gotKey, wantKey)
		}
	}
}
