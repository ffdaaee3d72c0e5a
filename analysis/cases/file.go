// Package cases runs unit tests of rules from a YAML file: requests with their expected verdicts.
package cases

import (
	"net/netip"
	"net/textproto"
	"path/filepath"
	"strings"
	"time"

	"go.yaml.in/yaml/v4"

	"github.com/edgelimit/edge/analysis/accesslog"
	"github.com/edgelimit/edge/internal/prose"
	"github.com/edgelimit/edge/internal/strictyaml"
	"github.com/edgelimit/edge/limit"
)

// Cases are unit tests of rules, from a file such as:
//
//	rules: [rules.yaml]
//	cases:
//	  - name: the sixth failed login in a minute is the last one
//	    requests:
//	      - {at: 0s, count: 6, every: 1s, path: /login, method: POST, status: 401, expect: passed}
//	      - {at: 6s, path: /login, method: POST, expect: blocked, rule: login}
//	      - {at: 20m, count: 100, every: 100ms, path: /, refused: 40}
//
// Each case begins with empty counters, at midnight UTC, when a window begins for every period that divides a day.
type Cases struct {
	File      string
	RuleFiles []string // rules files and directories, relative to the directory of File
	cases     []testCase
	text      []byte
}

// A testCase is a sequence of requests with expectations.
type testCase struct {
	name   string
	line   int
	groups []requestGroup
}

// A requestGroup is one or more identical requests.
type requestGroup struct {
	line, column int
	at, every    time.Duration
	count        uint64
	entry        accesslog.Entry

	expects bool    // there is an expectation, valid or not
	expect  string  // verdict of each of them; any if empty
	refused *uint64 // number of them that are refused; any if nil
	rule    string  // ID of the rule that decides about those that do not pass; any if empty
	ruleAt  *yaml.Node
}

// Bounds of a file of cases.
const (
	maxCaseRequests = 1_000_000 // per line
	maxCaseTime     = 366 * 24 * time.Hour
)

// Parse parses a file of cases. name is the name of the file in errors, which are [strictyaml.Errors].
func Parse(name string, text []byte) (*Cases, error) {
	r := &caseReader{Document: strictyaml.New(name, text), cases: Cases{File: name, text: text}}
	const hint = `begin it with the lines "rules: [rules.yaml]" and "cases:"`
	r.Read(hint, hint, []strictyaml.Field{
		{Name: "rules", Read: r.ruleFiles},
		{Name: "cases", Need: `cases: and a list, every case beginning with "- name:"`, Read: r.list},
	})
	if err := r.Err(); err != nil {
		return nil, err
	}
	return &r.cases, nil
}

// Paths returns the paths of the rules files, relative to the working directory, or absolute.
func (c *Cases) Paths() (paths []string) {
	for _, file := range c.RuleFiles {
		if !filepath.IsAbs(file) {
			file = filepath.Join(filepath.Dir(c.File), file)
		}
		paths = append(paths, file)
	}
	return paths
}

// A caseReader parses a file of cases.
type caseReader struct {
	*strictyaml.Document
	cases Cases
}

func (r *caseReader) ruleFiles(n *yaml.Node) {
	for _, item := range r.Sequence(n, "rules", "write rules: [rules.yaml]", "") {
		if strictyaml.IsMapping(item) {
			r.Fail(item, "a rules file comes after the test cases: edge check --test cases.yaml rules.yaml",
				"rules must be a list of names of rules files")
			return
		}
		if file, ok := r.Text(item, "the name of a rules file"); ok {
			r.cases.RuleFiles = append(r.cases.RuleFiles, file)
		}
	}
}

func (r *caseReader) list(n *yaml.Node) {
	named := map[string]bool{}
	for _, item := range r.Sequence(n, "cases", `begin every case with "- name:"`, "") {
		c := testCase{line: item.Line}
		r.Mapping(item, "a case", "write name: and requests:", []strictyaml.Field{
			{Name: "name", Need: "name: and what the case shows", Read: func(n *yaml.Node) {
				var ok bool
				if c.name, ok = r.Text(n, "name"); ok && named[c.name] {
					r.Fail(n, "give every case a unique name", "another case has this name")
				}
				named[c.name] = true
			}},
			{Name: "requests", Need: "requests: and a list, such as [{at: 0s, expect: passed}]", Read: func(n *yaml.Node) {
				expects := false
				const hint = "write requests: [{at: 0s, count: 10, every: 1s, expect: passed}]"
				for _, item := range r.Sequence(n, "requests", hint, "") {
					g := r.group(item)
					expects = expects || g.expects
					c.groups = append(c.groups, g)
				}
				if !expects && c.groups != nil {
					r.Fail(n, "write expect: blocked, or refused: 3, for at least one entry", "the case expects nothing")
				}
			}},
		})
		r.cases.cases = append(r.cases.cases, c)
	}
}

