package judge_test

import (
	"fmt"
	"net/netip"

	"github.com/edgelimit/edge/load/judge"
	rulefile "github.com/edgelimit/edge/rule/file"
)

// A broken limiter lets every request of its only client pass.
type careless []judge.Request

func (c careless) Len() int               { return len(c) }
func (c careless) At(i int) judge.Request { return c[i] }
func (c careless) Nodes() []string        { return []string{"node-1"} }
func (c careless) Name(int) string        { return "192.0.2.1" }
func (c careless) Properties(int, bool) judge.Properties {
	return judge.Properties{Addr: netip.MustParseAddr("192.0.2.1"), Method: "GET", Host: "example.com", Target: "/"}
}

func ExampleJudge() {
	rules, err := rulefile.Parse("rules.yaml", []byte(`rules: [{id: all, characteristics: [ip], limits: [{threshold: 10, period: 1m}]}]`))
	if err != nil {
		fmt.Println(err)
		return
	}
	var trace careless
	for i := range int64(30) {
		sent := i * 1_000_000 // one per second
		trace = append(trace, judge.Request{Sent: sent, Done: sent + 2000, Answer: judge.Answer{Status: 200, Expected: 200, Retry: judge.NoRetry, Remaining: -1}})
	}
	score, err := judge.Judge(trace, judge.Options{Rules: rules})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(score.Refused, score.Exact)
	for _, f := range score.Faults {
		fmt.Println(f.Name)
	}
	// Output:
	// 0 19
	// refuses_nothing
}
