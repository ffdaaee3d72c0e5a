package mix_test

import (
	"fmt"
	"math"
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/edgelimit/edge/load/mix"
)

// of returns the requests of a mix with one component and the given duration.
func of(t *testing.T, duration, component string) []mix.Request {
	t.Helper()
	return requests(parse(t, "duration: "+duration+"\ncomponents:\n- name: it\n  "+component+"\n"))
}

// byClient returns the times of each client's requests, in µs since the start of mixes.
func byClient(list []mix.Request) map[uint64][]int64 {
	times := map[uint64][]int64{}
	for i := range list {
		r := &list[i] // copies are slow with the race detector
		times[r.Client] = append(times[r.Client], r.Time-start)
	}
	return times
}

const start = 1767225600_000000 // 2026-01-01T00:00:00Z

// between fails the test unless got is from low to high.
func between(t *testing.T, what string, got, low, high float64) {
	t.Helper()
	if !(low <= got && got <= high) {
		t.Errorf("%s: %v, want %v to %v", what, got, low, high)
	}
}

// most returns the maximum number of requests in any span of the given length.
func most(times []int64, span time.Duration) (n int) {
	begin := 0
	for end, t := range times {
		for t-times[begin] >= span.Microseconds() {
			begin++
		}
		n = max(n, end-begin+1)
	}
	return n
}

func TestSteady(t *testing.T) {
	clients := byClient(of(t, "1h", "steady: {clients: 7, rate: 50/1m}"))
	if len(clients) != 7 {
		t.Errorf("%d clients, want 7", len(clients))
	}
	for client, times := range clients {
		if len(times) != 3000 {
			t.Errorf("client %d has %d requests in an hour, want 3000", client, len(times))
		}
		for i := 1; i < len(times); i++ {
			if gap := times[i] - times[i-1]; gap < 1_199_999 || gap > 1_200_001 {
				t.Fatalf("client %d has %d µs between two requests, want 1.2 s", client, gap)
			}
		}
	}
	// Rates that do not divide evenly must not drift.
	times := byClient(of(t, "10d", "steady: {clients: 1, rate: 7/1m}"))[0]
	if want := 7 * 60 * 24 * 10; len(times) != want {
		t.Errorf("%d requests in ten days, want %d", len(times), want)
	}
}

// The gaps of a Poisson process are exponential: the expected share is longer than the mean, and their
// standard deviation equals the mean.
func TestPoisson(t *testing.T) {
	list := of(t, "30m", "steady: {clients: 10, rate: 5/s, poisson: true}")
	between(t, "requests of ten clients in half an hour", float64(len(list)), 90_000-1000, 90_000+1000)
	var longer, sum, squares float64
	for i := 1; i < len(list); i++ {
		gap := float64(list[i].Time-list[i-1].Time) / 20_000
		sum, squares = sum+gap, squares+gap*gap
		if gap > 1 {
			longer++
		}
	}
	n := float64(len(list) - 1)
	between(t, "share of gaps above the mean", longer/n, 1/math.E-0.008, 1/math.E+0.008)
	between(t, "mean gap", sum/n, 0.99, 1.01)
	between(t, "variance of gaps", squares/n-(sum/n)*(sum/n), 0.95, 1.05)
	for client, times := range byClient(list) {
		between(t, fmt.Sprintf("requests of client %d", client), float64(len(times)), 9000-450, 9000+450)
	}
}

func TestZipf(t *testing.T) {
	for _, test := range []struct{ exponent, offset float64 }{{0, 0}, {1, 0}, {1.5, 0}, {1, 50}, {0.7, 3}} {
		list := of(t, "20m", fmt.Sprintf("zipf: {clients: 1000, rate: 50/s, exponent: %v, offset: %v}", test.exponent, test.offset))
		between(t, "requests", float64(len(list)), 60_000-1200, 60_000+1200)
		var sum float64
		weight := func(rank int) float64 { return math.Pow(float64(rank)+test.offset, -test.exponent) }
		for rank := range 1000 {
			sum += weight(rank + 1)
		}
		clients := byClient(list)
		for _, rank := range []int{1, 2, 10, 100, 1000} {
			want := weight(rank) / sum * 60_000
			between(t, fmt.Sprintf("requests of rank %d with the exponent %v", rank, test.exponent),
				float64(len(clients[uint64(rank-1)])), want-5*math.Sqrt(want), want+5*math.Sqrt(want))
		}
	}
}

