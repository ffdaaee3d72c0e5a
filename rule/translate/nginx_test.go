package translate_test

import (
	"bufio"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/edgelimit/edge/internal/harness"
	"github.com/edgelimit/edge/rule"
	rulefile "github.com/edgelimit/edge/rule/file"
	"github.com/edgelimit/edge/rule/translate"
)

// A probe is a request: the socket that it goes to, its host, and its target. A blank and a User-Agent may follow the target.
type probe struct{ socket, host, target string }

// A comparison is a configuration of nginx whose rules count what nginx counts. If they do not, the
// translation says so.
type comparison struct {
	name, http string
	probes     []probe
	said       string // if not empty, what the translation says of the probes that differ
}

var comparisons = []comparison{
	{"a location", `server { listen SOCKET/a; server_name a.test; location /in/ { limit_req zone=z; } location = /one { limit_req zone=z; } }`,
		[]probe{{"a", "a.test", "/in/x"}, {"a", "a.test", "/in"}, {"a", "a.test", "/IN/x"}, {"a", "a.test", "/one"}, {"a", "a.test", "/one/"}, {"a", "a.test", "/one;x"}, {"a", "a.test", "/ONE?y"}, {"a", "a.test", "//in//x"}, {"a", "a.test", "/no/../in/x"}, {"a", "a.test", "/%69n/x"}}, ""},
	{"case ignored", `server { listen SOCKET/a; server_name a.test; location ~* ^/in/ { limit_req zone=z; } }`,
		[]probe{{"a", "a.test", "/IN/x"}, {"a", "a.test", "/in/x"}}, ""},
	{"case ignored within an expression", `server { listen SOCKET/a; server_name a.test; location ~ ^/(?i)in/ { limit_req zone=z; } }`,
		[]probe{{"a", "a.test", "/IN/x"}, {"a", "a.test", "/in/x"}}, "whose paths rules cannot match"},
	{"narrower locations", `server { listen SOCKET/a; limit_req zone=z; location / { limit_req zone=other burst=9; } location /img/ { } location /img/no/ { limit_req zone=other burst=9; location /img/no/yes/ { limit_req zone=z; } } }`,
		[]probe{{"a", "a.test", "/x"}, {"a", "a.test", "/img/x"}, {"a", "a.test", "/img/no/x"}, {"a", "a.test", "/img/no/yes/x"}}, ""},
	{"a later expression", `server { listen SOCKET/a; location ~ ^/a { limit_req zone=z; } location ~ ^/ab { } location /abc { } location ^~ /ad { } location = /ae { } }`,
		[]probe{{"a", "a.test", "/a"}, {"a", "a.test", "/ab"}, {"a", "a.test", "/abc"}, {"a", "a.test", "/adx"}, {"a", "a.test", "/ae"}}, ""},
	{"the end of a path", `server { listen SOCKET/a; location / { } location ~ \.(php|asp)$ { limit_req zone=z; } location ^~ /img/ { } location = /no.php { } }`,
		[]probe{{"a", "a.test", "/x.php"}, {"a", "a.test", "/a/b.asp"}, {"a", "a.test", "/x.PHP"}, {"a", "a.test", "/x.php/y"}, {"a", "a.test", "/img/x.php"}, {"a", "a.test", "/no.php"}, {"a", "a.test", "/x.php?a"}, {"a", "a.test", "/x.php/"}}, ""},
	{"the end of a path without a limit", `server { listen SOCKET/a; location / { limit_req zone=z; } location ~ \.css$ { } location /in/ { limit_req zone=other burst=9; } location = /a.css { limit_req zone=z; } }`,
		[]probe{{"a", "a.test", "/x"}, {"a", "a.test", "/x.css"}, {"a", "a.test", "/in/x.css"}, {"a", "a.test", "/in/x"}, {"a", "a.test", "/a.css"}}, ""},
	{"the end of a path after another", `server { listen SOCKET/a; location ~ ^/a/ { } location ~ \.php$ { limit_req zone=z; } location ~ ^/b/ { } }`,
		[]probe{{"a", "a.test", "/a/x.php"}, {"a", "a.test", "/b/x.php"}, {"a", "a.test", "/b/x"}}, ""},
	{"a limit within an exception", `server { listen SOCKET/a; location / { limit_req zone=z; } location ~ ^/a { } location = /ab { limit_req zone=z; } }`,
		[]probe{{"a", "a.test", "/ac"}, {"a", "a.test", "/ab"}}, ""},
	{"an expression that ignores case within another", `server { listen SOCKET/a; location ~ ^/a { limit_req zone=z; } location ~* ^/a/b { limit_req zone=z; } location ^~ /ac { limit_req zone=z; } location ^~ /ad { } }`,
		[]probe{{"a", "a.test", "/a"}, {"a", "a.test", "/A"}, {"a", "a.test", "/A/B"}, {"a", "a.test", "/ac"}, {"a", "a.test", "/ad"}}, ""},
	{"more classes of characters than there may be patterns", `server { listen SOCKET/a; location ~ ^/[0-9][0-9] { limit_req zone=z; } }`,
		[]probe{{"a", "a.test", "/12"}, {"a", "a.test", "/1x"}, {"a", "a.test", "/x"}}, "matches fewer paths than the rule"},
	{"an escaped star", `server { listen SOCKET/a; location ~ ^/a\*b { limit_req zone=z; } }`,
		[]probe{{"a", "a.test", "/axb"}, {"a", "a.test", "/a*b"}}, "whose paths rules cannot match"},
	{"an expression around", `server { listen SOCKET/a; location ~ ^/a { } location /ab { limit_req zone=z; } }`,
		[]probe{{"a", "a.test", "/abc"}}, ""},
	{"a star", `server { listen SOCKET/a; location = /a* { limit_req zone=z; } }`,
		[]probe{{"a", "a.test", "/abc"}, {"a", "a.test", "/a*"}}, "the limits of location = /a*, whose paths rules cannot match"},
	{"exceptions that rules cannot have", `server { listen SOCKET/a; limit_req zone=z; location = /a* { limit_req zone=other burst=9; } location ~ ^b { limit_req zone=other burst=9; } }`,
		[]probe{{"a", "a.test", "/abc"}, {"a", "a.test", "/a*"}}, "without this limit; rules cannot except such paths"},
	{"return", `server { listen SOCKET/a; limit_req zone=z; location /health { return 204; } location /x { if ($arg_a) { return 204; } } }`,
		[]probe{{"a", "a.test", "/y"}, {"a", "a.test", "/health"}, {"a", "a.test", "/x"}, {"a", "a.test", "/x?a=1"}}, "requests that return 204"},
	{"an expression that returns", `server { listen SOCKET/a; limit_req zone=z; location ~ ^/x { if ($arg_a) { return 204; } } }`,
		[]probe{{"a", "a.test", "/y"}, {"a", "a.test", "/x"}, {"a", "a.test", "/x?a=1"}}, "requests that return 204"},
	{"a server that returns", `server { listen SOCKET/a; limit_req zone=z; return 204; location /x { } }`,
		[]probe{{"a", "a.test", "/y"}, {"a", "a.test", "/x"}}, ""},
	{"try_files", `server { listen SOCKET/a; server_name a.test; location / { try_files $uri /index.php?$args; } location = /index.php { limit_req zone=z; } }`,
		[]probe{{"a", "a.test", "/any"}, {"a", "a.test", "/index.php"}}, "nginx also counts the requests that try_files $uri /index.php?$args"},
	{"try_files with the same limit", `server { listen SOCKET/a; server_name a.test; limit_req zone=z; location / { try_files $uri /index.php; } location = /index.php { } }`,
		[]probe{{"a", "a.test", "/any"}, {"a", "a.test", "/index.php"}}, ""},
	{"counted already", `server { listen SOCKET/a; location / { limit_req zone=other burst=9; try_files $uri /index.php; } location = /index.php { limit_req zone=z; } }`,
		[]probe{{"a", "a.test", "/any"}, {"a", "a.test", "/index.php"}}, ""},
	{"a variable target", `server { listen SOCKET/a; set $to /lim; location / { try_files /none $to/x; } location /lim/ { limit_req zone=z; } }`,
		[]probe{{"a", "a.test", "/any"}, {"a", "a.test", "/lim/x"}}, "nginx also counts"},
	{"error_page", `error_page 404 /missing; server { listen SOCKET/a; location = /missing { limit_req zone=z; } }`,
		[]probe{{"a", "a.test", "/any"}, {"a", "a.test", "/missing"}}, "nginx also counts the requests that error_page 404 /missing"},
	{"rewrite", `server { listen SOCKET/a; location /old/ { limit_req zone=other burst=9; rewrite ^/old/(.*) /new/$1 last; } location /new/ { limit_req zone=z; } }`,
		[]probe{{"a", "a.test", "/old/x"}, {"a", "a.test", "/new/x"}}, "nginx also counts the requests that rewrite"},
	{"rewrite away", `server { listen SOCKET/a; location /old/ { limit_req zone=z; rewrite ^/old/(.*) /new/$1 last; } location /new/ { } }`,
		[]probe{{"a", "a.test", "/old/x"}, {"a", "a.test", "/new/x"}}, "nginx does not count the requests that rewrite"},
	{"rewrite of a server", `server { listen SOCKET/a; rewrite ^/old/ /new/; location /old/ { limit_req zone=z; } location /new/ { } }`,
		[]probe{{"a", "a.test", "/old/x"}, {"a", "a.test", "/new/x"}}, "nginx does not count the requests that rewrite"},
	{"rewrite that stays", `server { listen SOCKET/a; location /old/ { limit_req zone=z; rewrite ^/old/ /new/ break; } location /new/ { } }`,
		[]probe{{"a", "a.test", "/old/x"}, {"a", "a.test", "/new/x"}}, ""},
	{"index", `server { listen SOCKET/a; index main.html; location = /main.html { limit_req zone=z; } }`,
		[]probe{{"a", "a.test", "/"}, {"a", "a.test", "/main.html"}}, "nginx also counts the requests that index main.html"},
	{"the default index", `server { listen SOCKET/a; location = /index.html { limit_req zone=z; } }`,
		[]probe{{"a", "a.test", "/"}, {"a", "a.test", "/index.html"}}, "nginx also counts the requests that index index.html (the default)"},
	{"a directory's index by prefix", `server { listen SOCKET/a; location /in { limit_req zone=z; } }`,
		[]probe{{"a", "a.test", "/"}, {"a", "a.test", "/in"}}, "nginx also counts the requests that index index.html (the default)"},
	{"a named location", `server { listen SOCKET/a; location / { try_files $uri @app; } location @app { limit_req zone=z; } }`,
		[]probe{{"a", "a.test", "/x"}}, "the limits of location @app"},
	{"a named location that rewrites", `server { listen SOCKET/a; location / { try_files $uri @front; } location @front { rewrite ^ /index.php last; } location = /index.php { limit_req zone=z; } }`,
		[]probe{{"a", "a.test", "/x"}, {"a", "a.test", "/index.php"}}, "nginx also counts the requests that rewrite ^ /index.php last"},
	{"internal", `server { listen SOCKET/a; location / { } location /in/ { internal; limit_req zone=z; } }`,
		[]probe{{"a", "a.test", "/in/x"}}, ""},
	{"names of one socket", `server { listen SOCKET/a; location /api { limit_req zone=z; } } server { listen SOCKET/a; server_name b.test; }`,
		[]probe{{"a", "a.test", "/api"}, {"a", "b.test", "/api"}}, ""},
	{"two sockets", `server { listen SOCKET/b; server_name b.test; } server { listen SOCKET/a; location /api { limit_req zone=z; } }`,
		[]probe{{"a", "b.test", "/api"}, {"a", "a.test", "/api"}, {"b", "b.test", "/api"}}, "where this server"},
	{"a redirect to another socket", `server { listen SOCKET/b; server_name a.test; return 301 https://$host$request_uri; } server { listen SOCKET/a; server_name a.test; limit_req zone=z; }`,
		[]probe{{"a", "a.test", "/"}, {"b", "a.test", "/"}}, "nginx does not count requests to servers that answer all of them with return"},
	{"the same on two sockets", `server { listen SOCKET/b; server_name a.test; location /api { limit_req zone=z; } } server { listen SOCKET/a; server_name a.test; location /api { limit_req zone=z; } }`,
		[]probe{{"a", "a.test", "/api"}, {"b", "a.test", "/api"}, {"b", "a.test", "/"}}, ""},
	{"the default of a socket", `server { listen SOCKET/a; server_name a.test; limit_req zone=z; } server { listen SOCKET/a; server_name b.test; }`,
		[]probe{{"a", "a.test", "/"}, {"a", "b.test", "/"}, {"a", "other.test", "/"}}, "also has all hosts that no server names"},
	{"a server without requests", `server { listen SOCKET/a default_server; } server { listen SOCKET/a; limit_req zone=z; }`,
		[]probe{{"a", "a.test", "/"}}, ""},
	{"the same name twice", `server { listen SOCKET/a; server_name a.test; } server { listen SOCKET/a; server_name a.test b.test; limit_req zone=z; }`,
		[]probe{{"a", "a.test", "/"}, {"a", "b.test", "/"}}, ""},
	{"wildcard names", `server { listen SOCKET/a; server_name *.a.test; limit_req zone=z; } server { listen SOCKET/a; server_name b.a.test; }`,
		[]probe{{"a", "c.a.test", "/"}, {"a", "b.a.test", "/"}}, ""},
	{"dry run of a location", `server { listen SOCKET/a; limit_req zone=z; location /dry { limit_req_dry_run on; } }`,
		[]probe{{"a", "a.test", "/"}, {"a", "a.test", "/dry"}}, ""},
	{"closing", `limit_req_status 444; server { listen SOCKET/a; limit_req zone=z; }`,
		[]probe{{"a", "a.test", "/"}}, ""},
	{"exempt addresses", `map $remote_addr $k { default $remote_addr; 203.0.113.1 ""; 203.0.113.0/24 ""; } limit_req_zone $k zone=k:1m rate=1r/m; server { listen SOCKET/a; limit_req zone=k; }`,
		[]probe{{"a", "a.test", "/"}, {"a", "a.test", "/2"}}, "exempts clients by \"203.0.113.0/24\""},
	{"an expression for a network", `geo $in { default 0; 203.0.113.0/24 1; } map $in $k { ~0 $remote_addr; default ""; } limit_req_zone $k zone=k:1m rate=1r/m; server { listen SOCKET/a; limit_req zone=k; }`,
		[]probe{{"a", "a.test", "/"}}, ""},
	{"a network whose value has another letter case", `geo $in { default in; 203.0.113.1 OUT; } map $in $k { default $remote_addr; out ""; } limit_req_zone $k zone=k:1m rate=1r/m; server { listen SOCKET/a; limit_req zone=k; }`,
		[]probe{{"a", "a.test", "/"}, {"a", "a.test", "/2"}}, ""},
	{"an exception among paths", `map $uri $k { default ""; ~^/a/no ""; ~^/a/ $remote_addr; } limit_req_zone $k zone=k:1m rate=1r/m; server { listen SOCKET/a; limit_req zone=k; }`,
		[]probe{{"a", "a.test", "/a/x"}, {"a", "a.test", "/a/no"}}, "exempts requests by $uri"},
	{"the query", `map $request_uri $k { default ""; /a $remote_addr; } limit_req_zone $k zone=k:1m rate=1r/m; server { listen SOCKET/a; limit_req zone=k; }`,
		[]probe{{"a", "a.test", "/a"}, {"a", "a.test", "/a?b"}}, "compares $request_uri"},
	{"some agents", `map $http_user_agent $k { default ""; curl $remote_addr; ~*bot $remote_addr; } limit_req_zone $k zone=k:1m rate=1r/m; server { listen SOCKET/a; limit_req zone=k; }`,
		[]probe{{"a", "a.test", "/ curl"}, {"a", "a.test", "/ CURL"}, {"a", "a.test", "/ curl/8"}, {"a", "a.test", "/ a Bot b"}, {"a", "a.test", "/ x"}, {"a", "a.test", "/"}}, ""},
	{"all agents but some", `map $http_user_agent $k { default $remote_addr; ~*^(good|best)bot ""; } limit_req_zone $k zone=k:1m rate=1r/m; server { listen SOCKET/a; limit_req zone=k; }`,
		[]probe{{"a", "a.test", "/ GoodBot"}, {"a", "a.test", "/ a goodbot"}, {"a", "a.test", "/ x"}, {"a", "a.test", "/"}}, ""},
	{"agents by letter case", `map $http_user_agent $k { default ""; ~Bot $remote_addr; } limit_req_zone $k zone=k:1m rate=1r/m; server { listen SOCKET/a; limit_req zone=k; }`,
		[]probe{{"a", "a.test", "/ Bot"}, {"a", "a.test", "/ bot"}}, "which ignores letter case"},
	{"no agent", `map $http_user_agent $k { default ""; ~^$ $remote_addr; } limit_req_zone $k zone=k:1m rate=1r/m; server { listen SOCKET/a; limit_req zone=k; }`,
		[]probe{{"a", "a.test", "/"}, {"a", "a.test", "/ x"}}, "which rules cannot match"},
	{"agents in both directions", `map $http_user_agent $k { default $remote_addr; ~*goodbot $remote_addr; ~*bot ""; } limit_req_zone $k zone=k:1m rate=1r/m; server { listen SOCKET/a; limit_req zone=k; }`,
		[]probe{{"a", "a.test", "/ goodbot"}, {"a", "a.test", "/ bot"}}, "exempts requests by $http_user_agent"},
	{"paths of a map, in any case", `map $uri $k { default ""; ~*^/a $remote_addr; /b $remote_addr; } limit_req_zone $k zone=k:1m rate=1r/m; server { listen SOCKET/a; limit_req zone=k; }`,
		[]probe{{"a", "a.test", "/a/x"}, {"a", "a.test", "/A/x"}, {"a", "a.test", "/b"}, {"a", "a.test", "/B"}, {"a", "a.test", "/c"}}, ""},
	{"some paths of a map in any case", `map $uri $k { default ""; ~^/a $remote_addr; /b $remote_addr; } limit_req_zone $k zone=k:1m rate=1r/m; server { listen SOCKET/a; limit_req zone=k; }`,
		[]probe{{"a", "a.test", "/a/x"}, {"a", "a.test", "/A/x"}, {"a", "a.test", "/B"}}, `"/b" matches paths in any letter case, the rule only in this one`},
	{"paths of a map, in any case, and of a location", `map $uri $k { default ""; ~*^/a $remote_addr; } limit_req_zone $k zone=k:1m rate=1r/m; limit_req_zone $uri zone=other:1m rate=1000r/s; server { listen SOCKET/a; limit_req zone=k; location /a/b { limit_req zone=other burst=9; } }`,
		[]probe{{"a", "a.test", "/A/x"}, {"a", "a.test", "/a/b"}, {"a", "a.test", "/A/b"}}, "ignores letter case, even in its exceptions"},
	{"an expression of a map that ignores case itself", `map $uri $k { default ""; ~^/(?i)a $remote_addr; } limit_req_zone $k zone=k:1m rate=1r/m; server { listen SOCKET/a; limit_req zone=k; }`,
		[]probe{{"a", "a.test", "/a/x"}, {"a", "a.test", "/A/x"}}, "rules cannot match"},
	{"all methods but one", `map $request_method $k { default $remote_addr; GET ""; } limit_req_zone $k zone=k:1m rate=1r/m; server { listen SOCKET/a; limit_req zone=k; }`,
		[]probe{{"a", "a.test", "/a"}}, ""},
	{"all hosts but some", `map $host $k { default $remote_addr; a.test ""; ~\.b\.test$ ""; } limit_req_zone $k zone=k:1m rate=1r/m; server { listen SOCKET/a; limit_req zone=k; }`,
		[]probe{{"a", "a.test", "/"}, {"a", "A.test", "/"}, {"a", "b.test", "/"}, {"a", "c.b.test", "/"}}, ""},
	{"methods of a map by expression", `map $request_method $k { default $remote_addr; ~^G ""; } limit_req_zone $k zone=k:1m rate=1r/m; server { listen SOCKET/a; limit_req zone=k; }`,
		[]probe{{"a", "a.test", "/"}}, "which rules cannot do"},
	{"a key that may be empty", `limit_req_zone $http_user_agent$arg_a zone=k:1m rate=1r/m; server { listen SOCKET/a; limit_req zone=k; }`,
		[]probe{{"a", "a.test", "/"}, {"a", "a.test", "/ x"}}, "all variables of the key are empty"},
	{"a map of a rewritten path", `map $uri $k { default ""; ~^/a/ $remote_addr; } limit_req_zone $k zone=k:1m rate=1r/m; server { listen SOCKET/a; limit_req zone=k; location /a/ { rewrite ^ /b break; } }`,
		[]probe{{"a", "a.test", "/a/x"}}, "nginx counts by $uri, which rewrite ^ /b break"},
	{"a map of paths that a server rewrites", `map $uri $k { default ""; ~^/a/ $remote_addr; } limit_req_zone $k zone=k:1m rate=1r/m; server { listen SOCKET/a; limit_req zone=k; rewrite ^/a/ /b; }`,
		[]probe{{"a", "a.test", "/a/x"}}, "nginx counts by $uri, which rewrite ^/a/ /b"},
	{"a server that takes requests away, and another one for all hosts", `server { listen SOCKET/a; limit_req zone=z; } server { listen SOCKET/a; server_name a.test; limit_req zone=z; rewrite ^/old https://b.test/ permanent; }`,
		[]probe{{"a", "a.test", "/old"}, {"a", "b.test", "/old"}}, "takes away before limit_req"},
	{"a location within one that returns", `server { listen SOCKET/a; limit_req zone=z; location /a/ { return 204; location /a/b/ { } } }`,
		[]probe{{"a", "a.test", "/a/x"}, {"a", "a.test", "/a/b/x"}, {"a", "a.test", "/x"}}, ""},
	{"slashes", `merge_slashes off; server { listen SOCKET/a; location //a/ { limit_req zone=z; } }`,
		[]probe{{"a", "a.test", "//a/x"}, {"a", "a.test", "/a/x"}}, "merge_slashes off"},
	{"stars in a map", `map $uri $k { default ""; /a/* $remote_addr; } limit_req_zone $k zone=k:1m rate=1r/m; server { listen SOCKET/a; limit_req zone=k; }`,
		[]probe{{"a", "a.test", "/a/x"}, {"a", "a.test", "/a/*"}}, "rules cannot match"},
}

