//go:build linux

package deploy_test

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/user"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/edgelimit/edge/internal/harness"
)

// newNginx starts a node, and nginx with its shipped configuration, changed as ship does.
func newNginx(t *testing.T, changes ...string) *sidecar {
	s := newSidecar(t)
	s.proxy = harness.ReservePort(t)
	s.flags = append(s.flags, "--check-listen", "unix:"+filepath.Join(s.dir, "check.sock"))
	s.ship("nginx/edge.conf", changes...)
	s.shipNginx()
	s.startNode()
	s.startNginx("include edge-http.conf;", "include edge.conf;")
	return s
}

// shipNginx writes the files for nginx that need no changes but addresses.
func (s *sidecar) shipNginx() {
	s.t.Helper()
	s.ship("nginx/edge-http.conf", "/run/edge/", s.dir+"/", "/run/nginx-edge", s.dir+"/nginx-edge")
	s.ship("nginx/edge-report.conf")
}

// startNginx starts nginx with lines in the block http and in its server block.
func (s *sidecar) startNginx(inHTTP, inServer string) {
	s.t.Helper()
	user := ""
	if os.Geteuid() == 0 {
		user = "user root;"
	}
	config := s.write("nginx.conf", fmt.Sprintf(`%[1]s daemon off; master_process off; pid %[2]s/pid; error_log stderr crit;
events {}
http {
	%[5]s
	access_log off; client_body_temp_path %[2]s/b; proxy_temp_path %[2]s/p; fastcgi_temp_path %[2]s/f; uwsgi_temp_path %[2]s/u; scgi_temp_path %[2]s/c;
	server {
		listen %[3]s;
		client_max_body_size 0;
		%[6]s
		location / { proxy_pass http://%[4]s; }
		%[7]s
		location = /upgrade {
			proxy_http_version 1.1;
			proxy_set_header Upgrade $http_upgrade;
			proxy_set_header Connection upgrade;
			proxy_pass http://%[4]s;
		}
		location = /host {
			proxy_set_header Host $http_host;
			proxy_pass http://%[4]s;
		}
		location = /redirected {
			root %[2]s;
			try_files /missing /other;
		}
	}
}`, user, s.dir, s.proxy, s.origin, inHTTP, inServer, s.recipe("nginx")))
	s.startProxy("nginx", "-p", s.dir, "-e", "stderr", "-c", config)
}

// recipe returns a block of the recipe in docs/recipes.md for a login behind nginx, with the addresses of the test.
func (s *sidecar) recipe(language string) string {
	s.t.Helper()
	_, text, _ := strings.Cut(read(s.t, "../docs/recipes.md"), "## A login behind nginx\n")
	_, text, found := strings.Cut(text, "```"+language+"\n")
	block, _, end := strings.Cut(text, "```")
	if !found || !end {
		s.t.Fatalf("docs/recipes.md has no block of %s about a login behind nginx", language)
	}
	return strings.NewReplacer("/usr/share/edge/nginx/", "", "127.0.0.1:8000", s.origin).Replace(block)
}

// The recipe for a login limits failed ones, and nobody else.
func TestRecipeLogin(t *testing.T) {
	t.Parallel()
	s := newSidecar(t)
	s.proxy = harness.ReservePort(t)
	s.flags = append(s.flags, "--check-listen", "unix:"+filepath.Join(s.dir, "check.sock"))
	s.write("rules.yaml", s.recipe("yaml"))
	s.ship("nginx/edge.conf", "250ms", "2m") // nginx waits for the node even on a busy machine
	s.shipNginx()
	s.startNode()
	s.startNginx("include edge-http.conf;", "include edge.conf;")
	if resp, err := s.exceed(s.by(30), "POST", "/login", http.StatusUnauthorized); err != nil || resp.StatusCode != http.StatusTooManyRequests {
		t.Errorf("after failed logins: %v, %v; want 429", resp, err)
	}
	for _, path := range []string{"/login?right", "/"} {
		for range 20 {
			if resp, err := s.get(s.by(31), "POST", path); err != nil || resp.StatusCode != http.StatusOK {
				t.Fatalf("%s: %v, %v; want 200", path, resp, err)
			}
		}
	}
}

