package decisions_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/edgelimit/edge/analysis/decisions"
	rulefile "github.com/edgelimit/edge/rule/file"
)

// Lines of logs of a rule with a threshold of 3 in 10 s, and a timeout of 20 s.
const (
	begins    = `{"event":"node","t":1000000,"version":1,"node":"n1","reason":"start","secret":"aa","share":0.5}`
	otherNode = `{"event":"node","t":1000000,"version":1,"node":"n2","reason":"start","secret":"aa","share":0.5}`
	defines   = `{"event":"rule","t":1,"ref":1,"rule":"all","definition":{"counts":"All requests are counted for each client address","limits":[{"threshold":3,"period_s":10,"estimate":"weighted"}],"mitigation_timeout_s":20,"action":"block"}}`
	raised    = `{"event":"rule","t":1,"ref":2,"rule":"all","definition":{"counts":"All requests are counted for each client address","limits":[{"threshold":100,"period_s":10,"estimate":"weighted"}],"mitigation_timeout_s":20,"action":"block"}}`
	guesses   = `{"event":"rule","t":1,"ref":3,"rule":"login","definition":{"counts":"x","limits":[{"threshold":1,"period_s":10,"estimate":"weighted"}],"mitigation_timeout_s":20,"action":"block","counts_answer":true}}`
)

// at returns a decision at a second, with more fields.
func at(second float64, more string) string {
	return fmt.Sprintf(`{"event":"decision","t":%d,"ref":1,"rule":"all","key":"%032x","cost":1%s}`, int64(second*1e6), 1, more)
}

const (
	passes = `,"verdict":"passed","counted":true`
	blocks = `,"verdict":"blocked","mitigated":true`
)

// later returns a line with which the same node starts again.
func later(begins string) string { return strings.Replace(begins, "1000000", "2000000", 1) }

// read reads files of lines.
func read(tb testing.TB, files ...[]string) *decisions.Log {
	tb.Helper()
	l := decisions.New()
	for i, lines := range files {
		if err := l.Read(fmt.Sprintf("file%d", i), strings.NewReader(strings.Join(lines, "\n")+"\n")); err != nil {
			tb.Fatal(err)
		}
	}
	return l
}

// accuracy returns the results for the first rule.
func accuracy(tb testing.TB, files ...[]string) (*decisions.Report, decisions.RuleReport) {
	tb.Helper()
	r, err := read(tb, files...).Accuracy()
	if err != nil {
		tb.Fatal(err)
	}
	return r, r.Rules[0]
}

// five returns five requests in the second after s. The first ones pass, and pass is their number.
func five(s float64, pass int) (lines []string) {
	for i := range 5 {
		fields := passes
		if i >= pass {
			fields = blocks
		}
		lines = append(lines, at(s+float64(i)/10, fields))
	}
	return lines
}

