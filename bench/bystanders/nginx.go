package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/edgelimit/edge/bench/harness"
)

// nginx is sent a slice of the log: the hour before the attack, and the attack. Its time is compressed: an hour
// takes 10 s, and rates are 360 times as high. limit_req keeps a level for each key that falls at the rate, in
// milliseconds of real time, so compression changes nothing but the resolution: 1 ms is 0.36 s of the log, whose own
// resolution is 1 s.
const (
	compression = 360
	before      = 3600 // seconds
)

// nginxRules limit each network to a threshold per hour: a burst of that many requests, and that rate. Rates are whole
// requests per minute.
const nginxRules = `
limit_req_status 429; limit_req_log_level info;
set_real_ip_from 127.0.0.1; real_ip_header X-Forwarded-For;
map $remote_addr $net24 { "~^(?<a>\d+\.\d+\.\d+)\." $a; }
map $remote_addr $net16 { "~^(?<b>\d+\.\d+)\." $b; }
limit_req_zone $net24 zone=attacked24:10m rate=%[1]dr/m; limit_req_zone $net24 zone=peaceful24:10m rate=%[1]dr/m;
limit_req_zone $net16 zone=attacked16:10m rate=%[1]dr/m; limit_req_zone $net16 zone=peaceful16:10m rate=%[1]dr/m;
server {
	listen %[3]s;
	location /attacked24 { limit_req zone=attacked24 burst=%[2]d nodelay; empty_gif; }
	location /peaceful24 { limit_req zone=peaceful24 burst=%[2]d nodelay; empty_gif; }
	location /attacked16 { limit_req zone=attacked16 burst=%[2]d nodelay; empty_gif; }
	location /peaceful16 { limit_req zone=peaceful16 burst=%[2]d nodelay; empty_gif; }
}`

// compare prints how much of the same slices nginx and our rules by network refuse with the greatest threshold that
// stops 90% of the attack. For nginx it also prints the greater thresholds that were tried before.
func compare(files []string, dir string) {
	fmt.Println("\n| | limit of | | threshold per hour | attack stopped | legitimate refused | ... because of the attack | late, ms: 99% | at most |")
	fmt.Println("|---|---|---|--:|--:|--:|--:|--:|--:|")
	for _, file := range files {
		name := strings.TrimSuffix(filepath.Base(file), ".tsv.gz")
		attacked := overlay(file, dir, busiest(file), 0.25)
		requests := slice(attacked)
		peaceful := withoutAttack(attacked)
		show := func(of, by string, threshold int, stopped float64, refused, without int, late string) {
			fmt.Printf("| %s | %s | %s | %d | %.1f%% | %d | %+d | %s |\n", name, of, by, threshold, stopped, refused, refused-without, late)
		}
		missing := map[string]bool{"24": true, "16": true}
		for _, m := range methods[1:] {
			for _, n := range thresholds {
				if r := replay(dir, attacked, m.rules(n)); r.Truth.Attack.Percent >= 90 {
					show(m.name, "edge", n, r.Truth.Attack.Percent, r.Truth.Legitimate.Refused, replay(dir, peaceful, m.rules(n)).Refused, "|")
					break
				}
			}
		}
		for _, n := range thresholds[1:] { // the first lets 60 of 360 requests in an hour pass
			results, late := askNginx(dir, requests, n)
			for _, bits := range []string{"24", "16"} {
				of, without := results["attacked"+bits], results["peaceful"+bits]
				stopped := 100 * float64(of.attack) / (10_000 * 60)
				if missing[bits] {
					show("each /"+bits, "nginx", n, stopped, of.rest, without.rest, late)
				}
				missing[bits] = missing[bits] && stopped < 90
			}
			if !missing["24"] && !missing["16"] {
				break
			}
		}
	}
}

// A loggedRequest is a request in a log.
type loggedRequest struct {
	Time   time.Time
	Addr   string `json:"remote_addr"`
	Attack bool
}

func (r loggedRequest) isAttack() bool { return r.Attack }

// slice reduces a log to the slice, and returns its requests.
func slice(file string) (requests []loggedRequest) {
	text, err := os.ReadFile(file)
	harness.Check(err)
	lines := slices.Collect(bytes.Lines(text))
	for _, line := range lines {
		var r loggedRequest
		harness.Check(json.Unmarshal(line, &r))
		requests = append(requests, r)
	}
	from, to := slices.IndexFunc(requests, loggedRequest.isAttack), len(requests)
	begin := requests[from].Time.Add(-before * time.Second)
	for from > 0 && !requests[from-1].Time.Before(begin) {
		from--
	}
	for !requests[to-1].Attack {
		to--
	}
	harness.Check(os.WriteFile(file, bytes.Join(lines[from:to], nil), 0o600))
	return requests[from:to]
}

// refusals are the numbers of refused requests, of the attack and of the rest.
type refusals struct{ attack, rest int }

// askNginx sends the requests to nginx, with and without the attack, for both kinds of networks, and returns its refusals and
// the lateness of its responses.
func askNginx(dir string, requests []loggedRequest, threshold int) (map[string]refusals, string) {
	addr := harness.FreeAddr()
	p := harness.Nginx("", dir, addr, fmt.Sprintf(nginxRules, threshold*compression/60, threshold-1, addr))
	defer p.End()
	var wg sync.WaitGroup
	var mu sync.Mutex
	results, late := map[string]refusals{}, []time.Duration(nil)
	begin := time.Now()
	for _, name := range []string{"attacked24", "attacked16", "peaceful24", "peaceful16"} {
		wg.Go(func() {
			own := requests
			if strings.HasPrefix(name, "peaceful") {
				own = slices.DeleteFunc(slices.Clone(requests), loggedRequest.isAttack)
			}
			refused, took := send(addr, name, own, begin, requests[0].Time)
			mu.Lock()
			defer mu.Unlock()
			results[name], late = refused, append(late, took...)
		})
	}
	wg.Wait()
	_, most := harness.Percentiles(late)
	return results, fmt.Sprintf("%.0f | %d", most, slices.Max(late).Milliseconds())
}

// send sends requests over one connection, so that they come in their order, each when it is due.
func send(addr, path string, requests []loggedRequest, begin, first time.Time) (refused refusals, late []time.Duration) {
	c, err := net.Dial("tcp", addr)
	harness.Check(err)
	defer c.Close()
	go func() {
		out := bufio.NewWriter(c)
		for _, r := range requests {
			due := begin.Add(r.Time.Sub(first) / compression)
			if wait := time.Until(due); wait > 0 {
				harness.Check(out.Flush())
				time.Sleep(wait)
			}
			fmt.Fprintf(out, "GET /%s HTTP/1.1\r\nHost: a\r\nX-Forwarded-For: %s\r\n\r\n", path, r.Addr)
		}
		harness.Check(out.Flush())
	}()
	responses := bufio.NewReader(c)
	for _, r := range requests {
		status, err := responses.Peek(len("HTTP/1.1 200"))
		harness.Check(err)
		limited := string(status[len("HTTP/1.1 "):]) == "429"
		harness.Check(harness.ReadResponse(responses))
		late = append(late, time.Since(begin.Add(r.Time.Sub(first)/compression)))
		switch {
		case limited && r.Attack:
			refused.attack++
		case limited:
			refused.rest++
		}
	}
	return refused, late
}
