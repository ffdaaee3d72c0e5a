//go:build linux

package deploy_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// A client is a container with its own address in the front's network.
type client struct {
	p          *dockerPoP
	name, addr string
	id         string
}

func (p *dockerPoP) newClient(name string) *client {
	p.t.Helper()
	id := p.docker("run", "-d", "--name", project+"-client-"+name, "--network", project+"_pop", "--user", "0", "--tmpfs", "/tmp",
		"--entrypoint", "sleep", memcachedImage, "3600")
	addr := p.docker("inspect", "--format", "{{range .NetworkSettings.Networks}}{{.IPAddress}}{{end}}", id)
	return &client{p, name, addr, id}
}

func (c *client) run(script string) string {
	c.p.t.Helper()
	return c.p.docker("exec", c.id, "sh", "-c", script)
}

// An answer is a response that a client got.
type answer struct {
	status                 int
	node, retryAfter, body string
}

// ask sends n requests to the front, one after another, each on its own connection.
func (c *client) ask(n int, headers ...string) []answer {
	c.p.t.Helper()
	return c.send(n, "front", append([]string{"GET / HTTP/1.1", "Host: pop.example", "Connection: close"}, headers...))
}

// send sends the lines of a request n times. A connection without an answer fails the test.
func (c *client) send(n int, to string, lines []string) (all []answer) {
	c.p.t.Helper()
	request := strings.Join(lines, `\r\n`) + `\r\n\r\n`
	// The pipe stays open so that the client does not close its half before the answer.
	out := c.run(fmt.Sprintf(`rm -f /tmp/in; mkfifo /tmp/in; exec 3<>/tmp/in
for i in $(seq %d); do printf '%s' >&3; timeout 60 nc %s 8080 <&3; printf '\n--end--\n'; done`, n, request, to))
	for text := range strings.SplitSeq(out+"\n", "\n--end--\n") {
		if text == "" {
			continue
		}
		resp, err := http.ReadResponse(bufio.NewReader(strings.NewReader(text)), nil)
		if err != nil {
			c.p.t.Fatalf("%s got %q: %v", c.name, text, err)
		}
		body, err := io.ReadAll(resp.Body)
		if err != nil {
			c.p.t.Fatalf("%s got %q: %v", c.name, text, err)
		}
		all = append(all, answer{resp.StatusCode, resp.Header.Get("X-Edge-Node"), resp.Header.Get("Retry-After"), string(body)})
	}
	if len(all) != n {
		c.p.t.Fatalf("%s got %d answers to %d requests:\n%s", c.name, len(all), n, out)
	}
	return all
}

// refusedBy sends n requests and returns the sorted names of the nodes that refused them, and any other
// status.
func (c *client) refusedBy(n int) string { return c.answeredBy(n, http.StatusTooManyRequests) }

// passedBy sends n requests and returns the sorted names of the nodes that let them pass, and any other
// status.
func (c *client) passedBy(n int) string { return c.answeredBy(n, http.StatusOK) }

func (c *client) answeredBy(n, status int) string {
	c.p.t.Helper()
	var by []string
	for _, a := range c.ask(n) {
		if a.status != status {
			a.node += fmt.Sprint(": ", a.status)
		}
		by = append(by, a.node)
	}
	slices.Sort(by)
	return strings.Join(slices.Compact(by), " ")
}

// metric returns the value of a node's metric, or the whole answer if it is missing.
func (c *client) metric(node, name string) string {
	c.p.t.Helper()
	out := c.run(fmt.Sprintf("timeout 60 wget -q -O - http://%s:9180/metrics || true", node))
	if m := regexp.MustCompile(`(?m)^` + name + ` (\S+)$`).FindStringSubmatch(out); m != nil {
		return m[1]
	}
	return out
}

// A prometheus answers queries.
type prometheus struct {
	t    *testing.T
	c    *http.Client
	addr string
}

// A series is an element of an answer.
type series struct {
	Metric map[string]string
	Value  []any
}

// query returns the series of an expression.
func (p prometheus) query(expr string) []series {
	p.t.Helper()
	status, body := get(p.t, p.c, p.addr+"/api/v1/query?query="+url.QueryEscape(expr))
	var got struct{ Data struct{ Result []series } }
	if err := json.Unmarshal([]byte(body), &got); err != nil || status != http.StatusOK {
		p.t.Fatalf("%s: %d %v %s", expr, status, err, body)
	}
	return got.Data.Result
}

// value returns the value of an expression with one series, or "".
func (p prometheus) value(expr string) string {
	p.t.Helper()
	if got := p.query(expr); len(got) == 1 && len(got[0].Value) == 2 {
		return fmt.Sprint(got[0].Value[1])
	}
	return ""
}

// checkAlerts checks that all alerts are evaluated.
func (p prometheus) checkAlerts() {
	p.t.Helper()
	eventually(p.t, "Prometheus evaluates the alerts", func() bool {
		_, body := get(p.t, p.c, p.addr+"/api/v1/rules")
		var got struct {
			Data struct {
				Groups []struct {
					Rules []struct{ Name, Health, LastError string }
				}
			}
		}
		if err := json.Unmarshal([]byte(body), &got); err != nil {
			p.t.Fatal(err)
		}
		healthy := 0
		for _, g := range got.Data.Groups {
			for _, r := range g.Rules {
				if r.Health == "err" {
					p.t.Fatalf("alert %s: %s", r.Name, r.LastError)
				}
				if r.Health == "ok" {
					healthy++
				}
			}
		}
		return healthy == len(alerts(p.t))
	})
}

// checkDashboard checks that every query of the dashboard has a result with the labels of its legend. Until it has,
// it sends requests with ask, since a counter that has not grown for a minute has no rate.
func (p prometheus) checkDashboard(ask func()) {
	p.t.Helper()
	for _, q := range dashboard(p.t) {
		if strings.Contains(q.Expr, "edge_tls_") {
			continue // the PoP has no certificates
		}
		var got []series
		eventually(p.t, "the query has a result: "+q.Expr, func() bool {
			got = p.query(strings.NewReplacer("$__rate_interval", "1m", "$node", ".*").Replace(q.Expr))
			if len(got) == 0 {
				ask()
			}
			return len(got) > 0
		})
		for _, label := range regexp.MustCompile(`{{(\w+)}}`).FindAllStringSubmatch(q.LegendFormat, -1) {
			if _, has := got[0].Metric[label[1]]; !has && label[1] != "rule" { // Prometheus drops an empty label
				p.t.Errorf("%s has no label %s: %v", q.Expr, label[1], got[0].Metric)
			}
		}
	}
}
