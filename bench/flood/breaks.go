package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/edgelimit/edge/bench/harness"
)

const throttled = "{id: all, characteristics: [ip], limits: [{threshold: %d, period: %v}], mitigation_timeout: 0s}"

var (
	sentThen      = column{"sent then", func(all []run) string { return fmt.Sprint(median(all, func(r run) int { return r.sent })) }}
	inAll         = column{"in all windows", func(all []run) string { return fmt.Sprint(median(all, func(r run) int { return r.all })) }}
	innocentsHurt = column{"innocent refused", func(all []run) string {
		return fmt.Sprintf("%d of %d", sum(all, func(r run) int { return r.innocent }), sum(all, func(r run) int { return r.innocents }))
	}}
)

// breaks shows how many requests of an attacker pass in a window, around an event that loses counts.
func breaks() {
	const (
		threshold, rate = 50, 80
		slack           = rate / 10 // requests that pass in the 100 ms until a client that exceeds the threshold is refused
		period          = 3 * time.Second
		at              = 2 * period / 5 // of the event
		innocents       = 30
	)
	rule := fmt.Sprintf(throttled, threshold, period)
	// of returns a row. times is how often the threshold may be used up in a window.
	of := func(name string, times int, start func(context.Context) []*shard, event func(ctx context.Context, p pop, broken *shard)) *row {
		return &row{name: name, bar: atMost(times * (threshold + slack)), bound: true, paired: true, measure: func(binary string, _ int) run {
			ctx, cancel := context.WithCancel(context.Background())
			defer cancel()
			shards := start(ctx)
			var addrs []string
			for _, s := range shards {
				defer s.end()
				addrs = append(addrs, s.addr)
			}
			p := setup{binary: binary, rule: rule, nodes: 3, shards: addrs}.start(0)
			defer p.end()
			s, client := newScene(p, threshold, period, period/2, 2), clientsOf(shards, rule)
			time.AfterFunc(time.Until(s.begin.Add(at)), func() { event(ctx, p, shards[0]) })
			return s.run(innocents,
				attack{client(), rate, at - threshold*4/5*time.Second/rate}, // four fifths of the threshold, then the event
				attack{client(), rate, -period / 2},                         // exceeded before
				attack{client(), rate, at},
				attack{client(), 1.4 * threshold / period.Seconds(), -period / 2})
		}}
	}
	plain := func(args ...string) func(context.Context) []*shard {
		return func(context.Context) []*shard {
			return []*shard{startShard(args...), startShard(args...), startShard(args...)}
		}
	}
	doubled := func(ctx context.Context) []*shard {
		s := startRelayed(ctx)
		s.share(true)
		return []*shard{s, startShard(), startShard()}
	}
	full := func(ctx context.Context, _ pop, s *shard) { s.fill(ctx) }
	show(fmt.Sprintf("Passed requests of the worst of four clients in its worst window, threshold %d in %v, up to %d/s over three nodes, around an event", threshold, period, rate),
		[]column{sentThen, medianPassed, worstPassed, inAll, innocentsHurt}, []*row{
			of("nothing", 1, plain(), func(context.Context, pop, *shard) {}),
			of("a shard is killed", 3, plain(), func(_ context.Context, _ pop, s *shard) { s.kill() }),
			of("a shard restarts empty", 2, plain(), func(_ context.Context, _ pop, s *shard) { s.kill(); s.start() }),
			of("a shard is drained", 2, plain(), func(_ context.Context, p pop, s *shard) { p.drain(s, "drain") }),
			of("a shard is full and evicts", 3, plain(small(false)...), full),
			of("a shard is full and refuses", 3, plain(small(true)...), full),
			of("two servers share an address", 2, doubled, func(context.Context, pop, *shard) {}),
			rolling(threshold, rate, slack, innocents),
		})
}

// drain runs a command about a shard.
func (p pop) drain(s *shard, command string) {
	harness.Output(p.binary, "shards", command, s.addr, "--node", p.running[0].admin)
}

// rolling restarts each of three nodes with embedded shards in one window.
func rolling(threshold, rate, slack, innocents int) *row {
	const period = 20 * time.Second
	rule := fmt.Sprintf(throttled, threshold, period)
	return &row{name: "rolling restart of nodes with shards", bar: atMost(4 * (threshold + slack)), bound: true, paired: true, measure: func(binary string, _ int) run {
		p := setup{binary: binary, rule: rule, nodes: 3, embedded: true}.start(0)
		defer p.end()
		time.Sleep(time.Second) // the shards enter the ring
		s := newScene(p, threshold, period, 0, 1)
		restarted := during(func(context.Context) {
			time.Sleep(time.Until(s.begin.Add(2 * time.Second)))
			for i, n := range p.running {
				n.restart(func() { s.down[i].Store(true) })
				s.down[i].Store(false)
				time.Sleep(time.Second)
			}
			if late := time.Since(s.end); late > 0 {
				fmt.Printf("(the restarts ended %v after the window)\n", late)
			}
		})
		defer restarted()
		per := float64(threshold) / period.Seconds()
		return s.run(innocents, attack{"198.18.0.1", 1.2 * per, 0}, attack{"198.18.0.2", 1.4 * per, 0}, attack{"198.18.0.3", 2 * per, 0},
			attack{"198.18.0.4", 4 * per, 0}, attack{"198.18.0.5", float64(rate), 0})
	}}
}