// What rules count is what nginx counts, or the translation says how it differs; a rule that blocks counts
// nothing else.
func TestCountsAsNginx(t *testing.T) {
	for _, c := range comparisons {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			dir, zones := socketDir(t), ""
			if !strings.Contains(c.http, "limit_req_zone") {
				zones = "limit_req_zone $binary_remote_addr zone=z:1m rate=1r/m; limit_req_zone $remote_addr zone=other:1m rate=1000r/s;"
			}
			config := "events {}\nhttp {\n" + zones + "\n" + strings.ReplaceAll(c.http, "SOCKET", "unix:"+dir) + "\n}\n"
			made, err := translate.Files("nginx", translate.File{Name: "nginx.conf", Text: []byte(config)})
			if err != nil {
				t.Fatal(err)
			}
			set, err := rulefile.Parse("rules.yaml", made.Text())
			if err != nil {
				t.Fatal(err)
			}
			startNginx(t, dir, config, c.probes)
			text := strings.Join(strings.Fields(strings.ReplaceAll(string(made.Text()), "#", "")), " ")
			if !strings.Contains(text, c.said) {
				t.Errorf("no comment contains %q:\n%s", c.said, made.Text())
			}
			for i, p := range c.probes {
				client := netip.AddrFrom4([4]byte{203, 0, 113, byte(i + 1)})
				want, got := countedByNginx(t, dir, client, p), countedByRules(set, client, p)
				if want != got && c.said == "" {
					t.Errorf("%v: nginx counts it: %t, the rules: %t, without a comment in\n%s", p, want, got, made.Text())
				}
				if got && !want && !strings.Contains(c.said, "servers that answer all of them") {
					t.Errorf("%v: nginx does not count it, but a rule that blocks does:\n%s", p, made.Text())
				}
			}
		})
	}
}