// Decisions are compared with an exact limiter: the fourth request in 10 s exceeds the threshold of 3, and the
// limiter refuses for 20 s, unless a lift, a reload or a gap in the log intervenes.
func TestAccuracy(t *testing.T) {
	type wrong = decisions.Wrong
	head := []string{begins, defines}
	for _, test := range []struct {
		name                   string
		lines                  []string
		decided, exact         uint64
		allowed, refused       wrong
		other, warmUp, missing uint64
	}{
		{name: "like an exact limiter", lines: append(five(100, 4), at(119, blocks), at(121, passes)), decided: 7, exact: 2},
		{name: "late", lines: append(five(100, 5), at(110, blocks)), decided: 6, exact: 2, allowed: wrong{1, 0, 1}},
		{name: "too early", lines: five(100, 3), decided: 5, exact: 1, refused: wrong{1, 0, 1}},
		// In the previous window there are 3: at 103 they weigh 2.1, at 109.9 nearly nothing.
		{name: "the estimate allows", lines: []string{at(108, passes), at(109, passes), at(109.9, passes), at(117.5, passes), at(117.6, passes), at(117.7, passes)}, decided: 6, exact: 2, allowed: wrong{2, 2, 0}},
		{name: "the estimate refuses", lines: []string{at(101, passes), at(101, passes), at(101, passes), at(111.5, passes), at(111.6, passes), at(111.7, blocks)}, decided: 6, refused: wrong{1, 1, 0}},
		{name: "a lift", lines: append(five(100, 4), at(102, passes+`,"generation":1`), at(103, passes+`,"generation":1`)), decided: 7, exact: 1},
		{name: "refused for another key", lines: append(five(100, 4), at(102, `,"verdict":"blocked","other":true`)), decided: 5, exact: 1, other: 1},
		{name: "mitigated by hand", lines: []string{at(100, blocks+`,"by_hand":true`), at(101, passes)}, decided: 1, other: 1},
		{name: "missing lines", lines: append(five(100, 4), `{"event":"missing","t":1,"lines":7}`), decided: 5, exact: 1, missing: 7},
		{name: "a raised threshold", lines: append(five(100, 4), raised, strings.Replace(at(103, passes), `"ref":1`, `"ref":2`, 1)), decided: 6, exact: 1},
		{name: "a log that begins in the middle", lines: append([]string{strings.Replace(begins, "start", "rotation", 1), defines}, append(five(30, 0), five(50, 4)...)...), decided: 5, exact: 1, warmUp: 5},
	} {
		lines := test.lines
		if test.warmUp == 0 {
			lines = slices.Concat(head, lines)
		}
		report, got := accuracy(t, lines)
		a := got.Accuracy
		if got.Decisions != test.decided || a.Exact != test.exact || a.WronglyAllowed != test.allowed || a.WronglyRefused != test.refused ||
			got.Other != test.other || got.WarmUp != test.warmUp || report.Missing != test.missing || report.Malformed+got.Assumed > 0 {
			t.Errorf("%s: %+v, %+v, %+v", test.name, report, got, *a)
		}
	}
}

// A rule with statuses counts a request by its answer, at the time of the request. The answer to a refused request is
// unknown.
func TestAnswers(t *testing.T) {
	decide := func(s float64, more string) string {
		return strings.NewReplacer(`"ref":1`, `"ref":3`, `"all"`, `"login"`).Replace(at(s, more))
	}
	count := func(s, decided float64) string {
		return fmt.Sprintf(`{"event":"count","t":%d,"ref":3,"rule":"login","key":"%032x","cost":1,"decided":%d}`, int64(s*1e6), 1, int64(decided*1e6))
	}
	passed := `,"verdict":"passed"`
	report, got := accuracy(t, []string{
		begins, guesses, decide(100, passed), decide(100, passed), decide(101, passed), // the last one does not count
		count(102, 100), count(103, 100), decide(104, blocks), decide(125, passed), count(126, 126),
	})
	a := got.Accuracy
	// Two at 100 exceed the limit immediately, so the one at 101 passed because of the lag of the answer.
	if got.Decisions != 5 || a.Exact != 2 || got.Assumed != 1 || a.WronglyAllowed != (decisions.Wrong{Requests: 1, Lag: 1}) || report.Unpaired != 1 {
		t.Errorf("%+v, %+v", got, *a)
	}
	// What the answer adds to the reserve exceeds the limit.
	_, got = accuracy(t, []string{begins, guesses, decide(100, passed+`,"counted":true`), count(101, 100), decide(102, blocks)})
	if got.Accuracy.Exact != 1 || got.Accuracy.WrongPct != 0 {
		t.Errorf("with a reserve: %+v, %+v", got, *got.Accuracy)
	}
}

