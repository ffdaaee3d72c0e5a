// Command load compares load generators: how many requests per second each sends to nginx, over the
// same number of keep-alive connections, and its CPU time per request. They alternate, so that
// drift of the machine cancels out. edge load runs without rules and with rules; with rules, it keeps
// an exact log of 10,000 clients and checks each response, which counts toward its CPU time.
//
//	go build -o /tmp/edge ./cmd/edge && cd bench && go run ./load -edge /tmp/edge
//
// It needs nginx and wrk; hey and vegeta are built in the versions named below.
package main

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"log"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"time"

	"github.com/edgelimit/edge/bench/harness"
)

var (
	edge   = flag.String("edge", "edge", "the `binary`")
	rounds = flag.Int("rounds", 3, "rounds, in which each tool runs once")
	length = flag.Duration("length", 5*time.Second, "length of a round, whole seconds")
	conns  = flag.Int("conns", 64, "connections")
)

// modules are the modules of the other tools.
var modules = map[string]string{"hey": "github.com/rakyll/hey@v0.1.4", "vegeta": "github.com/tsenart/vegeta/v12@v12.12.0"}

// A tool is a load generator.
type tool struct {
	name      string
	command   func(url string) *exec.Cmd
	rate      func(out []byte) (perSecond float64)
	rates     []float64
	cpu       []float64 // µs per request
	wholeTime []float64 // seconds until it ended
}

func main() {
	log.SetFlags(0)
	flag.Parse()
	harness.Main(compare)
}

func compare() {
	dir, remove := harness.TempDir()
	defer remove()
	origin := harness.StartOrigin("", dir)
	defer origin.End()
	url := "http://" + origin.Addr + "/"

	rules := filepath.Join(dir, "rules.yaml")
	harness.Check(os.WriteFile(rules, []byte("rules: [{id: all, characteristics: [ip], limits: [{threshold: 1000000, period: 1m}]}]\n"), 0o600))
	seconds, connections := fmt.Sprintf("%.0fs", length.Seconds()), strconv.Itoa(*conns)
	hey, vegeta := build(dir, "hey"), build(dir, "vegeta")
	load := []string{"load", "--rate", "max", "--connections", connections, "--duration", seconds, "--requests", "100000000", "--clients", "10000", "--json"}
	rated := func(out []byte) float64 {
		var r struct {
			Sending struct {
				Rate float64 `json:"rate_per_s"`
			} `json:"sending"`
			Failures map[string]int `json:"failures"`
		}
		harness.Check(json.Unmarshal(out, &r))
		if len(r.Failures) > 0 {
			log.Fatalf("edge load: %v", r.Failures)
		}
		return r.Sending.Rate
	}
	tools := []*tool{
		{name: "wrk", rate: found(`Requests/sec:\s+([0-9.]+)`), command: func(url string) *exec.Cmd {
			return exec.Command("wrk", "-t1", "-c"+connections, "-d"+seconds, url)
		}},
		{name: "edge load", rate: rated, command: func(url string) *exec.Cmd { return exec.Command(*edge, append(load, url)...) }},
		{name: "edge load --rules", rate: rated, command: func(url string) *exec.Cmd {
			return exec.Command(*edge, append(load, "--rules", rules, url)...)
		}},
		{name: "hey", rate: found(`Requests/sec:\s+([0-9.]+)`), command: func(url string) *exec.Cmd {
			return exec.Command(hey, "-z", seconds, "-c", connections, url)
		}},
		{name: "vegeta", rate: found(`"rate":([0-9.]+)`), command: func(url string) *exec.Cmd {
			return exec.Command("sh", "-c", fmt.Sprintf("echo GET %s | %s attack -rate 0 -workers %s -max-workers %s -connections %s -duration %s | %s report -type json",
				url, vegeta, connections, connections, connections, seconds, vegeta))
		}},
	}
	for range *rounds {
		for _, t := range tools {
			t.round(url)
		}
	}
	fmt.Printf("%-18s %12s %12s %16s %12s   (medians of %d rounds of %v, %d connections)\n", "", "requests/s", "of wrk", "CPU µs/request", "ends after", *rounds, *length, *conns)
	wrk := harness.Median(tools[0].rates)
	for _, t := range tools {
		fmt.Printf("%-18s %12.0f %12.2f %16.1f %10.1f s\n", t.name, harness.Median(t.rates), harness.Median(t.rates)/wrk, harness.Median(t.cpu), harness.Median(t.wholeTime))
	}
	ours := harness.Median(tools[2].rates)
	fmt.Printf("edge load --rules: %.2f × wrk, %.2f × hey, %.2f × vegeta\n", ours/wrk, ours/harness.Median(tools[3].rates), ours/harness.Median(tools[4].rates))
}

// round runs the tool once.
func (t *tool) round(url string) {
	cmd := t.command(url)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, os.Stderr
	begun := time.Now()
	if err := cmd.Run(); err != nil {
		log.Fatalf("%s: %v\n%s", t.name, err, out.Bytes())
	}
	rate := t.rate(out.Bytes())
	used := cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()
	t.rates = append(t.rates, rate)
	t.cpu = append(t.cpu, float64(used.Microseconds())/(rate*length.Seconds()))
	t.wholeTime = append(t.wholeTime, time.Since(begun).Seconds())
}

// found returns a function that finds a number in a tool's output.
func found(pattern string) func([]byte) float64 {
	expr := regexp.MustCompile(pattern)
	return func(out []byte) float64 {
		m := expr.FindSubmatch(out)
		if m == nil {
			log.Fatalf("no match for %s in\n%s", pattern, out)
		}
		n, err := strconv.ParseFloat(string(m[1]), 64)
		harness.Check(err)
		return n
	}
}

// build builds a tool and returns its binary. go install asks the module proxy for a list of versions, which not every
// module proxy has.
func build(dir, name string) string {
	module := filepath.Join(dir, name+".mod")
	harness.Check(os.Mkdir(module, 0o700))
	binary := filepath.Join(dir, name)
	path, _, _ := bytes.Cut([]byte(modules[name]), []byte("@"))
	for _, args := range [][]string{
		{"mod", "init", "tool"}, {"mod", "edit", "-require", modules[name]}, {"build", "-mod=mod", "-o", binary, string(path)},
	} {
		cmd := exec.Command("go", args...)
		cmd.Dir = module
		if out, err := cmd.CombinedOutput(); err != nil {
			log.Fatalf("building %s: %v\n%s", name, err, out)
		}
	}
	return binary
}
