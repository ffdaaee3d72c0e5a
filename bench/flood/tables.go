package main

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/edgelimit/edge/bench/harness"
)

const (
	asClient  = "X-Forwarded-For: 192.0.2.1" // for nodes that trust this machine as a proxy, whose own requests pass
	perMinute = "{id: all, characteristics: [ip], limits: [{threshold: %d, period: 1m}], mitigation_timeout: 1m}"
	perSecond = "{id: all, characteristics: [ip], limits: [{threshold: %d, period: 1s}], mitigation_timeout: 0s}"
)

// warmup is how long a flood runs before the measured client starts.
const warmup = 2 * time.Second

// floods shows how many requests of a client that sends 100 a second pass during a flood, with 50 allowed in a
// minute.
func floods() {
	const rate, threshold = 100, 50
	crowd := func(name, cores string, nodes, clients, bar int, f flooder) *row {
		return &row{name: name, bar: atMost(bar), measure: func(binary string, _ int) (r run) {
			p := start(binary, cores, fmt.Sprintf(perMinute, threshold), nodes, 0, warmup+*last)
			defer p.end()
			ctx, cancel := context.WithCancel(context.Background())
			var running, asking sync.WaitGroup
			defer running.Wait()
			defer cancel()
			if f.conns > 0 {
				for _, node := range p.nodes {
					running.Go(func() { f.run(ctx, node, f.conns/nodes) })
				}
				time.Sleep(warmup)
			}
			begin, requests, busy := time.Now(), p.Requests(), busyTime(cores)
			each := make([]run, clients)
			for i := range clients {
				asking.Go(func() { each[i] = ask(fmt.Sprint("192.0.2.", i+1), rate, *last, p.nodes[i%nodes]) })
			}
			asking.Wait()
			took := time.Since(begin)
			r = slices.MaxFunc(each, func(a, b run) int { return a.passed - b.passed })
			r.unanswered = sum(each, func(r run) int { return r.unanswered })
			r.rate = float64(p.Requests()-requests) / took.Seconds()
			r.busy = (busyTime(cores) - busy).Seconds() / took.Seconds() / float64(len(coresOf(cores)))
			return r
		}}
	}
	show(fmt.Sprintf("Passed requests of a client that sends %d/s for %v, threshold %d a minute, during a flood", rate, *last, threshold),
		[]column{medianPassed, worstPassed, firstRefusal, allRequests, coresBusy}, []*row{
			crowd("no flood", "0", 1, 1, threshold+1+rate/10, flooder{}),
			crowd("one core, half of it busy", "0", 1, 1, threshold+1+rate/10, flooder{conns: 64, addresses: 100_000, pause: 12 * time.Millisecond}),
			crowd("two cores, 64 connections, 100,000 addresses", "0,1", 1, 1, 65, flooder{conns: 64, addresses: 100_000}),
			crowd("one core, 64 connections, 100,000 addresses", "0", 1, 1, 65, flooder{conns: 64, addresses: 100_000}),
			crowd("one core, 512 connections, 100,000 addresses", "0", 1, 1, 65, flooder{conns: 512, addresses: 100_000}),
			crowd("one core, 64 connections, 1,000,000 addresses", "0", 1, 1, 65, flooder{conns: 64, addresses: 1_000_000}),
			crowd("one core, 512 connections, 1,000,000 addresses", "0", 1, 1, 65, flooder{conns: 512, addresses: 1_000_000}),
			crowd("one core, three nodes, the worst of 20 clients, each at one node", "0", 3, 20, threshold+1+rate/10, flooder{conns: 64, addresses: 100_000}),
		})
}