// countedByRules reports whether a rule that blocks counts a request.
func countedByRules(set *rule.Set, client netip.Addr, p probe) bool {
	r := rule.Request{Addr: client}
	target, agent, named := strings.Cut(p.target, " ")
	if r.Admit("GET", p.host, target); named {
		r.Header = http.Header{"User-Agent": {agent}}
	}
	r.Canonicalize(rule.ClientPrefix{})
	for _, found := range set.Match(&r, nil) {
		if found.Action != rule.Log && found.Limits[0].Threshold < 1000 && set.Access(client) == 0 {
			return true
		}
	}
	return false
}

// countedByNginx reports whether nginx refuses the second of two requests.
func countedByNginx(t *testing.T, dir string, client netip.Addr, p probe) (refused bool) {
	target, agent, named := strings.Cut(p.target, " ")
	if named {
		agent = "User-Agent: " + agent + "\r\n"
	}
	for range 2 {
		conn, err := net.Dial("unix", filepath.Join(dir, p.socket))
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = conn.Close() }()
		fmt.Fprintf(conn, "GET %s HTTP/1.1\r\nHost: %s\r\nX-Client: %v\r\n%sConnection: close\r\n\r\n", target, p.host, client, agent)
		answer, err := http.ReadResponse(bufio.NewReader(conn), nil)
		refused = err != nil || answer.StatusCode == http.StatusServiceUnavailable
	}
	return refused
}