// nginx runs with its shipped configuration.
func TestNginx(t *testing.T) {
	t.Parallel()
	s := newNginx(t, "250ms", "2m") // nginx waits for the node even on a busy machine
	s.testRefused()
	s.testReported()
	s.testEarly()
	s.testAmbiguous()
	s.testOdd()
	s.testUpgrades()
	s.testRedirected()
	newNginx(t, "edge_clients 512", "edge_clients 2").testCrowd()
	s = newNginx(t)
	s.testRemembered()
	s.testUnchanged()
	s.testFaults()
	if resp, err := s.get(s.by(60), "GET", "/-/edge/check"); err != nil || resp.StatusCode != http.StatusNotFound {
		t.Errorf("the node's location answers a client %v, %v; want 404", resp, err)
	}
	// A header field that nginx forwards and the node refuses does not bypass the node.
	conn, err := net.Dial("tcp", s.proxy)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	_, _ = io.WriteString(conn, "GET /limited HTTP/1.1\r\nHost: a\r\nX: \x01\r\nConnection: close\r\n\r\n")
	if answer, err := io.ReadAll(conn); err != nil || !bytes.HasPrefix(answer, []byte("HTTP/1.1 400 ")) {
		t.Errorf("a header field that the node refuses: %q, %v; want 400", answer, err)
	}
}

// testRedirected checks that a request that nginx redirects internally counts once.
func (s *sidecar) testRedirected() {
	s.t.Helper()
	c := s.by(40)
	for range 10 {
		resp, err := s.get(c, "GET", "/redirected")
		if err != nil || resp.StatusCode != http.StatusOK || !strings.HasPrefix(resp.Header.Get("X-Saw"), "GET /other ") || !strings.Contains(resp.Header.Get("Ratelimit-Policy"), `"plenty";q=`) {
			s.t.Fatalf("a redirected request: %v, %v", resp, err)
		}
	}
	if resp, err := s.exceed(c, "GET", "/redirected", http.StatusOK); err != nil || resp.StatusCode != 429 {
		s.t.Errorf("%v, %v; want 429", resp, err)
	}
}

// docs/nginx.md promises a limit in five lines and two commands. They work as printed, with other addresses.
func TestFiveLines(t *testing.T) {
	t.Parallel()
	s := newSidecar(t)
	s.proxy = harness.ReservePort(t)
	_, text, _ := strings.Cut(read(t, "../docs/nginx.md"), "## In five lines and two commands\n")
	text, commands, _ := strings.Cut(text, "```sh\n")
	blocks := regexp.MustCompile("(?s)```(?:yaml|nginx)\n(.*?)```").FindAllStringSubmatch(text, -1)
	if len(blocks) != 3 {
		t.Fatalf("got %d blocks of configuration, want 3", len(blocks))
	}
	rules, setting, includes := blocks[0][1], blocks[1][1], strings.SplitAfter(blocks[2][1], "\n")
	commands, _, _ = strings.Cut(commands, "```")
	if lines := strings.Count(rules+setting+blocks[2][1], "\n"); lines > 5 || strings.Count(commands, "\n") != 2 {
		t.Errorf("got %d lines and the commands %q, want at most 5 lines and 2 commands", lines, commands)
	}
	group, err := user.LookupGroupId(strconv.Itoa(os.Getgid())) // the package creates the group edge-proxy
	if err != nil {
		t.Fatal(err)
	}
	here := strings.NewReplacer("edge-proxy", group.Name, "/etc/edge/", s.dir+"/", "/run/edge/", s.dir+"/", "/usr/share/edge/nginx/", s.dir+"/", "127.0.0.1:9180", `""`)
	node := read(t, "package/etc/edge/node.yaml")
	if !strings.Contains(node, "#"+setting) {
		t.Errorf("the package's node.yaml does not have %q", setting)
	}
	s.write("rules.yaml", rules)
	s.ship("nginx/edge.conf")
	s.shipNginx()
	s.flags = []string{"node", "--config", s.write("node.yaml", here.Replace(strings.Replace(node, "#"+setting, setting, 1))),
		"--admin-listen", "127.0.0.1:0"}
	s.startNode()
	s.startNginx(here.Replace(includes[0]), here.Replace(includes[1]))
	// On a busy machine nginx may not wait for the node, so some requests pass unchecked.
	resp, err := s.exceed(s.by(70), "GET", "/", http.StatusOK)
	if err != nil || resp.StatusCode != http.StatusTooManyRequests || resp.Header.Get("Retry-After") == "" || !strings.HasPrefix(resp.Header.Get("Ratelimit"), `"everything";r=0;`) {
		t.Errorf("%v, %v; want 429 by the rule", resp, err)
	}
}

