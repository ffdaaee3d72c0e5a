package accuracy_test

import (
	"fmt"
	"math"
	"math/big"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/edgelimit/edge/analysis/accesslog"
	"github.com/edgelimit/edge/analysis/accuracy"
)

func client(name string) (c accesslog.Client) {
	copy(c[:], name)
	return c
}

// definition implements the definitions, request by request, in exact fractions.
type definition struct {
	limit   accuracy.Limit
	n       int64 // sub-windows
	whole   bool  // the oldest one counts in full
	fixed   bool
	rounded bool // down
	shift   int64
	before  []int64 // times of the client's requests so far

	peak             uint64 // greatest exact count
	limited, differs bool   // at any request
}

// arrive returns the exact count and the estimate after a request at t.
func (d *definition) arrive(t int64) (exact int64, estimate *big.Rat) {
	d.before = append(d.before, t)
	period := d.limit.Period
	inSub := map[int64]int64{}
	floor := func(a, b int64) int64 {
		q := a / b
		if a%b < 0 {
			q--
		}
		return q
	}
	// The kth sub-window of window w starts at the first microsecond at which (t−w·P)·n/P is at least k.
	sub := func(t int64) int64 {
		w := floor(t+d.shift, period)
		return w*d.n + (t+d.shift-w*period)*d.n/period
	}
	for _, at := range d.before {
		if at > t-period {
			exact++
		}
		inSub[sub(at)]++
	}
	now := sub(t)
	if d.fixed {
		return exact, new(big.Rat).SetInt64(inSub[now])
	}
	sum := int64(0)
	for q := now - d.n + 1; q <= now; q++ {
		sum += inSub[q]
	}
	estimate = new(big.Rat).SetInt64(sum)
	oldest := new(big.Rat).SetInt64(inSub[now-d.n])
	if !d.whole {
		// The remaining part of the oldest one, in sub-windows.
		o := t + d.shift - floor(t+d.shift, period)*period
		left := new(big.Rat).SetInt64(now - floor(t+d.shift, period)*d.n + 1)
		left.Sub(left, big.NewRat(o*d.n, period))
		oldest.Mul(oldest, left)
	}
	estimate.Add(estimate, oldest)
	if d.rounded {
		estimate.SetInt(new(big.Int).Quo(estimate.Num(), estimate.Denom()))
	}
	return exact, estimate
}

// drawArrivals draws requests of several clients, a few seconds apart or at the same time.
func drawArrivals(t *rapid.T, fine bool) (arrivals []accesslog.Arrival) {
	at := rapid.Int64Range(-100, 1_000_000).Draw(t, "start") * 1e6
	for range rapid.IntRange(1, 150).Draw(t, "requests") {
		if rapid.Bool().Draw(t, "later") {
			step := rapid.Int64Range(0, 9).Draw(t, "seconds") * 1e6
			if fine {
				step += rapid.Int64Range(0, 999_999).Draw(t, "µs")
			}
			if rapid.IntRange(0, 20).Draw(t, "pause") == 0 {
				step *= 30
			}
			at += step
		}
		arrivals = append(arrivals, accesslog.Arrival{Time: at, Client: client(rapid.SampledFrom([]string{"a", "b", "c"}).Draw(t, "client"))})
	}
	return arrivals
}

