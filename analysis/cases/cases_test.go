package cases_test

import (
	"bytes"
	"encoding/json"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/edgelimit/edge/analysis/cases"
	"github.com/edgelimit/edge/internal/golden"
	"github.com/edgelimit/edge/rule"
	rulefile "github.com/edgelimit/edge/rule/file"
)

// runCases runs the cases in text. If rules is nil, it loads the rules files that text names.
func runCases(t *testing.T, file, text string, rules *rule.Set) *cases.Report {
	t.Helper()
	cases, err := cases.Parse(file, []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	if rules == nil {
		if rules, err = rulefile.Load(cases.Paths()...); err != nil {
			t.Fatal(err)
		}
	}
	report, err := cases.Run(rules)
	if err != nil {
		t.Fatal(err)
	}
	return report
}

// The sample's cases pass, and fail if something else is expected.
func TestSampleCases(t *testing.T) {
	const file = "../../testdata/cases.yaml"
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	report := runCases(t, file, string(text), nil)
	var b bytes.Buffer
	if err := report.WriteText(&b); err != nil || report.Err() != nil || !report.OK {
		t.Errorf("sample cases: error %v, %v\n%s", report.Err(), err, &b)
	}
	for _, change := range [][2]string{
		{"status: 401, expect: passed", "status: 200, expect: passed"}, {"refused: 9", "refused: 10"}, {"refused: 0}", "refused: 1}"},
		{"expect: logged", "expect: blocked"}, {"expect: denied", "expect: allowed"}, {"rule: scraping", "rule: login"},
		{"at: 31s, client: 203.0.113.9, path: /,", "at: 31s, client: 203.0.113.9, path: /login, method: POST,"},
	} {
		changed := strings.Replace(string(text), change[0], change[1], 1)
		if changed == string(text) {
			t.Fatalf("the sample has no %q", change[0])
		}
		if report := runCases(t, file, changed, nil); report.OK || report.Err() == nil {
			t.Errorf("the sample passes with %q instead of %q", change[1], change[0])
		}
	}
}

// A report shows the request, its expected verdict and its actual verdict.
func TestCasesThatFail(t *testing.T) {
	report := runCases(t, "cases.yaml", `
cases:
  - name: as expected
    requests: [{at: 0s, count: 11, every: 1s, expect: passed}]
  - name: too early
    requests:
      - {at: 0s, count: 8, every: 1s, client: "2001:db8::1", path: /a?b=c, refused: 3}
      - {at: 3.5s, count: 10, every: 250ms, client: "2001:db8::2", expect: passed}
  - name: by another rule
    requests: [{at: 0s, count: 10, every: 0s, status: 404, path: /, expect: passed}, {at: 0, count: 3, every: 1m, expect: blocked, rule: found}]
`, parse(t, `rules:
  - {id: all, characteristics: [ip], limits: [{threshold: 10, period: 1m}], mitigation_timeout: 1h}
  - {id: found, count: {statuses: [404]}, characteristics: [ip], limits: [{threshold: 100, period: 1m}]}
`))
	var b bytes.Buffer
	if err := report.WriteText(&b); err != nil {
		t.Fatal(err)
	}
	golden.Check(t, "testdata/cases.txt", b.Bytes())
	text, err := json.MarshalIndent(report, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	golden.Check(t, "testdata/cases.json", append(text, '\n'))
}

func TestInvalidCases(t *testing.T) {
	for _, tt := range []struct{ name, text, want string }{
		{"nothing", "", ` the file is empty`},
		{"no cases", "rules: [a]", `1:1: the file has no cases`},
		{"rules", "rules: [{id: a}, {id: b}]\n" + request("at: 0s, expect: passed"), "1:9: rules must be a list of names of rules files (a rules file comes after the test cases: "},
		{"a number for rules", "rules: [1]\n" + request("at: 0s, expect: passed"), "1:9: the name of a rules file is the number 1, not a string"},
		{"no list", "cases: 3", `1:8: cases is the number 3, not a list`},
		{"an empty list", "cases: []", `1:8: cases is an empty list`},
		{"not YAML", "cases: [", `1:9: not YAML: `},
		{"a tab", "cases:\n\t- name: a", `2:1: not YAML: `},
		{"an unknown key", request("at: 0s, expect: passed, clint: 1.2.3.4"), `1:62: unknown key "clint" in requests (did you mean client?)`},
		{"no time", request("expect: passed"), `1:37: requests has no at`},
		{"a time without a unit", request("at: 5, expect: passed"), `1:42: at cannot be "5"`},
		{"a negative time", request("at: -5s, expect: passed"), `1:42: at cannot be "-5s"`},
		{"no pause", request("at: 0s, count: 2, expect: passed"), `1:37: every is missing, but count is 2`},
		{"too many requests", request("at: 0s, count: 1000001, every: 1s, expect: passed"), `1:53: count cannot be 1000001`},
		{"too late", request("at: 0s, count: 1000000, every: 1h, expect: passed"), `1:37: the last request comes more than 366 days after the start of the case`},
		{"too late to compute", request("at: 0s, count: 1000000, every: 365d, expect: passed"), `1:37: the last request comes more than 366 days after the start of the case`},
		{"a client without an address", request("at: 0s, client: me, expect: passed"), `1:54: client cannot be "me"`},
		{"a path", request("at: 0s, path: login, expect: passed"), `1:52: path cannot be "login"`},
		{"a status", request("at: 0s, status: 20, expect: passed"), `1:54: status cannot be 20`},
		{"an unknown verdict", request("at: 0s, expect: blockt"), `1:54: expect cannot be "blockt" (did you mean blocked?)`},
		{"an impossible verdict", request("at: 0s, expect: unavailable"), `1:54: expect cannot be "unavailable"`},
		{"a proxy's verdict", request("at: 0s, expect: own"), `1:54: expect cannot be "own"`},
		{"two expectations", request("at: 0s, expect: passed, refused: 0"), `1:37: expect and refused are both set`},
		{"more refused than sent", request("at: 0s, refused: 2"), `1:37: refused is 2, but count is 1`},
		{"a rule that passes", request("at: 0s, expect: passed, rule: all"), `1:68: rule has no effect here`},
		{"a rule and no verdict", request("at: 0s, rule: all}, {at: 0s, expect: passed"), `1:52: rule has no effect here`},
		{"no expectation", request("at: 0s"), `1:36: the case expects nothing`},
		{"a header", request("at: 0s, header: [a], expect: passed"), `1:54: header is a list, not a mapping`},
		{"a header's value", request("at: 0s, header: {a: 1}, expect: passed"), `1:58: header a is the number 1, not a string`},
		{"a name twice", "cases: [{name: a, requests: [{at: 0s, expect: passed}]}, {name: a, requests: [{at: 0s, expect: passed}]}]", `1:65: another case has this name`},
		{"no name", "cases: [{requests: [{at: 0s, expect: passed}]}]", `1:9: a case has no name`},
	} {
		_, err := cases.Parse("cases.yaml", []byte(tt.text))
		if err == nil {
			t.Errorf("%s: no error", tt.name)
			continue
		}
		first, _, more := strings.Cut(err.Error(), "\n")
		if !strings.HasPrefix(strings.TrimPrefix(first, "cases.yaml:"), tt.want) || more {
			t.Errorf("%s: %v, want %s", tt.name, err, tt.want)
		}
	}
}

// request returns a file with one line of requests, which starts at 1:37.
func request(line string) string {
	return "cases: [{name: 'a case', requests: [{" + line + "}]}]"
}

// A case with an unknown rule is an error, not a failure.
func TestCasesOfUnknownRules(t *testing.T) {
	cases, err := cases.Parse("cases.yaml", []byte(request("at: 0s, expect: blocked, rule: al")))
	if err != nil {
		t.Fatal(err)
	}
	_, err = cases.Run(parse(t, perMinute))
	if diff := cmp.Diff(`cases.yaml:1:69: there is no rule "al" (did you mean all?)`, errorText(err)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func errorText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// Any file is either parsed, or refused with errors that name it.
func FuzzParseCases(f *testing.F) {
	sample, err := os.ReadFile("../../testdata/cases.yaml")
	if err != nil {
		f.Fatal(err)
	}
	f.Add(sample)
	for _, line := range []string{"at: 0s, expect: passed", "at: 1d, count: 3, every: 1s, refused: 2, rule: all", "at: 0s, header: {a: b}", "at: &a 1s, every: *a"} {
		f.Add([]byte(request(line)))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		cases, err := cases.Parse("cases.yaml", text)
		if (cases == nil) == (err == nil) {
			t.Fatalf("cases %v and error %v", cases, err)
		}
		for line := range strings.Lines(errorText(err)) {
			if !strings.HasPrefix(line, "cases.yaml:") {
				t.Errorf("error without a position: %s", line)
			}
		}
	})
}

func parse(t *testing.T, rules string) *rule.Set {
	t.Helper()
	set, err := rulefile.Parse("rules.yaml", []byte(rules))
	if err != nil {
		t.Fatal(err)
	}
	return set
}

const perMinute = "rules: [{id: all, characteristics: [ip], limits: [{threshold: 10, period: 1m}], mitigation_timeout: 1m}]"