// slow shows how many requests of an attacker that sends 200 a second pass, with 100 allowed in a minute,
// alongside 1,500 people who send 1 a second, while the shard answers late.
func slow() {
	const rate, threshold = 200, 100
	var rows []*row
	for _, nodes := range []int{1, 3} {
		first := len(rows)
		for _, delay := range []time.Duration{0, 10 * time.Millisecond, 20 * time.Millisecond, 40 * time.Millisecond} {
			r := &row{name: fmt.Sprintf("answers %v late, attacker at %d of 3 nodes", delay, nodes), measure: func(binary string, _ int) (r run) {
				p := start(binary, "0,1", fmt.Sprintf(perMinute, threshold), 3, delay, *last)
				defer p.end()
				var wg sync.WaitGroup
				defer wg.Wait()
				begin, requests, busy := time.Now(), p.Requests(), busyTime("0,1")
				wg.Go(func() { people(p.nodes, *last) })
				r = ask("192.0.2.66", rate, *last, p.nodes[:nodes]...)
				took := time.Since(begin)
				r.rate = float64(p.Requests()-requests) / took.Seconds()
				r.busy = (busyTime("0,1") - busy).Seconds() / took.Seconds() / 2
				return r
			}}
			switch {
			case nodes > 1: // 100 ms and two replies from the shard
				r.bar = atMost(threshold + 1 + int(rate*(100*time.Millisecond+2*delay)/time.Second))
			case delay > 0: // 100 ms more than without a delay
				r.bar = func() int { return median(rows[first].all, passed) + rate/10 }
			}
			rows = append(rows, r)
		}
	}
	show(fmt.Sprintf("Passed requests of a client that sends %d/s for %v, threshold %d a minute, alongside 1,500 clients that send 1/s, while memcached answers late",
		rate, *last, threshold), []column{medianPassed, worstPassed, firstRefusal, allRequests, coresBusy}, rows)
}

var passedOf = regexp.MustCompile(`status codes: (\d+) 2xx`)

// burst shows how many simultaneous HTTP/2 requests pass, with 50 allowed in a minute.
func burst() {
	var rows []*row
	for _, conns := range []int{1, 40} {
		rows = append(rows, &row{name: fmt.Sprintf("%d connections of 250 streams", conns), bar: atMost(60), measure: func(binary string, _ int) (r run) {
			p := start(binary, "0,1", fmt.Sprintf(perMinute, 50), 1, 0, time.Second)
			defer p.end()
			out := harness.Output("h2load", "-H", asClient, "-c", strconv.Itoa(conns), "-m", "250", "-n", strconv.Itoa(conns*250), "http://"+p.nodes[0]+"/")
			r.passed = number(passedOf, out)
			return r
		}})
	}
	show("Requests of one client's burst over HTTP/2 that pass, threshold 50 a minute", []column{medianPassed, worstPassed}, rows)
}

var requestsOf = regexp.MustCompile(`(\d+) requests in`)

// overshoot shows by how much the admitted requests of one key exceed 1,000 a second, at three nodes that the
// key saturates.
func overshoot() {
	const threshold = 1000
	lasts := 2 * *last
	show(fmt.Sprintf("Passed requests of one key, limit %d/s, three nodes, as many requests as they answer for %v", threshold, lasts), []column{
		{"admitted/s, median", func(all []run) string { return overBy(float64(median(all, passed))/lasts.Seconds(), threshold) }},
		{"worst", func(all []run) string { return overBy(float64(worst(all, passed))/lasts.Seconds(), threshold) }},
		{"most in one second", func(all []run) string { return fmt.Sprint(worst(all, func(r run) int { return r.most })) }},
		allRequests,
	}, []*row{{name: "12 connections to each node", measure: func(binary string, _ int) (r run) {
		p := start(binary, "0,1", fmt.Sprintf(perSecond, threshold), 3, 0, lasts)
		defer p.end()
		var mu sync.Mutex
		var wg sync.WaitGroup
		time.Sleep(time.Until(time.Now().Truncate(time.Second).Add(time.Second)))
		before := p.Requests()
		sent := 0
		for _, node := range p.nodes {
			wg.Go(func() {
				n := number(requestsOf, harness.Output("wrk", "-H", asClient, "-t1", "-c12", fmt.Sprintf("-d%.0fs", lasts.Seconds()), "http://"+node+"/"))
				mu.Lock()
				defer mu.Unlock()
				sent += n
			})
		}
		begin, counted := time.Now(), before
		for i := range int(lasts.Seconds()) {
			time.Sleep(time.Until(begin.Add(time.Duration(i+1) * time.Second)))
			now := p.Requests()
			r.most, counted = max(r.most, now-counted), now
		}
		wg.Wait()
		r.passed, r.rate = p.Requests()-before, float64(sent)/lasts.Seconds()
		return r
	}}})
}

// overBy formats a rate, and by how much it exceeds the limit.
func overBy(rate, limit float64) string {
	return fmt.Sprintf("%.0f (%+.1f%%)", rate, 100*(rate/limit-1))
}

// number returns the number in a program's output.
func number(pattern *regexp.Regexp, out string) int {
	m := pattern.FindStringSubmatch(out)
	if m == nil {
		harness.Check(fmt.Errorf("no match for %v in\n%s", pattern, out))
	}
	n, err := strconv.Atoi(m[1])
	harness.Check(err)
	return n
}