func TestDiurnal(t *testing.T) {
	for _, kind := range []string{"steady: {clients: 1, rate: 60/1m}", "zipf: {clients: 10, rate: 60/1m, exponent: 1}", "pages: {clients: 30, think: 30s, assets: 0}"} {
		list := of(t, "1d", kind+"\n  diurnal: {depth: 0.5, peak: 20h}")
		between(t, kind+": requests", float64(len(list)), 86_400*0.98, 86_400*1.02)
		var hours [24]float64
		for _, r := range list {
			hours[(r.Time-start)/3600e6%24]++
		}
		for hour, n := range hours {
			want := 3600 * (1 + 0.5*math.Cos(2*math.Pi*(float64(hour)+0.5-20)/24))
			between(t, fmt.Sprintf("%s: requests in hour %d", kind, hour), n, want-5*math.Sqrt(want), want+5*math.Sqrt(want))
		}
	}
	// Between two requests it has no effect: even spacing stays even.
	times := byClient(of(t, "2h", "steady: {clients: 1, rate: 100/1m}\n  diurnal: {depth: 0.9, period: 24h}"))[0]
	for i := 2; i < len(times); i++ {
		before, now := times[i-1]-times[i-2], times[i]-times[i-1]
		if now < before*97/100 || now > before*103/100 {
			t.Fatalf("gap of %d µs, then of %d µs", before, now)
		}
	}
}

// A depth of 1 stops the traffic once per period.
func TestDiurnalFullDepth(t *testing.T) {
	list := of(t, "3h", "steady: {clients: 1, rate: 60/1m}\n  diurnal: {depth: 1, period: 1h, peak: 0}")
	between(t, "requests", float64(len(list)), 10_795, 10_805)
	var trough int
	for _, r := range list {
		if minute := (r.Time - start) / 60e6 % 60; minute == 29 || minute == 30 {
			trough++
		}
	}
	between(t, "requests in the two quietest minutes of three hours", float64(trough), 0, 2)
}

// A flood has more clients than requests, even at the peak of a day.
func TestDiurnalFlood(t *testing.T) {
	list := of(t, "1m", "random_keys: {rate: 20_000/1m}\n  diurnal: {depth: 1, peak: 0}")
	between(t, "requests", float64(len(list)), 39_000, 41_000)
	for client, times := range byClient(list) {
		if len(times) > 1 {
			t.Fatalf("client %d sends %d requests", client, len(times))
		}
	}
}

func TestPages(t *testing.T) {
	list := of(t, "1h", "pages: {clients: 100, think: 30s, load: 2s, assets: 10}\n  request: {paths: [/page], assets: [/asset]}")
	var views, assets, bursts float64
	left := map[uint64]int{}
	last := map[uint64]int64{}
	for _, r := range list {
		if r.Path == "/page" {
			if n, known := left[r.Client]; known {
				bursts++
				if n < 5 || n > 15 {
					t.Fatalf("client %d had %d assets with a page, want 5 to 15", r.Client, n)
				}
			}
			left[r.Client] = 0
			views++
		} else {
			assets++
			left[r.Client]++
		}
		last[r.Client] = r.Time
	}
	between(t, "page views of 100 clients in an hour, one every 32 s", views, 11_250*0.97, 11_250*1.03)
	between(t, "assets of a page", assets/views, 9.85, 10.15)
}

func TestFlashCrowd(t *testing.T) {
	list := of(t, "1h", "flash_crowd: {clients: 200, rate: 100/s, ramp: 1m, hold: 4m, decay: 10m}\n  from: 10m")
	minutes := make([]float64, 60)
	for _, r := range list {
		minutes[(r.Time-start)/60e6]++
	}
	for minute, n := range minutes {
		want := 0.0
		switch after := float64(minute) - 10; {
		case after == 0:
			want = 3000
		case after >= 1 && after < 5:
			want = 6000
		case after >= 5 && after < 15:
			want = 6000 * (15 - after - 0.5) / 10
		}
		between(t, fmt.Sprintf("requests in minute %d", minute), n, want-5*math.Sqrt(want), want+5*math.Sqrt(want))
	}
	if n := len(byClient(list)); n != 200 {
		t.Errorf("%d clients, want 200", n)
	}
}