// Logs of several nodes are merged by their clocks, corrected by the known offsets. A node may have several
// files, each of which starts anew.
func TestNodesAndClocks(t *testing.T) {
	lines := func(node string, ahead float64, lines ...string) []string {
		return append([]string{strings.Replace(node, `"share"`, fmt.Sprintf(`"ahead_us":%d,"share"`, int64(ahead*1e6)), 1), defines}, lines...)
	}
	for _, files := range [][][]string{
		{lines(begins, 0, at(100, passes), at(104, passes)), lines(otherNode, 0, at(101, passes), at(102, passes), at(103, blocks))},
		{lines(otherNode, 5, at(106, passes), at(107, passes), at(108, blocks)), lines(begins, 0, at(100, passes), at(104, passes))},
		{lines(begins, 0, at(104, passes)), lines(otherNode, 0, at(102, passes), at(103, blocks)), {}, lines(later(begins), 0, at(100, passes)), lines(later(otherNode), 0, at(101, passes))},
		{append(lines(otherNode, 0, at(101, passes), `{"event":"clock","t":1,"ahead_us":-50000000}`), at(52, passes), at(53, blocks)), lines(begins, 0, at(100, passes), at(104, passes))},
	} {
		report, got := accuracy(t, files...)
		a := got.Accuracy
		if len(report.Nodes) != 2 || report.Nodes[0].From.Unix() != 1 || got.Keys != 1 || got.Decisions != 5 || a.Exact != 1 || a.WronglyAllowed.Lag != 1 || a.WronglyRefused.Requests != 1 {
			t.Errorf("%v: %+v, %+v, %+v", files, report, got, *a)
		}
	}
}

// Other limits would have decided differently.
func TestEnforce(t *testing.T) {
	lines := append([]string{begins, defines}, append(five(100, 4), at(113, blocks))...)
	for _, test := range []struct {
		rules string
		want  decisions.Change
		err   string
	}{
		{rules: "{id: all, characteristics: [ip], limits: [{threshold: 3, period: 10s}], mitigation_timeout: 20s}", want: decisions.Change{Refused: 2, KeysRefused: 1}},
		{rules: "{id: all, characteristics: [ip], limits: [{threshold: 3, period: 10s}]}", want: decisions.Change{Refused: 1, KeysRefused: 1, NewlyAllowed: 1}},
		{rules: "{id: all, characteristics: [ip], limits: [{threshold: 3, period: 10s}], count_while_mitigated: true}", want: decisions.Change{Refused: 2, KeysRefused: 1}},
		{rules: "{id: all, characteristics: [ip], limits: [{threshold: 100, period: 1h}]}", want: decisions.Change{NewlyAllowed: 2}},
		{rules: "{id: all, characteristics: [ip], limits: [{threshold: 1, period: 10s}], mitigation_timeout: 30s}", want: decisions.Change{Refused: 4, KeysRefused: 1, NewlyRefused: 2}},
		{rules: "{id: all, characteristics: [host], limits: [{threshold: 1, period: 10s}]}", err: `rules.yaml:1:9: cannot replay rule all, which counts requests other than those in the log: "All requests are counted for each host", but `},
		{rules: "{id: all, match: {paths: [/a]}, characteristics: [ip], limits: [{threshold: 1, period: 10s}]}", err: "which counts requests other than those in the log"},
		{rules: "{id: more, characteristics: [ip], limits: [{threshold: 1, period: 10s}]}", err: "none of the rules is in the log, which has all"},
	} {
		set, err := rulefile.Parse("rules.yaml", []byte("rules: ["+test.rules+"]"))
		if err != nil {
			t.Fatal(err)
		}
		report, err := read(t, lines).Enforce(set)
		if test.err != "" {
			if err == nil || !strings.Contains(err.Error(), strings.Replace(test.err, ":1:9:", ":1:", 1)) {
				t.Errorf("%s: %v, want %s", test.rules, err, test.err)
			}
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		got := *report.Rules[0].Change
		if got.Limits = nil; fmt.Sprint(got) != fmt.Sprint(test.want) {
			t.Errorf("%s: %+v, want %+v", test.rules, got, test.want)
		}
	}
	set, err := rulefile.Parse("rules.yaml", []byte("rules: [{id: new, characteristics: [ip], limits: [{threshold: 1, period: 10s}]}, {id: login, characteristics: [ip], limits: [{threshold: 1, period: 10s}]}]"))
	if err != nil {
		t.Fatal(err)
	}
	report, err := read(t, append(lines, strings.Replace(guesses, `"x"`, `"All requests are counted for each client address"`, 1))).Enforce(set)
	if err != nil {
		t.Fatal(err)
	}
	if got := report.Rules[0].Change; got.NewlyAllowed != 2 || len(got.Limits) != 0 || fmt.Sprint(report.NotInLog) != "[new]" {
		t.Errorf("removed rule: %+v; not in the log: %v", got, report.NotInLog)
	}
}

// Logs of different PoPs, shares or versions are refused with a hint.
func TestIncompatibleLogs(t *testing.T) {
	for line, want := range map[string]string{
		strings.Replace(otherNode, `"aa"`, `"bb"`, 1):                      "file1:2: node n2 has a different secret from node n1 in file0:1: these are logs of different PoPs",
		strings.Replace(otherNode, "0.5", "0.25", 1):                       "file1:2: node n2 logs 0.25 of the keys, but node n1 in file0:1 logs 0.5: replay logs with the same share",
		strings.Replace(otherNode, `"share"`, `"clients":true,"share"`, 1): "a different log_clients",
		begins: "file1:2: the lines of node n1 from here on are also in file0:1: pass each log only once",
		strings.Replace(otherNode, `"version":1`, `"version":2`, 1): "file1:2: unsupported version 2 of the decision log: this program reads version 1",
	} {
		l := read(t, []string{begins, defines, at(1, passes)})
		if err := l.Read("file1", strings.NewReader(later(begins)+"\n"+line+"\n")); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", line, err, want)
		}
	}
	if _, err := read(t, []string{begins, defines}).Accuracy(); err == nil || err.Error() != "the log has no decisions" {
		t.Errorf("error %v of a log without decisions", err)
	}
}