// newHAProxy starts a node, and HAProxy with its shipped configuration. If patient, HAProxy
// waits for the node even on a busy machine, and reports what the origin answers to logins. Its configuration is changed
// as ship does.
func newHAProxy(t *testing.T, patient bool, changes ...string) *sidecar {
	s := newSidecar(t)
	s.proxy = harness.ReservePort(t)
	agent := harness.ReservePort(t)
	s.flags = append(s.flags, "--spop-listen", agent, "--trusted-proxy", "127.0.0.1")
	changes = append(changes, "bind :8080", "bind "+s.proxy, "127.0.0.1:3000", s.origin, "server node 127.0.0.1:9171", "server node "+agent, "/etc/haproxy/", s.dir+"/")
	if patient {
		s.ship("haproxy/edge-spoe.conf", "timeout hello 100ms", "timeout hello 2m", "timeout processing 250ms", "timeout processing 2m")
		changes = append(changes, "#acl", "acl", "#http-request", "http-request")
	} else {
		s.ship("haproxy/edge-spoe.conf")
	}
	config := s.ship("haproxy/haproxy.cfg", changes...)
	s.startNode()
	s.startProxy("haproxy", "-f", config)
	return s
}

// HAProxy runs with its shipped configuration.
func TestHAProxy(t *testing.T) {
	t.Parallel()
	s := newHAProxy(t, true)
	s.testRefused()
	s.testReported()
	s.testEarly()
	s.testAmbiguous()
	s.testOdd()
	s.testUpgrades()
	newHAProxy(t, true, "sc0_conn_cur gt 1024", "sc0_conn_cur gt 2").testCrowd()
	s = newHAProxy(t, false)
	s.testRemembered()
	s.testUnchanged()
	s.testFaults()
}

// newCaddy starts a node, and Caddy with its shipped configuration, changed as ship does.
func newCaddy(t *testing.T, changes ...string) *sidecar {
	s := newSidecar(t)
	// Even without a node, Caddy 2.6 truncates one in 80,000 answers of more than 4 KB to requests with a body:
	// net/http closes the request's body when the answer begins, and with it the connection to the origin.
	s.cuts = true
	s.proxy = harness.ReservePort(t)
	s.flags = append(s.flags, "--check-listen", "unix:"+filepath.Join(s.dir, "check.sock"))
	_, port, _ := net.SplitHostPort(s.proxy)
	site := s.ship("caddy/Caddyfile", append(changes, ":8080 {", "http://:"+port+" {", "/run/edge/", s.dir+"/", "127.0.0.1:3000", s.origin)...)
	s.startNode()
	s.startProxy("caddy", "run", "--adapter", "caddyfile", "--config", s.write("caddy.conf", fmt.Sprintf("{\n\tadmin off\n\tdefault_bind 127.0.0.1\n}\nimport %s\n", site)))
	return s
}

// Caddy runs with its shipped configuration, which cannot report the origin's answers.
func TestCaddy(t *testing.T) {
	t.Parallel()
	s := newCaddy(t, "250ms", "2m", "health_timeout 1s", "health_timeout 2m") // Caddy waits for the node even on a busy machine
	s.testRefused()
	s.testAmbiguous()
	s.testOdd()
	s.testUpgrades()
	s = newCaddy(t)
	s.testUnchanged()
	s.testFaults()
}