// With twice a threshold around every second boundary, no window has more than the threshold, and the time
// around the boundary has twice as much.
func TestBoundary(t *testing.T) {
	const threshold = 50
	clients := byClient(of(t, "1h", "boundary: {clients: 3, requests: 100, period: 1m, width: 10s}\n  from: 13s"))
	if len(clients) != 3 {
		t.Fatalf("%d clients, want 3", len(clients))
	}
	for client, times := range clients {
		if len(times) != 29*2*threshold {
			t.Errorf("client %d has %d requests, want 29 bursts of %d", client, len(times), 2*threshold)
		}
		windows := map[int64]int{}
		for _, at := range times {
			windows[at/60e6]++
		}
		for window, n := range windows {
			if n != threshold {
				t.Errorf("client %d has %d requests in minute %d, want %d", client, n, window, threshold)
			}
		}
		if n := most(times, 10*time.Second); n != 2*threshold {
			t.Errorf("client %d has at most %d requests in ten seconds, want %d", client, n, 2*threshold)
		}
		if n := most(times, 40*time.Second); n != 2*threshold {
			t.Errorf("client %d has at most %d requests in 40 seconds, want %d", client, n, 2*threshold)
		}
	}
}

// Bursts meet the boundaries of windows whenever the traffic begins.
func TestBegin(t *testing.T) {
	m := parse(t, `duration: 10m
requests: 5000
components:
- name: edges
  boundary: {clients: 2, requests: 20, period: 90s, width: 8s, every: 1}
- name: short
  boundary: {clients: 1, requests: 10, period: 7s, width: 1s, every: 1}
  from: 14s
  to: 16s # only one of the two clocks has an edge in here
- name: others
  zipf: {clients: 5, rate: 5/s, exponent: 1}
`)
	now := time.Date(2026, 7, 19, 14, 22, 37, 123_456_000, time.UTC)
	for now.Add(15*time.Second).Unix()%7 != 0 {
		now = now.Add(time.Second)
	}
	s := m.Source()
	s.Begin(now)
	var others []mix.Request
	bursts := map[int64][2]int{} // before a boundary, and after it
	for r := (mix.Request{}); s.Next(&r); {
		at := now.UnixMicro() + r.Time - m.Start().UnixMicro()
		switch r.Component {
		case 0:
			edge := (at + 45e6) / 90e6
			n := bursts[edge]
			if at < edge*90e6 {
				n[0]++
			} else {
				n[1]++
			}
			bursts[edge] = n
			between(t, "distance from the edge", float64(at-edge*90e6), -4e6, 4e6)
		case 1:
			bursts[-1] = [2]int{bursts[-1][0] + 1, 0}
		case 2:
			others = append(others, r)
		}
	}
	if n := bursts[-1][0]; n != 10 {
		t.Errorf("the short component has %d requests, want a burst of 10", n)
	}
	delete(bursts, -1)
	for edge, n := range bursts {
		if n != [2]int{20, 20} {
			t.Errorf("edge %d: %v requests, want 20 on each side", edge, n)
		}
	}
	between(t, "bursts", float64(len(bursts)), 6, 7)
	if want := slices.DeleteFunc(requests(m), func(r mix.Request) bool { return r.Component != 2 }); !slices.Equal(others, want) {
		t.Error("the requests of another kind have changed")
	}
}