// Unreadable lines are counted, and nothing else is lost.
func TestMalformed(t *testing.T) {
	malformed := []string{
		"nonsense", `{"event":"decision"`, `{"event":"other","t":1}`, `{}`, `[1]`,
		`{"event":"decision","t":1,"ref":9,"rule":"all","key":"` + strings.Repeat("0", 32) + `"}`,
		`{"event":"decision","t":1,"ref":1,"rule":"other","key":"` + strings.Repeat("0", 32) + `"}`,
		`{"event":"decision","t":1,"ref":1,"rule":"all","key":"abc"}`,
		`{"event":"decision","t":1,"ref":1,"rule":"all","key":"` + strings.Repeat("x", 32) + `"}`,
		`{"event":"decision","t":-5,"ref":1,"rule":"all","key":"` + strings.Repeat("0", 32) + `"}`,
		`{"event":"decision","t":1,"ref":1,"rule":"all","key":"` + strings.Repeat("0", 32) + `","cost":9007199254740993}`,
		`{"event":"node","t":1,"version":1,"secret":"aa","share":0.5}`,
		`{"event":"rule","t":1,"ref":2,"rule":"b"}`,
		`{"event":"rule","t":1,"ref":2,"rule":"b","definition":{"limits":[]}}`,
		`{"event":"rule","t":1,"ref":2,"rule":"b","definition":{"limits":[{"threshold":1,"period_s":0.5,"estimate":"fixed"}]}}`,
		`{"event":"rule","t":1,"ref":2,"rule":"b","definition":{"limits":[{"threshold":1,"period_s":1,"sub_windows":99,"estimate":"fixed"}]}}`,
		`{"event":"rule","t":1,"ref":2,"rule":"b","definition":{"limits":[{"threshold":1,"period_s":1,"estimate":"guess"}]}}`,
		`{"event":"rule","t":1,"ref":2,"rule":"b","definition":{"limits":[{"threshold":1,"period_s":1,"estimate":"fixed"},{"threshold":2,"period_s":1,"estimate":"fixed"}]}}`,
		strings.Repeat("long", 1<<19),
	}
	lines := append([]string{at(1, passes), begins, defines}, malformed...)
	lines = append(lines, five(100, 4)...)
	lines = append(lines, later(begins), at(300, passes)) // the node defines its rules anew
	l := decisions.New()
	if err := l.Read("file", strings.NewReader(strings.Join(lines, "\n")+"\n\n"+at(200, passes)[:30])); err != nil {
		t.Fatal(err)
	}
	report, err := l.Accuracy()
	if err != nil {
		t.Fatal(err)
	}
	if report.Malformed != uint64(len(malformed))+3 || len(report.Samples) != 5 || report.Samples[0].Line != 1 || report.Rules[0].Decisions != 5 {
		t.Errorf("%+v", report)
	}
	var text bytes.Buffer
	d := report.Document()
	if err := d.WriteText(&text); err != nil || !strings.Contains(text.String(), "Ignored as malformed: 22 lines.") {
		t.Errorf("%v, %s", err, text.String())
	}
	if !decisions.IsLog([]byte("\n"+begins)) || decisions.IsLog([]byte(`{"event":"request","t":1}`)) || decisions.IsLog(nil) {
		t.Error("IsLog does not recognize logs")
	}
}