// socketDir returns a directory with a short path, which sockets need.
func socketDir(t *testing.T) string {
	dir, err := os.MkdirTemp("", "edge-import")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

// startNginx starts nginx with a configuration, in which clients name their addresses.
func startNginx(t *testing.T, dir, config string, probes []probe) {
	user := ""
	if os.Geteuid() == 0 {
		user = "user root;"
	}
	head := fmt.Sprintf("daemon off; master_process off; pid %[1]s/pid; error_log %[1]s/error; %[2]s", dir, user)
	paths := fmt.Sprintf(`http {
	access_log off; client_body_temp_path %[1]s/1; proxy_temp_path %[1]s/2; fastcgi_temp_path %[1]s/3; uwsgi_temp_path %[1]s/4; scgi_temp_path %[1]s/5;
	set_real_ip_from unix:; real_ip_header X-Client; root %[1]s/www;`, dir)
	file, www := filepath.Join(dir, "conf"), filepath.Join(dir, "www")
	if err := os.Mkdir(www, 0o700); err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{file: head + strings.Replace(config, "http {", paths, 1), www + "/index.html": "", www + "/main.html": "", www + "/index.php": ""} {
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	p := harness.Start(t, exec.Command(harness.Installed(t, "nginx"), "-p", dir, "-e", dir+"/error", "-c", file))
	harness.Until(t, "nginx listens", 30*time.Second, 5*time.Millisecond, func() bool {
		if p.HasEnded() {
			why, _ := os.ReadFile(dir + "/error")
			t.Fatalf("nginx exited: %s", why)
		}
		return !slices.ContainsFunc(probes, func(p probe) bool {
			conn, err := net.Dial("unix", filepath.Join(dir, p.socket))
			if err == nil {
				_ = conn.Close()
			}
			return err != nil
		})
	})
}