func TestOnOff(t *testing.T) {
	clients := byClient(of(t, "1h", "on_off: {clients: 40, rate: 2/s, on: 20s, off: 40s}"))
	if len(clients) != 40 {
		t.Fatalf("%d clients, want 40", len(clients))
	}
	phases := map[int64]bool{}
	for client, times := range clients {
		between(t, fmt.Sprintf("requests of client %d", client), float64(len(times)), 2400-1, 2400+1)
		if n := most(times, 30*time.Second); n != 40 {
			t.Errorf("client %d has %d requests in 30 s, want 40", client, n)
		}
		bursts := 0
		for i := 1; i < len(times); i++ {
			switch gap := times[i] - times[i-1]; {
			case gap >= 499_999 && gap <= 500_001:
			case gap >= 40_499_998 && gap <= 40_500_002:
				bursts++
			default:
				t.Fatalf("client %d pauses for %d µs", client, gap)
			}
		}
		between(t, fmt.Sprintf("pauses of client %d", client), float64(bursts), 59, 60)
		phases[times[100]%60e6/10e6] = true
	}
	if len(phases) < 5 {
		t.Errorf("the clients begin in %d sixths of a minute, want nearly all", len(phases))
	}
}

// Each client of a botnet stays below the rate, but not by much.
func TestBotnet(t *testing.T) {
	clients := byClient(of(t, "20m", "botnet: {clients: 200, rate: 50/1m, spread: 0.2}"))
	if len(clients) != 200 {
		t.Fatalf("%d clients, want 200", len(clients))
	}
	var counts []int
	for client, times := range clients {
		if n := most(times, time.Minute); n > 50 {
			t.Errorf("client %d has %d requests in a minute, want at most 50", client, n)
		}
		for i := 2; i < len(times); i++ {
			if a, b := times[i]-times[i-1], times[i-1]-times[i-2]; a-b > 1 || b-a > 1 {
				t.Fatalf("client %d pauses for %d and then for %d µs", client, b, a)
			}
		}
		counts = append(counts, len(times))
	}
	between(t, "fewest requests in 20 minutes", float64(slices.Min(counts)), 800, 815)
	between(t, "most requests in 20 minutes", float64(slices.Max(counts)), 985, 1000)
}

func TestGuessing(t *testing.T) {
	list := of(t, "1h", "guessing: {clients: 10, rate: 20/1m}")
	between(t, "requests", float64(len(list)), 12_000-400, 12_000+400)
	for _, r := range list {
		if r.Method != http.MethodPost || r.Path != "/login" || r.Status != http.StatusUnauthorized {
			t.Fatalf("%+v, want POST /login and 401", r)
		}
	}
	list = of(t, "1m", "guessing: {clients: 10, rate: 20/1m}\n  request: {paths: [/wp-login.php], methods: [PUT], status: 403}")
	for _, r := range list {
		if r.Method != http.MethodPut || r.Path != "/wp-login.php" || r.Status != http.StatusForbidden {
			t.Fatalf("%+v, want PUT /wp-login.php and 403", r)
		}
	}
}

func TestRandomKeys(t *testing.T) {
	list := of(t, "10m", "random_keys: {rate: 100/s}")
	between(t, "requests", float64(len(list)), 60_000-1000, 60_000+1000)
	if n := len(byClient(list)); n != len(list) {
		t.Errorf("%d clients make %d requests, want one each", n, len(list))
	}
}

// A component stays within its time.
func TestFromTo(t *testing.T) {
	for _, kind := range []string{
		"steady: {clients: 5, rate: 1/s}", "zipf: {clients: 5, rate: 5/s, exponent: 1}", "pages: {clients: 5}",
		"flash_crowd: {clients: 5, rate: 5/s, ramp: 1m, hold: 2h}", "boundary: {clients: 1, requests: 10, period: 10s}",
		"on_off: {clients: 5, rate: 5/s, on: 10s, off: 10s}", "botnet: {clients: 5, rate: 60/1m}",
		"guessing: {clients: 5, rate: 60/1m}", "random_keys: {rate: 5/s}",
	} {
		list := of(t, "1h", kind+"\n  from: 20m\n  to: 30m")
		first, last := list[0].Time-start, list[len(list)-1].Time-start
		between(t, kind+": first request", float64(first), 1200e6, 1240e6)
		between(t, kind+": last request", float64(last), 1760e6, 1800e6)
	}
}

func TestAttack(t *testing.T) {
	for _, c := range load(t, "testdata/all.yaml").Components() {
		want := c.Kind == "boundary" || c.Kind == "botnet" || c.Kind == "guessing" || c.Kind == "random_keys"
		if c.Attack != want {
			t.Errorf("%s is an attack: %t, want %t", c.Name, c.Attack, want)
		}
	}
}
