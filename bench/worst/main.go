// Command worst searches for the requests of a refused client that cost a node the most CPU time for their size, as
// fuzzing searches for crashes: it draws inputs from a grammar of paths, queries, fields, bodies, trailers, frames and
// PROXY headers, and changes the costliest ones. The cost of an input is compared with that of plain requests of the
// same size, decompressed. If an input costs more than -bound times as much, the exit status is 1.
//
//	go build -o /tmp/edge ./cmd/edge && cd bench && go run ./worst -edge /tmp/edge
package main

import (
	"cmp"
	"flag"
	"fmt"
	"log"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/edgelimit/edge/bench/harness"
)

var (
	edge   = flag.String("edge", "edge", "the `binary`")
	length = flag.Duration("length", 2*time.Minute, "how long to search")
	bound  = flag.Float64("bound", 2, "the `ratio` of costs above which the search fails")
	seed   = flag.Uint64("seed", 1, "of the random inputs")
	show   = flag.Int("show", 5, "how many of the costliest inputs to print")
)

// ruleSets refuse every request of a client that has sent a second one: by its address, on all paths but one, and by values
// that it chooses. Another rule of each set reads everything that a rule can read of a request.
var ruleSets = [...]string{`
  - {id: all, characteristics: [ip], limits: [{threshold: 1, period: 1h}], mitigation_timeout: 1h}
`, `
  - {id: paths, except: {paths: [/health]}, characteristics: [ip], limits: [{threshold: 1, period: 1h}], mitigation_timeout: 1h}
  - {id: path, characteristics: [path], limits: [{threshold: 1000000, period: 1h}]}
`, `
  - {id: sessions, characteristics: ["cookie:sid"], limits: [{threshold: 1000000, period: 1h}]}
  - {id: users, characteristics: ["query:user", ip], limits: [{threshold: 1000000, period: 1h}]}
  - {id: all, characteristics: [ip, host], limits: [{threshold: 1, period: 1h}], mitigation_timeout: 1h}
`}

const everything = `
  - id: login
    match: {hosts: ["*.example.com"], methods: [POST, GET], paths: [/login, "/api/*"]}
    characteristics: [ip, "cookie:sid", "query:user", "header:x-api-key"]
    limits: [{threshold: 1000000, period: 1h}]
`

// kept is how many of the costliest inputs are changed further, and measured once more at the end.
const kept = 24

// A ratedInput is an input with its cost: how many times as much as plain requests of its size.
type ratedInput struct {
	input
	ratio float64
}

func main() {
	log.SetFlags(0)
	flag.Parse()
	failed := false
	harness.Main(func() { failed = run() })
	if failed {
		os.Exit(1)
	}
}

func run() (failed bool) {
	dir, remove := harness.TempDir()
	defer remove()
	var meters [len(ruleSets)]*meter
	for i, rules := range ruleSets {
		file := filepath.Join(dir, fmt.Sprintf("rules%d.yaml", i))
		harness.Check(os.WriteFile(file, []byte("rules:"+rules+everything), 0o600))
		addr := harness.FreeAddr()
		node := harness.Start("", *edge, "node", "--name", "bench", "--rules", file, "--listen", addr, "--origin", "http://127.0.0.1:1",
			"--metrics-listen", "", "--admin-listen", "", "--log-level", "error", "--trusted-proxy", "127.0.0.2", "--proxy-protocol")
		defer node.End()
		harness.WaitFor(addr)
		fmt.Printf("rules %d:%s\n", i, rules)
		meters[i] = &meter{node: node, addr: addr}
		meters[i].calibrate()
	}
	ratio := func(in input) (float64, bool) { return meters[in.rules].ratio(in) }
	fmt.Printf("%s\n\nsearching for %v\n", harness.Machine(), *length)

	r := rand.New(rand.NewPCG(*seed, 0))
	var best []ratedInput
	tried := 0
	for end := time.Now().Add(*length); time.Now().Before(end); tried++ {
		next := draw(r)
		if len(best) > 0 && r.IntN(4) > 0 {
			next = best[r.IntN(len(best))].change(r)
		}
		cost, ok := ratio(next)
		if !ok || len(best) == kept && cost <= best[kept-1].ratio {
			continue
		}
		if again, ok := ratio(next); ok {
			cost = min(cost, again) // other work on the machine makes some measurements too high
		}
		best = append(best, ratedInput{next, cost})
		slices.SortFunc(best, func(a, b ratedInput) int { return cmp.Compare(b.ratio, a.ratio) })
		best = best[:min(len(best), kept)]
	}
	for i := range best {
		best[i].ratio = meters[best[i].rules].paired(best[i].input)
	}
	slices.SortFunc(best, func(a, b ratedInput) int { return cmp.Compare(b.ratio, a.ratio) })
	fmt.Printf("%d inputs; the costliest, as multiples of plain requests of the same size:\n\n", tried)
	for _, f := range best[:min(*show, len(best))] {
		fmt.Printf("%5.2f  %6d bytes  %s\n", f.ratio, f.size(), f.input)
	}
	if len(best) > 0 && best[0].ratio > *bound {
		fmt.Printf("\nthe bound is %g\n", *bound)
		return true
	}
	return false
}