func TestEstimators(t *testing.T) {
	estimators := map[string]definition{
		"fixed": {n: 1, fixed: true}, "weighted": {n: 1}, "sub_windows_3": {n: 3}, "sub_windows_7": {n: 7}, "sub_windows_60": {n: 60},
		"sub_windows_1_whole": {n: 1, whole: true}, "sub_windows_6_whole": {n: 6, whole: true},
		"packed_2x32": {n: 2}, "packed_6x10": {n: 6}, "packed_auto": {n: 6},
		"weighted_rounded": {n: 1, rounded: true}, "packed_auto_rounded": {n: 6, rounded: true},
	}
	var names []string
	for name := range estimators {
		names = append(names, name)
	}
	slices.Sort(names)
	rapid.Check(t, func(t *rapid.T) {
		arrivals := drawArrivals(t, rapid.Bool().Draw(t, "fine"))
		limit := accuracy.Limit{Threshold: rapid.Uint64Range(1, 20).Draw(t, "threshold"), Period: rapid.SampledFrom([]int64{1e6, 7e6, 60e6}).Draw(t, "period")}
		phases := rapid.IntRange(1, 2).Draw(t, "phases")
		report := measure(t, arrivals, accuracy.Options{Limits: []accuracy.Limit{limit}, Estimators: names, Phases: phases, Workers: 2})
		n := float64(len(arrivals))
		for i, name := range names {
			got := report.Results[i]
			span := [2]float64{100, 0} // of the wrong decisions, over the phases
			for phase := range phases {
				var want accuracy.Result
				var size, signed, near float64
				worst, missed, lowest := limit.Threshold, limit.Threshold, uint64(math.MaxUint64)
				threshold := new(big.Rat).SetUint64(limit.Threshold)
				clients := map[accesslog.Client]*definition{}
				for _, a := range arrivals {
					if clients[a.Client] == nil {
						d := estimators[name]
						d.limit, d.shift = limit, limit.Period*int64(phase)/int64(phases)
						clients[a.Client] = &d
					}
					d := clients[a.Client]
					exact, estimate := d.arrive(a.Time)
					over, estimated := uint64(exact) > limit.Threshold, estimate.Cmp(threshold) > 0
					switch {
					case over && !estimated:
						want.WronglyAllowed++
						worst = max(worst, uint64(exact))
					case estimated && !over:
						want.WronglyLimited++
					}
					if over {
						want.ExactOver++
					}
					if estimated {
						want.ApproxOver++
					}
					d.peak, d.limited, d.differs = max(d.peak, uint64(exact)), d.limited || estimated, d.differs || over != estimated
					if part := float64(exact) / float64(limit.Threshold); 0.5 <= part && part <= 2 {
						near++
					}
					e := new(big.Rat).Sub(estimate, new(big.Rat).SetInt64(exact))
					f, _ := e.Quo(e, new(big.Rat).SetInt64(exact)).Float64()
					size, signed = size+max(f, -f), signed+f
				}
				for _, d := range clients {
					if d.differs {
						want.SourcesDecisionEverDiffers++
					}
					switch over := d.peak > limit.Threshold; {
					case over && !d.limited:
						want.SourcesOverButNeverLimited++
						missed = max(missed, d.peak)
					case d.limited && !over:
						want.SourcesLimitedButNeverOver++
						lowest = min(lowest, d.peak)
						want.MinPeakOfThose = float64(lowest) / float64(limit.Threshold)
					}
				}
				want.WorstWronglyAllowed = float64(worst-limit.Threshold) / float64(limit.Threshold)
				want.MaxOvershootOfThose = float64(missed-limit.Threshold) / float64(limit.Threshold)
				wrong := 100 * float64(want.WronglyAllowed+want.WronglyLimited) / n
				span = [2]float64{min(span[0], wrong), max(span[1], wrong)}
				if phase > 0 {
					continue
				}
				if got.ExactOver != want.ExactOver || got.ApproxOver != want.ApproxOver || got.WronglyAllowed != want.WronglyAllowed || got.WronglyLimited != want.WronglyLimited {
					t.Errorf("%s: over %d, estimated %d, wrongly allowed %d, limited %d, want %d, %d, %d, %d", name,
						got.ExactOver, got.ApproxOver, got.WronglyAllowed, got.WronglyLimited, want.ExactOver, want.ApproxOver, want.WronglyAllowed, want.WronglyLimited)
				}
				if d := got.MeanAbsRelErr - size/n; d > 1e-9 || d < -1e-9 {
					t.Errorf("%s: mean error %v, want %v", name, got.MeanAbsRelErr, size/n)
				}
				if d := got.MeanSignedRelErr - signed/n; d > 1e-9 || d < -1e-9 {
					t.Errorf("%s: mean signed error %v, want %v", name, got.MeanSignedRelErr, signed/n)
				}
				figures := func(r accuracy.Result) string {
					return fmt.Sprint(r.SourcesDecisionEverDiffers, r.SourcesOverButNeverLimited, r.MaxOvershootOfThose,
						r.SourcesLimitedButNeverOver, r.MinPeakOfThose, r.WorstWronglyAllowed)
				}
				if figures(got) != figures(want) {
					t.Errorf("%s: figures of clients %s, want %s", name, figures(got), figures(want))
				}
				if got.NearPct != 100*near/n {
					t.Errorf("%s: %v%% are near the threshold, want %v%%", name, got.NearPct, 100*near/n)
				}
			}
			if phases > 1 && got.Phases.WrongPct != span {
				t.Errorf("%s: over phases %v%% are wrong, want %v%%", name, got.Phases.WrongPct, span)
			}
		}
	})
}

// Buckets refuse the expected requests.
func TestBuckets(t *testing.T) {
	at := func(seconds ...float64) (arrivals []accesslog.Arrival) {
		for _, s := range seconds {
			arrivals = append(arrivals, accesslog.Arrival{Time: int64(s * 1e6), Client: client("c")})
		}
		return arrivals
	}
	// 3 in 6 s: a token is refilled every 2 s.
	limit := accuracy.Limit{Threshold: 3, Period: 6e6}
	for _, tt := range []struct {
		name        string
		at          []accesslog.Arrival
		token, gcra uint64 // requests refused
	}{
		{"a burst of the threshold", at(0, 0, 0), 0, 0},
		{"one more than the threshold", at(0, 0, 0, 0), 1, 1},
		{"evenly at the rate", at(0, 2, 4, 6, 8, 10), 0, 0},
		{"just before a token is refilled", at(0, 0, 0, 1.9), 1, 1},
		{"when it is refilled", at(0, 0, 0, 2), 0, 0},
		{"refused requests take no token, but fill the leaky bucket", at(0, 0, 0, 0, 0, 2), 2, 3},
		{"full again after a long time", at(0, 0, 0, 0, 100, 100, 100), 1, 1},
	} {
		report := measure(t, tt.at, accuracy.Options{Limits: []accuracy.Limit{limit}, Estimators: []string{"token_bucket", "gcra"}})
		if got, want := []uint64{report.Results[0].ApproxOver, report.Results[1].ApproxOver}, []uint64{tt.token, tt.gcra}; !slices.Equal(got, want) {
			t.Errorf("%s: token bucket and leaky bucket refuse %v, want %v", tt.name, got, want)
		}
	}
}

