package judge_test

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"

	"github.com/edgelimit/edge/load/judge"
	"github.com/edgelimit/edge/load/mix"
	rulefile "github.com/edgelimit/edge/rule/file"
)

// hurry is traffic in which clients that exceed a threshold send several requests within the bound on the lag.
const hurry = `
duration: 40s
start: 2026-01-01T00:00:00Z
components:
- name: modest
  steady: {clients: 10, rate: 3/10s, poisson: true}
- name: slow
  on_off: {clients: 8, rate: 3/1s, on: 6s, off: 16s}
  attack: true
- name: fast
  on_off: {clients: 8, rate: 8/1s, on: 6s, off: 16s}
  attack: true
- name: faster
  on_off: {clients: 8, rate: 20/1s, on: 6s, off: 16s}
  attack: true
`

// A sent is a request with its properties and its answer.
type sent struct {
	judge.Request
	judge.Properties
}

// A ledger holds requests and their answers.
type ledger []sent

func (l ledger) Len() int               { return len(l) }
func (l ledger) At(i int) judge.Request { return l[i].Request }
func (l ledger) Nodes() []string        { return []string{"node-1", "node-2", "node-3"} }
func (l ledger) Name(i int) string      { return fmt.Sprint("client-", l[i].Client) }

func (l ledger) Properties(i int, alike bool) judge.Properties {
	p := l[i].Properties
	if alike {
		p.Addr = netip.MustParseAddr("127.0.0.1")
	}
	return p
}

// attack returns requests without answers, by default those of testdata/traffic.yaml. Four IPv6 clients share
// each /64.
func attack(t testing.TB, traffic string) ledger {
	t.Helper()
	m, err := mix.Load("testdata/traffic.yaml", 0)
	if traffic != "" {
		m, err = mix.Parse("traffic.yaml", []byte(traffic))
	}
	if err != nil {
		t.Fatal(err)
	}
	random := rand.New(rand.NewPCG(1, 2))
	var l ledger
	s := m.Source()
	for q := (mix.Request{}); s.Next(&q); {
		r := sent{
			Request: judge.Request{
				Sent: q.Time, Done: q.Time + 1000, Client: q.Client, Look: q.Client % 2, Attack: m.Components()[q.Component].Attack, Node: random.IntN(3),
				Answer: judge.Answer{Status: 200, Expected: 200, Retry: judge.NoRetry, Remaining: -1},
			},
			Properties: judge.Properties{Addr: m.Addr(q.Client), Method: "GET", Host: "example.com", Target: "/"},
		}
		if q.Client%2 == 0 {
			r.Header = [][2]string{{"X-Api-Key", fmt.Sprint(q.Client)}}
		} else if q.Client%4 == 1 {
			r.Addr = netip.AddrFrom16([16]byte{0x20, 1, 0xd, 0xb8, 0, 0, byte(q.Client / 16), 1, 15: byte(q.Client)})
		}
		if random.IntN(4) == 0 {
			r.Look, r.Answer.Expected = r.Look+2, 401
		}
		l = append(l, r)
	}
	return l
}

// A limiter is a PoP of three nodes. It estimates from two windows, and acts on its counts after a
// lag. Its fields select mistakes.
type limiter struct {
	threshold, period, timeout int64
	lag                        func() int64 // from exceeding a limit until nodes refuse

	more    int64                                  // difference from the correct threshold
	weigh   func(prev, older, elapsed int64) int64 // weight of the previous windows, times the period
	shift   int64                                  // offset of its windows
	exact   bool                                   // keeps the time of every request
	bucket  int64                                  // is a token bucket of this size
	apart   bool                                   // nodes count separately
	counts  func(r *sent, refused bool) int        // number of times that a request is counted
	key     func(r *sent) string                   // the key of a request; "" if it is not counted
	before  func(l *limiter, r *sent)              // called before a request
	lift    int64                                  // when all mitigations are lifted; they return a second later
	passes  func(r *sent) bool                     // requests that always pass
	refuses func(r *sent) bool                     // requests that are always refused
	answer  func(a *judge.Answer)                  // changes answers
	unseen  bool                                   // refusals look like answers of the origin
	traffic string                                 // its traffic, by default testdata/traffic.yaml

	windows map[string]map[int64]int64
	times   map[string][]int64
	spans   map[string]*[2]int64 // start and end of mitigations
	filled  map[string]float64
	at      int64 // time of the first request
}

// estimate returns the number of requests of a key in the period before t, times the period.
func (l *limiter) estimate(key string, t int64) int64 {
	if l.exact {
		times := l.times[key]
		old, _ := slices.BinarySearch(times, t-l.period+1)
		return int64(len(times)-old) * l.period
	}
	w := (t - l.shift) / l.period
	elapsed := (t - l.shift) % l.period
	counts := l.windows[key]
	return counts[w]*l.period + l.weigh(counts[w-1], counts[w-2], elapsed)
}

func (l *limiter) over(key string, t int64) bool {
	return l.estimate(key, t) > (l.threshold+l.more)*l.period
}

// count counts a request, and may start a mitigation.
func (l *limiter) count(key string, t int64, refused bool) {
	if l.windows[key] == nil {
		l.windows[key] = map[int64]int64{}
	}
	l.windows[key][(t-l.shift)/l.period]++
	l.times[key] = append(l.times[key], t)
	if !l.over(key, t) {
		return
	}
	until := t
	for ; l.over(key, until); until += 20000 {
	}
	if !refused {
		until = max(until, t+l.timeout)
	}
	if s := l.spans[key]; s == nil || s[1] <= t {
		l.spans[key] = &[2]int64{t + l.lag(), until}
	} else {
		s[1] = max(s[1], until)
	}
}