func (r *caseReader) group(n *yaml.Node) requestGroup {
	g := requestGroup{line: n.Line, column: n.Column, count: 1, every: -1}
	g.entry = accesslog.Entry{Method: "GET", Host: "example.com", Path: "/", Status: 200}
	client := func(text string) (ok bool) {
		addr, err := netip.ParseAddr(text)
		g.entry.Client, g.entry.Addr = text, addr
		return err == nil
	}
	client("192.0.2.1")
	r.Mapping(n, "requests", "write {at: 0s, expect: passed}", []strictyaml.Field{
		{Name: "at", Need: "at: 0s, the time of the first request", Read: func(n *yaml.Node) { g.at = r.duration(n, "at") }},
		strictyaml.Whole(r.Document, "count", "", &g.count, 1, maxCaseRequests),
		{Name: "every", Read: func(n *yaml.Node) { g.every = r.duration(n, "every") }},
		{Name: "client", Read: func(n *yaml.Node) {
			if text, ok := r.Text(n, "client"); ok && !client(text) {
				r.Fail(n, "write an address, such as 192.0.2.1", "client cannot be %q", text)
			}
		}},
		{Name: "method", Read: func(n *yaml.Node) { g.entry.Method, _ = r.Text(n, "method") }},
		{Name: "host", Read: func(n *yaml.Node) { g.entry.Host, _ = r.Text(n, "host") }},
		{Name: "path", Read: func(n *yaml.Node) {
			text, ok := r.Text(n, "path")
			if ok && !strings.HasPrefix(text, "/") && text != "*" {
				r.Fail(n, "begin it with a slash", "path cannot be %q", text)
			}
			g.entry.Path, g.entry.Query, _ = strings.Cut(text, "?")
		}},
		{Name: "header", Read: func(n *yaml.Node) { g.entry.Header = r.header(n) }},
		strictyaml.Whole(r.Document, "status", "", &g.entry.Status, 100, 599),
		{Name: "expect", Read: func(n *yaml.Node) {
			g.expects = true
			if i := r.Choice(n, "expect", expectations); i >= 0 {
				g.expect = expectations[i]
			}
		}},
		{Name: "refused", Read: func(n *yaml.Node) {
			g.expects = true
			if v, ok := r.Integer(n, "refused", 0, maxCaseRequests); ok {
				g.refused = &v
			}
		}},
		{Name: "rule", Read: func(n *yaml.Node) { g.rule, _ = r.Text(n, "rule"); g.ruleAt = n }},
	})
	r.check(n, &g)
	return g
}

// check reports contradictions in g.
func (r *caseReader) check(n *yaml.Node, g *requestGroup) {
	last := time.Duration(0)
	switch {
	case g.count > 1 && g.every < 0:
		r.Fail(n, "write every: 1s", "every is missing, but count is %d", g.count)
	case g.count > 1 && g.every > maxCaseTime/time.Duration(g.count):
		last = maxCaseTime + 1
	case g.count > 1:
		last = g.every * time.Duration(g.count-1)
	}
	g.every = max(0, g.every)
	if g.at+last > maxCaseTime {
		r.Fail(n, "make at, every or count smaller",
			"the last request comes more than 366 days after the start of the case")
	}
	if g.refused != nil && g.expect != "" {
		r.Fail(n, "remove one of them", "expect and refused are both set")
	}
	if g.refused != nil && *g.refused > g.count {
		r.Fail(n, "make refused at most count", "refused is %d, but count is %d", *g.refused, g.count)
	}
	if g.rule != "" && (g.expect == "" && g.refused == nil || g.expect == limit.Passed.String() ||
		g.expect == limit.Allowed.String() || g.expect == limit.Denied.String()) {
		r.Fail(g.ruleAt, "use it together with a verdict that a rule can have, such as expect: blocked",
			"rule has no effect here")
	}
}

// expectations are the verdicts that cases can expect: all but those for failed shards, malformed requests and proxies.
var expectations = func() (names []string) {
	for v := limit.Passed; v <= limit.Closed; v++ {
		if v != limit.Unavailable && v != limit.Own && v != limit.Malformed {
			names = append(names, v.String())
		}
	}
	return names
}()

func (r *caseReader) header(n *yaml.Node) (fields []accesslog.Field) {
	for _, pair := range r.Pairs(n, "header", "write header: {X-Api-Key: abc}") {
		name, ok := r.Text(pair[0], "a header's name")
		value, isText := r.Text(pair[1], "header "+name)
		if ok && isText {
			fields = append(fields, accesslog.Field{Name: textproto.CanonicalMIMEHeaderKey(name), Value: value})
		}
	}
	return fields
}

// duration reads a duration: 10s, 1h30m, 7d, 250ms, 1.5s.
func (r *caseReader) duration(n *yaml.Node, name string) time.Duration {
	text, ok := strictyaml.Scalar(n)
	d, err := prose.ParseDuration(text, 0)
	if !ok || err != nil || d < 0 || d > maxCaseTime {
		r.Fail(n, "write a time such as 250ms, 10s, 1h30m or 7d", "%s cannot be %q", name, text)
		return 0
	}
	return d
}