// steady shows how many requests of a client that always exceeds a limit pass.
func steady() {
	const threshold = 200
	allowed := threshold * int(last.Seconds())
	share := func(name string, of func([]run) int) column {
		return column{name, func(all []run) string { return fmt.Sprintf("%+.2f%%", 100*(float64(of(all))/float64(allowed)-1)) }}
	}
	var rows []*row
	for _, times := range []float64{1.02, 1.6, 4} {
		rows = append(rows, &row{name: fmt.Sprint(times, " times the limit"), bar: atMost(allowed + allowed/200), bound: true, measure: func(binary string, _ int) run {
			p := start(binary, "0,1", fmt.Sprintf(perSecond, threshold), 3, 0, 0)
			defer p.end()
			time.Sleep(time.Until(time.Now().Truncate(time.Second).Add(time.Second)))
			return ask("192.0.2.66", int(times*threshold), *last, p.nodes...)
		}})
	}
	show(fmt.Sprintf("Passed requests of a client at three nodes for %v, compared with its limit of %d/s, whole windows", *last, threshold), []column{
		medianPassed, share("median", func(all []run) int { return median(all, passed) }),
		share("least", func(all []run) int { return slices.Min(values(all, passed)) }), share("most", func(all []run) int { return worst(all, passed) }),
	}, rows)
}

// schedules shows that no innocent client is refused while shards break at random, and how many requests of attackers
// pass meanwhile.
func schedules() {
	const (
		threshold, rate, slack, innocents = 10, 20, 2, 300
		period                            = 2 * time.Second
		windows                           = 3
	)
	rule := fmt.Sprintf(throttled, threshold, period)
	r := &row{name: fmt.Sprint("seeds from ", *seed), bar: atMost(3 * (threshold + slack)), bound: true, paired: true, measure: func(binary string, nth int) run {
		ctx, cancel := context.WithCancel(context.Background())
		defer cancel()
		shards := []*shard{startRelayed(ctx, small(false)...), startShard(small(false)...), startShard(small(true)...)}
		var addrs []string
		for _, s := range shards {
			defer s.end()
			addrs = append(addrs, s.addr)
		}
		p := setup{binary: binary, rule: rule, nodes: 3, shards: addrs}.start(0)
		defer p.end()
		s := newScene(p, threshold, period, 0, windows)
		var wg sync.WaitGroup
		defer wg.Wait()
		faults := randomFaults(rand.New(rand.NewPCG(*seed+uint64(nth), 0)), windows*period)
		for _, f := range faults {
			wg.Go(func() {
				time.Sleep(time.Until(s.begin.Add(f.at)))
				f.happen(p, shards)
			})
		}
		var attacks []attack
		for i := range shards {
			client := clientsOf(slices.Concat(shards[i:], shards[:i]), rule)
			for range 2 {
				attacks = append(attacks, attack{client(), rate, 0})
			}
		}
		result := s.run(innocents, attacks...)
		if result.innocent > 0 || result.passed > 3*(threshold+slack) {
			fmt.Printf("(-seed %d, %s: %d of innocents refused, %d of an attacker passed in a window: %v)\n", *seed+uint64(nth), binary, result.innocent, result.passed, faults)
		}
		return result
	}}
	show(fmt.Sprintf("Random faults of shards for %v, threshold %d in %v, three nodes, %d innocent clients that use half of it at once, six attackers at %d/s",
		windows*period, threshold, period, innocents, rate), []column{innocentsHurt, sentThen, medianPassed, worstPassed}, []*row{r})
}

// A fault is an event of a schedule.
type fault struct {
	kind      string
	shard     int
	at, lasts time.Duration
}

func (f fault) String() string {
	return fmt.Sprintf("%s %d at %v for %v", f.kind, f.shard, f.at.Round(time.Millisecond), f.lasts.Round(time.Millisecond))
}

// randomFaults returns six faults within the length of a run. Only the first shard has two servers.
func randomFaults(random *rand.Rand, length time.Duration) (faults []fault) {
	for range 6 {
		f := fault{[]string{"kill", "restart", "stop", "fill", "double", "drain"}[random.IntN(6)], random.IntN(3),
			time.Duration(random.Int64N(int64(length))), time.Duration(random.Int64N(int64(length / 2)))}
		if f.kind == "double" {
			f.shard = 0
		}
		faults = append(faults, f)
	}
	return faults
}

// happen breaks the shard, and returns when the fault is over.
func (f fault) happen(p pop, shards []*shard) {
	s := shards[f.shard]
	begin, end := func() {}, func() {}
	switch f.kind {
	case "kill":
		begin, end = s.kill, s.start
	case "restart":
		begin = func() { s.kill(); s.start() }
	case "stop":
		begin, end = func() { s.signal(syscall.SIGSTOP) }, func() { s.signal(syscall.SIGCONT) }
	case "fill":
		begin = func() { end = during(s.fill) }
	case "double":
		begin, end = func() { s.share(true) }, func() { s.share(false) }
	case "drain":
		begin, end = func() { p.drain(s, "drain") }, func() { p.drain(s, "undrain") }
	}
	begin()
	time.Sleep(f.lasts)
	end()
}
