// Command bystanders measures how many requests of real traffic are refused when a distributed attack is stopped by
// limits per address, per /24 and per /16, and by limits per /24 and per /16 that shed. The attack is overlaid
// on traces of real traffic, so "edge replay" knows its requests.
//
//	go build -o /tmp/edge ./cmd/edge && cd bench && go run ./bystanders -edge /tmp/edge -traces DIR
//
// With -nginx it measures nginx's limit_req by network instead, compared with our limits for each /24 and each /16:
// see nginx.go.
package main

import (
	"bufio"
	"bytes"
	"cmp"
	"compress/gzip"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"log"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/edgelimit/edge/bench/harness"
)

var (
	edge   = flag.String("edge", "edge", "the `binary`")
	traces = flag.String("traces", ".", "`directory` with traces: *.tsv.gz, with a time in Unix seconds and a client on each line")
	only   = flag.String("only", "", "only traces whose names contain this `text`")
	nginx  = flag.Bool("nginx", false, "measure nginx's limit_req, with a quarter of the networks shared")
)

// The attack has 10,000 addresses in 200 networks of 24 bits, and 20 requests a second in total, for more than
// eight hours from the trace's busiest hour on, because the traces have few requests. So an address sends a
// request every 500 s, and a network 360 in an hour.
const attack = `duration: %ds
components:
- name: scrapers
  from: %ds
  spread: {clients: 10000, networks: 200, prefix: 24, shared: %v, requests: 60, rate: 20/s}
`

const lasts = 10_000 * 60 / 20 // seconds

// shares are the shares of the attack's networks that clients of the trace also use.
var shares = []float64{0, 0.25, 0.5, 1}

// thresholds, in requests per hour, are tried in descending order; the first one that stops enough of the
// attack counts.
var thresholds = []int{60, 36, 30, 20, 12, 8, 5, 3, 2, 1}

// A method is rules with a threshold.
type method struct {
	name  string
	rules func(threshold int) string
}

func fixed(characteristic string) func(int) string {
	return func(n int) string {
		return fmt.Sprintf("rules: [{id: a, characteristics: [%s], limits: [{threshold: %d, period: 1h}]}]\n", characteristic, n)
	}
}

var methods = []method{
	{"each address", fixed("ip")},
	{"each /24", fixed("network:24/48")},
	{"each /16", fixed("network:16/32")},
	{"shedding", func(n int) string {
		return fmt.Sprintf(`rules:
- {id: narrow, characteristics: [network:24/48], limits: [{threshold: %d, period: 1h}], min_clients: 10, action: shed}
- {id: wide, characteristics: [network:16/32], limits: [{threshold: %d, period: 1h}], min_clients: 30, action: shed}
`, n, 20*n)
	}},
}

// stopped are the shares of the attack to be stopped, in percent.
var stopped = []float64{90, 99}

func main() {
	log.SetFlags(0)
	flag.Parse()
	harness.Main(func() {
		fmt.Println(harness.Machine())
		files, err := filepath.Glob(filepath.Join(*traces, "*"+*only+"*.tsv.gz"))
		harness.Check(err)
		if len(files) == 0 {
			harness.Check(fmt.Errorf("no traces in %s", *traces))
		}
		dir, remove := harness.TempDir()
		defer remove()
		if *nginx {
			compare(files, dir)
			return
		}
		for _, file := range files {
			measure(file, dir)
		}
	})
}

func measure(file, dir string) {
	fmt.Printf("\n%s:\n\n| attack's networks shared |", strings.TrimSuffix(filepath.Base(file), ".tsv.gz"))
	for _, percent := range stopped {
		for _, m := range methods {
			fmt.Printf(" %.0f%% stopped, %s |", percent, m.name)
		}
	}
	fmt.Printf("\n|---%s|\n", strings.Repeat("|--:", len(stopped)*len(methods)))
	from := busiest(file)
	for _, share := range shares {
		attacked := overlay(file, dir, from, share)
		peaceful := withoutAttack(attacked)
		cells := make([]string, len(stopped)*len(methods))
		for j, m := range methods {
			for _, threshold := range thresholds {
				of := replay(dir, attacked, m.rules(threshold))
				for i, percent := range stopped {
					if at := &cells[i*len(methods)+j]; *at == "" && of.Truth.Attack.Percent >= percent {
						*at = fmt.Sprintf("%d (%+d; %d/h)", of.Truth.Legitimate.Refused, of.Truth.Legitimate.Refused-replay(dir, peaceful, m.rules(threshold)).Refused, threshold)
					}
				}
				if cells[(len(stopped)-1)*len(methods)+j] != "" {
					break
				}
			}
		}
		fmt.Printf("| %.0f%% |", 100*share)
		for _, cell := range cells {
			fmt.Printf(" %s |", cmp.Or(cell, "never"))
		}
		fmt.Println()
	}
}

// overlay overlays the attack on a trace, and returns the log.
func overlay(file, dir string, from int, share float64) (attacked string) {
	mix, attacked := filepath.Join(dir, "mix.yaml"), filepath.Join(dir, "attacked.log")
	harness.Check(os.WriteFile(mix, fmt.Appendf(nil, attack, from+lasts, from, share), 0o600))
	out, err := os.Create(attacked)
	harness.Check(err)
	generate := exec.Command(*edge, "replay", "generate", mix, "--over", file)
	generate.Stdout, generate.Stderr = out, os.Stderr
	harness.Check(generate.Run())
	harness.Check(out.Close())
	return attacked
}

// A side has the refusals of the attack, or of the rest.
type side struct {
	Refused int
	Percent float64 `json:"refused_pct"`
}

// A report is the part of a replay's JSON that is needed here.
type report struct {
	Refused int
	Truth   struct{ Attack, Legitimate side }
}

// replay replays a log with rules.
func replay(dir, file, rules string) (r report) {
	path := filepath.Join(dir, "rules.yaml")
	harness.Check(os.WriteFile(path, []byte(rules), 0o600))
	harness.Check(json.Unmarshal([]byte(harness.Output(*edge, "replay", "rules", path, "--json", file)), &r))
	return r
}

// withoutAttack writes a log without its attack.
func withoutAttack(file string) (peaceful string) {
	text, err := os.ReadFile(file)
	harness.Check(err)
	var rest []byte
	for line := range bytes.Lines(text) {
		if !bytes.Contains(line, []byte(`"attack":true`)) {
			rest = append(rest, line...)
		}
	}
	harness.Check(os.WriteFile(file+".peaceful", rest, 0o600))
	return file + ".peaceful"
}

// busiest returns the start of the busiest hour of a trace's first year, in seconds since its first request.
func busiest(file string) (from int) {
	f, err := os.Open(file)
	harness.Check(err)
	defer f.Close()
	text, err := gzip.NewReader(f)
	harness.Check(err)
	hours := map[int]int{}
	first := -1
	for lines := bufio.NewReader(text); ; {
		var at, client int
		if _, err := fmt.Fscan(lines, &at, &client); err == io.EOF {
			break
		} else {
			harness.Check(err)
		}
		if first < 0 {
			first = at
		}
		hour := (at - first) / 3600
		if hour >= 365*24 {
			break
		}
		if hours[hour]++; hours[hour] > hours[from] || hours[hour] == hours[from] && hour < from {
			from = hour
		}
	}
	return from * 3600
}
