package translate_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/edgelimit/edge/internal/golden"
	rulefile "github.com/edgelimit/edge/rule/file"
	"github.com/edgelimit/edge/rule/translate"
)

// samples are our own configurations, by their kind.
var samples = map[string]string{
	"testdata/shop/nginx.conf":           "nginx",
	"testdata/nginx-part.conf":           "nginx",
	"testdata/ingress-nginx-shop.yaml":   "ingress-nginx",
	"testdata/envoy-ratelimit-shop.yaml": "envoy-ratelimit",
}

func TestTranslations(t *testing.T) {
	for file, kind := range samples {
		t.Run(file, func(t *testing.T) {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			made, err := translate.Files(kind, translate.File{Name: file, Text: text})
			if err != nil {
				t.Fatal(err)
			}
			file := filepath.Join("testdata", strings.NewReplacer("testdata/", "", "/", "-").Replace(file)+".golden")
			golden.Check(t, file, made.Text())
			set, err := rulefile.Load(file)
			if err != nil {
				t.Fatal(err)
			}
			if err := rulefile.CheckNodes(set, 16); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestErrors(t *testing.T) {
	for _, test := range []struct {
		name, kind, text, want string
	}{
		{"not terminated", "nginx", "events {}\nuser nobody\n", `f:2:1: the directive "user" is not terminated`},
		{"open block", "nginx", "http {\n  server {\n", "f:2:10: the block that begins here is not closed"},
		{"too many braces", "nginx", "http {}\n}\n", "f:2:1: unexpected }"},
		{"open quote", "nginx", "a 'b;\n", "f:1:3: a quote is not closed"},
		{"after a quote", "nginx", "a 'b'c;\n", `f:1:6: unexpected "c" after a quoted word`},
		{"template", "nginx", "server { server_name {{ name }}; }", "f:1:23: unexpected {"},
		{"open Lua", "nginx", "content_by_lua_block { if '}' -- }\n", "f:1:22: the block that begins here is not closed"},
		{"rate", "nginx", "limit_req_zone $uri zone=a:1m rate=10r/h;", `f:1:31: invalid rate "10r/h"`},
		{"no zone", "nginx", "server {\n\tlimit_req burst=5;\n}", "f:2:2: limit_req has no zone"},
		{"unknown zone", "nginx", "server { limit_req zone=a; }", `f:1:20: no limit_req_zone defines the zone "a"`},
		{"burst", "nginx", "limit_req_zone $uri zone=a:1m rate=1r/s; server { limit_req zone=a burst=-1; }", `f:1:68: invalid burst "-1"`},
		{"status", "nginx", "server { limit_req_status 200; }", "f:1:10: invalid limit_req_status"},
		{"zone twice", "nginx", "limit_req_zone $uri zone=a:1m rate=1r/s; server { limit_req zone=a; limit_req zone=a burst=1; }", "f:1:69: limit_req zone=a burst=1 is a duplicate"},
		{"status twice", "nginx", "server { limit_req_status 444; limit_req_status 503; }", "f:1:32: limit_req_status 503 is a duplicate"},
		{"location twice", "nginx", "server { location /a { }\nlocation ^~ /a { } }", "f:2:1: location ^~ /a is a duplicate"},
		{"default twice", "nginx", "server { listen 80 default_server; listen [::]:80 default_server; }\nserver { listen 80 default_server; }", "f:2:10: a duplicate default server for 80"},
		{"descriptor twice", "envoy-ratelimit", "domain: a\ndescriptors:\n  - key: b\n  - key: b\n", "f:4:5: the descriptor b is a duplicate"},
		{"domain twice", "envoy-ratelimit", "domain: a\n---\ndomain: a\n", `f:3:9: the domain "a" is a duplicate`},
		{"not YAML", "ingress-nginx", "a: b: c\n", "f:1:5: not YAML"},
		{"no Ingress", "ingress-nginx", "kind: Service\n", "f: the file has no Ingress"},
		{"number", "ingress-nginx", "kind: Ingress\nmetadata:\n  annotations:\n    nginx.ingress.kubernetes.io/limit-rps: ten\n", `f:4:44: invalid limit-rps "ten"`},
		{"window", "ingress-nginx", "kind: Ingress\nmetadata:\n  annotations:\n    nginx.ingress.kubernetes.io/global-rate-limit: '5'\n", `f:4:52: invalid global-rate-limit-window ""`},
		{"network", "ingress-nginx", "kind: Ingress\nmetadata:\n  annotations: {nginx.ingress.kubernetes.io/limit-rps: '5', nginx.ingress.kubernetes.io/limit-whitelist: '10.0.0.0/8,x'}\n", `limit-whitelist: "x" is not a network`},
		{"no domain", "envoy-ratelimit", "descriptors: []\n", "f:1:1: the domain is missing"},
		{"unknown key", "envoy-ratelimit", "domain: a\ndescriptors:\n  - key: b\n    ratelimit: {}\n", `f:4:5: unknown key "ratelimit" in a descriptor`},
		{"Envoy's own", "envoy-ratelimit", "static_resources:\n  listeners: []\n", "import the file of Envoy's rate limit service"},
		{"EnvoyFilter", "envoy-ratelimit", "kind: EnvoyFilter\nspec: {}\n", "import the file of Envoy's rate limit service"},
		{"descriptors", "envoy-ratelimit", "domain: a\ndescriptors: {key: b}\n", "f:2:14: descriptors is not a list"},
		{"unit", "envoy-ratelimit", "domain: a\ndescriptors:\n  - key: b\n    rate_limit: {unit: fortnight, requests_per_unit: 1}\n", `f:4:24: invalid unit "fortnight"`},
		{"requests", "envoy-ratelimit", "domain: a\ndescriptors:\n  - key: b\n    rate_limit: {unit: day}\n", `f:4:17: invalid requests_per_unit ""`},
		{"no key", "envoy-ratelimit", "domain: a\ndescriptors:\n  - value: b\n", "f:3:5: a descriptor has no key"},
		{"in a ConfigMap", "envoy-ratelimit", "kind: ConfigMap\ndata:\n  a.yaml: |\n    domain: a\n    descriptors:\n    - key: b\n      rate_limit: {unit: eon}\n", `f:7:26: invalid unit "eon"`},
	} {
		t.Run(test.name, func(t *testing.T) {
			_, err := translate.Files(test.kind, translate.File{Name: "f", Text: []byte(test.text)})
			var place *rulefile.Error
			if err == nil || !errors.As(err, &place) || !strings.Contains(err.Error(), test.want) {
				t.Errorf("error %v, want %s", err, test.want)
			}
		})
	}
}

// Included files that never end are errors.
func TestIncludes(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{
		"self.conf": "include self.conf;",
		"many.conf": strings.Repeat("include more.conf;\n", 200),
		"more.conf": strings.Repeat("include last.conf;\n", 200),
		"last.conf": "",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for name, want := range map[string]string{
		"self.conf": "includes itself",
		"many.conf": "more than 10000 files are included",
		"/dev/zero": "/dev/zero is not a regular file",
	} {
		main := translate.File{Name: filepath.Join(dir, "nginx.conf"), Text: []byte("include " + name + ";")}
		if _, err := translate.Files("nginx", main); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: the error is %v, want %q", name, err, want)
		}
	}
	if _, err := translate.Files("nginx", translate.File{Name: "nginx.conf", Text: []byte("include /dev/null;")}); err != nil {
		t.Errorf("a device that is empty: %v", err)
	}
}

// A client that a leaky bucket never refuses never exceeds the thresholds that replace the bucket.
func TestLeakyBucket(t *testing.T) {
	limits := regexp.MustCompile(`threshold: (\d+), period: (1[sm])`)
	for seed := range uint64(400) {
		r := rand.New(rand.NewPCG(seed, 0))
		rate, burst, unit := 1+r.IntN(20), r.IntN(30), "s"
		const second = 1_000_000
		each := int64(second / rate) // µs that a request takes to leak
		if seed%2 == 0 {
			unit, each = "m", int64(60*second/rate)
		}
		text := fmt.Sprintf("limit_req_zone $remote_addr zone=a:1m rate=%dr/%s; server { limit_req zone=a burst=%d nodelay; }", rate, unit, burst)
		made, err := translate.Files("nginx", translate.File{Name: "f", Text: []byte(text)})
		if err != nil {
			t.Fatal(err)
		}
		found := limits.FindAllStringSubmatch(string(made.Text()), -1)
		if len(found) == 0 {
			t.Fatalf("%s: no limits in\n%s", text, made.Text())
		}
		for _, limit := range found {
			var threshold int64
			fmt.Sscan(limit[1], &threshold)
			period := map[string]int64{"1s": second, "1m": 60 * second}[limit[2]]
			// The client sends in bursts, and pauses; it does not send what the bucket would refuse.
			counts := map[int64]int64{}
			now, excess := r.Int64N(period), int64(0)
			for range 600 {
				pause := int64(0)
				if r.IntN(4) == 0 {
					pause = r.Int64N(1 + 2*each*int64(1+r.IntN(burst+2)))
				}
				now += pause
				excess = max(0, excess-pause)
				if excess > int64(burst)*each {
					wait := excess - int64(burst)*each
					now, excess = now+wait, excess-wait
				}
				excess += each
				counts[now/period]++
				elapsed := now % period
				if counts[now/period-1]*(period-elapsed)+counts[now/period]*period > threshold*period {
					t.Fatalf("%s: at %d µs the estimate exceeds %d in %s", text, now, threshold, limit[2])
				}
			}
		}
	}
}

// A rate that is practically unlimited has a threshold as great.
func TestGreatRates(t *testing.T) {
	for rate, want := range map[string]string{
		"2147483647r/s burst=2147483647": "{threshold: 4294967295, period: 1s}\n      - {threshold: 130996502468, period: 1m}",
		"307445735r/s burst=0":           "{threshold: 307445736, period: 1s}\n      - {threshold: 18446744101, period: 1m}",
	} {
		rate, burst, _ := strings.Cut(rate, " ")
		text := fmt.Sprintf("limit_req_zone $remote_addr zone=a:1m rate=%s; server { limit_req zone=a %s; }", rate, burst)
		made, err := translate.Files("nginx", translate.File{Name: "f", Text: []byte(text)})
		if err != nil || !strings.Contains(string(made.Text()), want) {
			t.Errorf("%s: %v\n%s", rate, err, made.Text())
		}
	}
}

// Limits of ingress-nginx are imported even if their product is greater than any burst.
func TestGreatBurst(t *testing.T) {
	const text = "kind: Ingress\nmetadata:\n  annotations: {%[1]slimit-rps: '2147483647', %[1]slimit-burst-multiplier: '2147483647'}\n"
	made, err := translate.Files("ingress-nginx", translate.File{Name: "f", Text: fmt.Appendf(nil, text, "nginx.ingress.kubernetes.io/")})
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(made.Text()), "{threshold: 4294967295, period: 1s}") {
		t.Errorf("no limit of 2³²-1 in\n%s", made.Text())
	}
}

// Without a burst, the note has the pause that nginx demands, in the milliseconds of its clock.
func TestPauses(t *testing.T) {
	for rate, want := range map[string]string{"3r/s": "334ms", "7r/m": "8.572s", "2001r/s": "1ms", "2147483647r/s": "1ms"} {
		text := fmt.Sprintf("limit_req_zone $remote_addr zone=a:1m rate=%s; server { limit_req zone=a; }", rate)
		made, err := translate.Files("nginx", translate.File{Name: "f", Text: []byte(text)})
		if err != nil || !strings.Contains(string(made.Text()), "less than "+want+" after") {
			t.Errorf("%s: error %v, want %s in\n%s", rate, err, want, made.Text())
		}
	}
}

// A client that several limits exempt is listed once, with each reason once.
func TestExemptFromSeveral(t *testing.T) {
	const text = `map $remote_addr $k { default $remote_addr; 192.0.2.1 ""; }
		geo $in { default 1; 198.51.100.0/24 1; 198.51.100.7 0; } map $in $l { 1 $remote_addr; 0 ""; }
		limit_req_zone $k zone=a:1m rate=1r/s; limit_req_zone $k zone=b:1m rate=1r/s; limit_req_zone $l zone=c:1m rate=1r/s;
		server { location /z { limit_req zone=c; } location /x { limit_req zone=a; limit_req zone=b; } location /y { limit_req zone=a burst=1; limit_req zone=b; } }`
	made, err := translate.Files("nginx", translate.File{Name: "f", Text: []byte(text)})
	if err != nil {
		t.Fatal(err)
	}
	words := strings.Join(strings.Fields(strings.ReplaceAll(string(made.Text()), "#", "")), " ")
	for _, once := range []string{"exempts it from zone a;", "exempts it from zone b;", "- 192.0.2.1/32"} {
		if strings.Count(words, once) != 1 {
			t.Errorf("%q is not there once:\n%s", once, made.Text())
		}
	}
	if strings.Contains(words, "edge exempts it") {
		t.Errorf("a network that nginx exempts, too, has a note:\n%s", made.Text())
	}
}

// Translating a file always terminates, with an error or with a valid rules file.
func FuzzFiles(f *testing.F) {
	for file, kind := range samples {
		text, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(kind, string(text))
	}
	f.Add("nginx", "limit_req_zone $a zone=\x00:1m rate=1r/s; map $a $a { default $a; } server { server_name \"\x7f\"; location ~ ^(a|b)*$ { limit_req zone=\x00; } }")
	f.Add("nginx", "geo $g { ranges; default 1; 1.1.1.1-1.1.1.2 0; } map $g $k { 1 $uri; } limit_req_zone $k zone=a:1 rate=1r/s; limit_req zone=a;")
	f.Add("nginx", "map $b $a { 1 $a; 2 $b; 3 $a$b; } map $a $b { 1 $a; 2 $b; 3 $b$a; } limit_req_zone $a zone=a:1 rate=1r/s; limit_req zone=a;")
	f.Add("nginx", "limit_req_zone $uri zone=a:1 rate=1r/s; limit_req zone=a; server { location = /a* { limit_req zone=a burst=1; } location ^~ /%41 { limit_req zone=a burst=1; } }")
	f.Add("nginx", "limit_req_zone $uri zone=a:1 rate=1r/s; server { location ~ ^a { limit_req zone=a; } }")
	f.Fuzz(func(t *testing.T, kind, text string) {
		text = strings.ReplaceAll(text, "include", "exclude") // which would read files of this machine
		_, err := translate.Files(kind, translate.File{Name: "f", Text: []byte(text)})
		if err != nil && strings.Contains(err.Error(), "bug in this program") {
			t.Error(err)
		}
	})
}

// Limits of other controllers are listed, and an Ingress of another controller only logs.
func TestOtherControllers(t *testing.T) {
	for name, text := range map[string]string{
		"rateLimit":              "kind: Middleware\nspec: {rateLimit: {average: 5}}\n",
		"inFlightReq":            "kind: Middleware\nspec: {inFlightReq: {amount: 5}}\n",
		"plugin":                 "kind: KongPlugin\nplugin: rate-limiting\n",
		"haproxy.org/rate-limit": "kind: Ingress\nmetadata: {annotations: {haproxy.org/rate-limit: '5'}}\n",
		"konghq.com/plugins":     "kind: List\nitems: [{kind: Ingress, metadata: {annotations: {konghq.com/plugins: my-rate-limit}}}]\n",
	} {
		text += "---\nkind: Ingress\nmetadata: {annotations: {nginx.ingress.kubernetes.io/limit-rps: '5'}}\nspec: {ingressClassName: traefik}\n"
		made, err := translate.Files("ingress-nginx", translate.File{Name: "f", Text: []byte(text)})
		if err != nil || !strings.Contains(string(made.Text()), " "+name+": a limit on") || !strings.Contains(string(made.Text()), "action: log") {
			t.Errorf("%s: %v\n%s", name, err, made.Text())
		}
	}
}

// Hosts of an Ingress with the same paths are one rule. A wildcard matches fewer hosts in Kubernetes, and a host of another
// Ingress is not counted with it.
func TestIngressHosts(t *testing.T) {
	const text = "kind: Ingress\nmetadata: {annotations: {nginx.ingress.kubernetes.io/limit-rps: '5'}}\n" +
		"spec: {rules: [{host: a.test}, {host: '*.a.test'}, {host: 'b.test'}]}\n---\n" +
		"kind: Ingress\nspec: {rules: [{host: x.a.test}, {host: b.test, http: {paths: [{path: /b/c, pathType: Exact}]}}]}\n"
	made, err := translate.Files("ingress-nginx", translate.File{Name: "f", Text: []byte(text)})
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"*.a.test matches one level of subdomains", "hosts: [a.test]", "- hosts: [x.a.test]", "hosts: [b.test]", "- paths: [/b/c]",
	} {
		if !strings.Contains(string(made.Text()), want) {
			t.Errorf("no %q in\n%s", want, made.Text())
		}
	}
}

// Rules that join the hosts of several servers do not share them with others.
func TestJoinedHosts(t *testing.T) {
	const text = `limit_req_zone $uri zone=z:1m rate=1r/s;
		server { server_name a b c; location /x { limit_req zone=z burst=1; } location /y { limit_req zone=z burst=2; } }
		server { server_name d; location /x { limit_req zone=z burst=1; } }
		server { server_name e; location /y { limit_req zone=z burst=2; } }`
	made, err := translate.Files("nginx", translate.File{Name: "f", Text: []byte(text)})
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"hosts: [a, b, c, d]\n      paths: [/x*]", "hosts: [a, b, c, e]\n      paths: [/y*]"} {
		if !strings.Contains(string(made.Text()), want) {
			t.Errorf("no %q in\n%s", want, made.Text())
		}
	}
}

// Envoy refuses all requests of a client whose limit is 0, but not if the limit is only tried out.
func TestNoRequestsAllowed(t *testing.T) {
	for more, want := range map[string]string{"": "\ndeny:\n", ", shadow_mode: true": "Not covered:"} {
		text := "domain: a\ndescriptors:\n  - {key: remote_address, value: 192.0.2.1, rate_limit: {unit: day, requests_per_unit: 0}" + more + "}\n"
		made, err := translate.Files("envoy-ratelimit", translate.File{Name: "f", Text: []byte(text)})
		if err != nil || !strings.Contains(string(made.Text()), want) {
			t.Errorf("%q: %v\n%s", more, err, made.Text())
		}
	}
}

// nginx closes the connection for some statuses.
func TestClosing(t *testing.T) {
	for status, want := range map[int]string{408: "action: close", 444: "action: close", 499: "action: close", 429: "response: {status: 429}"} {
		text := fmt.Sprintf("limit_req_zone $uri zone=a:1m rate=1r/s; limit_req_status %d; server { limit_req zone=a; }", status)
		made, err := translate.Files("nginx", translate.File{Name: "f", Text: []byte(text)})
		if err != nil || !strings.Contains(string(made.Text()), want) {
			t.Errorf("%d: %v\n%s", status, err, made.Text())
		}
	}
}

// ingress-nginx ignores limits of a canary, and does not count what it redirects.
func TestIngressWithoutCounts(t *testing.T) {
	for _, annotation := range []string{"canary: 'true'", "permanent-redirect: https://b.test", "temporal-redirect: https://b.test"} {
		text := "kind: Ingress\nmetadata:\n  annotations:\n    nginx.ingress.kubernetes.io/limit-rps: '5'\n    nginx.ingress.kubernetes.io/" + annotation +
			"\nspec: {rules: [{host: a.test}]}\n---\nkind: Ingress\nmetadata: {annotations: {nginx.ingress.kubernetes.io/limit-rps: '7'}}\n" +
			"spec: {rules: [{host: c.test}]}\n"
		made, err := translate.Files("ingress-nginx", translate.File{Name: "f", Text: []byte(text)})
		if err != nil || strings.Contains(string(made.Text()), "a.test") || !strings.Contains(string(made.Text()), "c.test") {
			t.Errorf("%s: %v\n%s", annotation, err, made.Text())
		}
	}
}

// A file without limits results in no rules, with a comment.
func TestNothing(t *testing.T) {
	for kind, text := range map[string]string{"nginx": "events {}\nhttp {}\n", "ingress-nginx": "kind: Ingress\n"} {
		made, err := translate.Files(kind, translate.File{Name: "f", Text: []byte(text)})
		if err != nil || !strings.Contains(string(made.Text()), "rules: []\n\n# Not covered:\n# - f:1:1: no ") {
			t.Errorf("%s: %v\n%s", kind, err, made.Text())
		}
	}
}