// refused returns for how long a request is refused, or 0 if it passes.
func (l *limiter) refused(r *sent, key string, t int64) int64 {
	s := l.spans[key]
	switch {
	case l.refuses != nil && l.refuses(r):
		return 1
	case l.passes != nil && l.passes(r), s == nil || t < s[0] || t >= s[1], l.lift > 0 && t >= l.at+l.lift && t < l.at+l.lift+1e6:
		return 0
	}
	return s[1] - t
}

// pour decides with a token bucket.
func (l *limiter) pour(key string, t int64) (wait int64) {
	rate := float64(l.threshold) / float64(l.period)
	full := max(0, l.filled[key]-float64(t-l.times[key+"@"][0])*rate)
	l.times[key+"@"][0] = t
	if full+1 > float64(l.bucket) {
		l.filled[key] = full
		return max(1, int64((full+1-float64(l.bucket))/rate))
	}
	l.filled[key] = full + 1
	return 0
}

// network returns the prefix of an address that identifies a client.
func network(a netip.Addr) string {
	if a.Is6() {
		return netip.PrefixFrom(a, 64).Masked().String()
	}
	return a.String()
}

// run answers all requests of a ledger.
func (l *limiter) run(requests ledger) {
	l.windows, l.times, l.spans, l.filled = map[string]map[int64]int64{}, map[string][]int64{}, map[string]*[2]int64{}, map[string]float64{}
	if l.weigh == nil {
		l.weigh = func(prev, _, elapsed int64) int64 { return prev * (l.period - elapsed) }
	}
	if l.lag == nil {
		l.lag = func() int64 { return 0 }
	}
	l.at = requests[0].Sent
	for i := range requests {
		r := &requests[i]
		t := r.Sent + 500
		key := network(r.Addr)
		if l.key != nil {
			key = l.key(r)
		}
		r.Answer.Status = r.Answer.Expected
		if key == "" {
			continue
		}
		if l.apart {
			key += fmt.Sprint(" at ", r.Node)
		}
		if l.before != nil {
			l.before(l, r)
		}
		var left int64
		if l.bucket > 0 {
			if l.times[key+"@"] == nil {
				l.times[key+"@"] = []int64{t}
			}
			left = l.pour(key, t)
		} else {
			left = l.refused(r, key, t)
			n := 1
			if left > 0 {
				n = 0
			}
			if l.counts != nil {
				n = l.counts(r, left > 0)
			}
			for range n {
				l.count(key, t, left > 0)
			}
		}
		a := &r.Answer
		switch {
		case left == 0:
			a.Remaining = int(max(0, l.threshold+l.more-(l.estimate(key, t)+l.period-1)/l.period))
		case l.unseen:
			a.Status, a.Prepared = 200, true
		default:
			a.Status, a.Retry, a.Remaining = 429, int(max(1, (left+999_999)/1_000_000)), 0
		}
		if l.answer != nil {
			l.answer(a)
		}
	}
}

// score returns the score of the limiter under some rules.
func (l *limiter) score(t testing.TB, rules string, o judge.Options) *judge.Score {
	t.Helper()
	l.period = 10_000_000
	set, err := rulefile.Parse("rules.yaml", []byte("rules: ["+rules+"]"))
	if err != nil {
		t.Fatal(err)
	}
	l.threshold = int64(set.Rules()[0].Limits[0].Threshold)
	l.timeout = set.Rules()[0].MitigationTimeout.Microseconds() + l.timeout
	requests := attack(t, l.traffic)
	l.run(requests)
	o.Rules = set
	s, err := judge.Judge(requests, o)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// A refused request does not extend its mitigation by less than a tenth of a second.
func TestShortProlongation(t *testing.T) {
	set, err := rulefile.Parse("rules.yaml", []byte("rules: ["+extended+"]"))
	if err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		second int64 // when the second request comes, in ms
		want   uint64
	}{{50, 1}, {99, 1}, {100, 2}, {150, 2}} {
		var l ledger
		// The eleventh exceeds the threshold, the twelfth is refused, and the last one comes when the first has left
		// the window and the second has not.
		for _, ms := range []int64{0, test.second, 200, 300, 400, 500, 600, 700, 800, 900, 1000, 1100, 10_000 + test.second/2} {
			l = append(l, sent{
				Request: judge.Request{Sent: ms * 1000, Done: ms*1000 + 1, Client: 1,
					Answer: judge.Answer{Status: 200, Expected: 200, Retry: judge.NoRetry, Remaining: -1}},
				Properties: judge.Properties{Addr: netip.MustParseAddr("192.0.2.1"), Method: "GET", Host: "example.com", Target: "/"},
			})
		}
		s, err := judge.Judge(l, judge.Options{Rules: set})
		if err != nil {
			t.Fatal(err)
		}
		if s.Exact != test.want {
			t.Errorf("second request after %d ms: an exact limiter refuses %d requests, want %d", test.second, s.Exact, test.want)
		}
	}
}

// A percentile is the smallest value that at least this percentage of the values do not exceed.
func TestSpread(t *testing.T) {
	for want, values := range map[judge.Spread][]int64{
		{}:                        nil,
		{1, 7, 7, 7, 7}:           {7000},
		{3, 2, 3, 3, 3}:           {3000, 1000, 2000},
		{11, 6, 10, 11, 11}:       {11000, 10000, 9000, 8000, 7000, 6000, 5000, 4000, 3000, 2000, 1000},
		{4, 0.002, 0.9, 0.9, 0.9}: {1, 2, 3, 900},
	} {
		if got := judge.SpreadOf(values, 1e3); got != want {
			t.Errorf("spread %v, want %v", got, want)
		}
	}
}