// As in access logs, a time before 1970 is malformed, and the reason says so.
func TestBefore1970(t *testing.T) {
	lines := append([]string{begins, defines, at(-1, passes)}, five(100, 4)...)
	report, err := read(t, lines).Accuracy()
	if err != nil {
		t.Fatal(err)
	}
	if report.Malformed != 1 || !strings.Contains(report.Samples[0].Reason, "not between 1970 and") || report.Rules[0].Decisions != 5 {
		t.Errorf("%+v", report)
	}
}

// Files can be given in any order.
func TestOrderOfFiles(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	files := [][]string{{begins, defines}, {otherNode, defines}}
	for i := range 400 {
		fields := passes
		if random.IntN(3) == 0 {
			fields = blocks
		}
		line := strings.Replace(at(100+float64(i)/7, fields), fmt.Sprintf("%032x", 1), fmt.Sprintf("%032x", random.IntN(9)), 1)
		files[i%2] = append(files[i%2], line)
	}
	one, _ := accuracy(t, files...)
	other, _ := accuracy(t, files[1], files[0])
	a, _ := json.Marshal(one)
	b, _ := json.Marshal(other)
	if !bytes.Equal(a, b) || one.Rules[0].Accuracy.WronglyAllowed.Requests == 0 {
		t.Errorf("%s\n%s", a, b)
	}
}

func FuzzRead(f *testing.F) {
	f.Add([]byte(strings.Join(append([]string{begins, defines, raised, guesses}, five(100, 4)...), "\n")))
	f.Add([]byte(begins + "\n" + guesses + "\n" + `{"event":"count","t":5,"ref":3,"rule":"login","key":"00000000000000000000000000000001","cost":9007199254740992}` + "\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		l := decisions.New()
		if l.Read("file", bytes.NewReader(text)) != nil {
			return
		}
		r, err := l.Accuracy()
		if err != nil {
			return
		}
		for _, rr := range r.Rules {
			a := rr.Accuracy
			for _, w := range []decisions.Wrong{a.WronglyAllowed, a.WronglyRefused} {
				if w.Estimate+w.Lag != w.Requests {
					t.Errorf("%+v", w)
				}
			}
			if a.Exact+rr.Refused-2*a.WronglyRefused.Requests < a.Exact-rr.Refused || rr.Refused+a.WronglyAllowed.Requests != a.Exact+a.WronglyRefused.Requests {
				t.Errorf("%+v, %+v", rr, *a)
			}
		}
		d := r.Document()
		if err := d.WriteText(io.Discard); err != nil {
			t.Error(err)
		}
	})
}

// Rules that shed are not compared, because the log does not say which clients they refuse.
func TestShedIsNotCompared(t *testing.T) {
	lines := append([]string{begins, strings.Replace(defines, `"action":"block"`, `"action":"shed"`, 1)}, five(100, 3)...)
	if _, r := accuracy(t, lines); !r.NotCompared || r.Accuracy != nil || r.Decisions != 5 || r.Refused != 2 {
		t.Errorf("got %+v, want 5 decisions that are not compared", r)
	}
	overview, err := read(t, lines).Overview()
	if err != nil || overview.Rules[0].NotCompared {
		t.Errorf("overview %+v, error %v, want NotCompared unset", overview, err)
	}
}