// A full field of packed sub-windows stops counting: it is full at 3/4 of its range.
func TestPackedFieldsStop(t *testing.T) {
	var arrivals []accesslog.Arrival
	for range 5000 {
		arrivals = append(arrivals, accesslog.Arrival{Time: 0, Client: client("c")})
	}
	// 65 s later, half of that sub-window is left, plus the current one.
	arrivals = append(arrivals, accesslog.Arrival{Time: 65e6, Client: client("c")})
	r := measure(t, arrivals, accuracy.Options{Limits: []accuracy.Limit{{Threshold: 50, Period: 60e6}}, Estimators: []string{"packed_auto"}}).Results[0]
	want := 0.0
	for exact := 1; exact <= 5000; exact++ {
		want += float64(exact-min(exact, 768)) / float64(exact)
	}
	want += (384 + 1 - 1) / 1.0 // the exact log has forgotten the 5,000
	if got := r.MeanAbsRelErr * 5001; got < want-1e-5 || got > want+1e-5 {
		t.Errorf("sum of relative errors %v, want %v", got, want)
	}
}

// Results depend neither on the number of goroutines nor on the batching of requests.
func TestResultsDoNotDependOnWorkers(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	var arrivals []accesslog.Arrival
	at := int64(1_700_000_000e6)
	for range 20_000 {
		at += rng.Int64N(200_000)
		arrivals = append(arrivals, accesslog.Arrival{Time: at, Client: client(fmt.Sprint(int(rng.ExpFloat64() * 30)))})
	}
	var want *accuracy.Report
	for _, workers := range []int{1, 2, 4, 7} {
		report := measure(t, arrivals, accuracy.Options{Limits: []accuracy.Limit{{10, 10e6}, {50, 60e6}}, Phases: 3, Workers: workers})
		if want == nil {
			want = report
		}
		if diff := cmp.Diff(want, report); diff != "" {
			t.Errorf("%d goroutines, -1 +%d:\n%s", workers, workers, diff)
		}
	}
	if r := want.Results[1]; r.Estimator != "weighted" || r.WronglyAllowed == 0 || r.WronglyLimited == 0 {
		t.Errorf("the test is too weak: %+v", r)
	}
}

func TestAccuracyOptions(t *testing.T) {
	minute := accuracy.Limit{Threshold: 50, Period: 60e6}
	for _, tt := range []struct {
		name string
		o    accuracy.Options
		want string // substring of the error
	}{
		{"no limit", accuracy.Options{}, "no limit given"},
		{"threshold 0", accuracy.Options{Limits: []accuracy.Limit{{0, 60e6}}}, "invalid threshold 0"},
		{"a period of half a second", accuracy.Options{Limits: []accuracy.Limit{{1, 5e5}}}, "invalid period 500ms"},
		{"a limit twice", accuracy.Options{Limits: []accuracy.Limit{minute, minute}}, "the limit 50/1m is given twice"},
		{"an unknown estimator", accuracy.Options{Limits: []accuracy.Limit{minute}, Estimators: []string{"wieghted"}}, `unknown estimator "wieghted"`},
		{"too many sub-windows", accuracy.Options{Limits: []accuracy.Limit{minute}, Estimators: []string{"sub_windows_99999"}}, "sub_windows_3600"},
		{"a negative number of phases", accuracy.Options{Limits: []accuracy.Limit{minute}, Phases: -1}, "number of phases -1"},
	} {
		if _, err := accuracy.New(tt.o); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: error %v, want one with %q", tt.name, err, tt.want)
		}
	}
	a, err := accuracy.New(accuracy.Options{Limits: []accuracy.Limit{minute}})
	if err != nil {
		t.Fatal(err)
	}
	defer a.Part()
	if err := a.Add([]accesslog.Arrival{{Time: 2}, {Time: 1}}); err == nil {
		t.Error("requests out of order: no error")
	}
}

// The hash of a log covers seconds, with a fraction only if there is one.
func TestNormalizedHash(t *testing.T) {
	arrivals := []accesslog.Arrival{{Time: 5e6, Client: client("x")}, {Time: 5_250_000, Client: client("y")}, {Time: 6_000_001, Client: client("x")}, {Time: 6_000_002, Client: client("x")}}
	report := measure(t, arrivals, accuracy.Options{Limits: []accuracy.Limit{{1, 1e6}}})
	// printf '5\t0\n5.25\t1\n6.000001\t0\n6.000002\t0\n' | sha256sum
	if got, want := report.NormalizedSHA256, "d2d27449a545cfd386c980cb23294f4098cd684f38529d3de6823498de984479"; got != want {
		t.Errorf("hash %s, want %s", got, want)
	}
}
