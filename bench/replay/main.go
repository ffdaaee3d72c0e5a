// Command replay measures how fast logs are read and analyzed, compared with wc, gzip, mawk,
// goaccess, and a minimal parser, in alternating runs:
//
//	go build -o /tmp/edge ./cmd/edge && cd bench && go run ./replay -edge /tmp/edge
//
// Tools that are not installed are skipped. The log, a bundled mix in the combined format, is
// written to a temporary directory, plain and compressed with gzip.
package main

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/edgelimit/edge/bench/harness"
)

const threeRules = `rules:
  - {id: minute, characteristics: [ip], limits: [{threshold: 50, period: 1m}]}
  - {id: burst, characteristics: [ip], limits: [{threshold: 20, period: 10s}, {threshold: 500, period: 1h}]}
  - {id: path, characteristics: [ip, path], limits: [{threshold: 30, period: 1m}]}
`

func main() {
	edge := flag.String("edge", "edge", "the binary")
	lines := flag.Int("lines", 5_000_000, "lines of the log")
	runs := flag.Int("runs", 5, "runs of each program, alternating; the report has medians")
	bare := flag.String("bare", "", "only run the minimal parser on this `file`")
	flag.Parse()
	if *bare != "" {
		parse(*bare)
		return
	}
	dir, err := os.MkdirTemp("", "edge-replay-")
	harness.Check(err)
	defer os.RemoveAll(dir)
	log := filepath.Join(dir, "access.log")
	write(log, *edge, *lines)
	harness.Check(exec.Command("gzip", "-k", "-1", log).Run())
	rules := filepath.Join(dir, "three.yaml")
	harness.Check(os.WriteFile(rules, []byte(threeRules), 0o600))
	info, err := os.Stat(log)
	harness.Check(err)
	fmt.Printf("%d lines, %d bytes each, medians of %d alternating runs\n\n", *lines, info.Size()/int64(*lines), *runs)

	itself, err := os.Executable()
	harness.Check(err)
	accuracy := []string{*edge, "replay", "accuracy", "--limit", "50/1m", "--estimators", "weighted,fixed,exact", "--phases", "1"}
	programs := []*program{
		{name: "wc -l", args: []string{"wc", "-l", log}},
		{name: "a bare parse with a map of clients, one goroutine", args: []string{itself, "-bare", log}},
		{name: "mawk '{print $1}'", args: []string{"mawk", "{print $1}", log}},
		{name: "mawk, requests of each client", args: []string{"mawk", "{n[$1]++} END {print length(n)}", log}},
		{name: "goaccess", args: []string{"goaccess", log, "--log-format=COMBINED", "--no-progress", "-o", filepath.Join(dir, "report.json")}},
		{name: "edge, weighted, fixed and exact", args: append(slices.Clone(accuracy), log)},
		{name: "edge, every estimator, 4 phases", args: []string{*edge, "replay", "accuracy", log}},
		{name: "edge, three rules", args: []string{*edge, "replay", "rules", rules, log}},
		{name: "edge, three rules, three nodes", args: []string{*edge, "replay", "rules", rules, "--nodes", "3", "--lag", "20ms", log}},
		{name: "edge, sweep", args: []string{*edge, "replay", "sweep", log}},
		{name: "gzip -dc", args: []string{"gzip", "-dc", log + ".gz"}},
		{name: "edge, from gzip", args: append(slices.Clone(accuracy), log+".gz")},
	}
	programs = slices.DeleteFunc(programs, func(p *program) bool {
		_, err := exec.LookPath(p.args[0])
		return err != nil
	})
	for range *runs {
		for _, p := range programs {
			p.run()
		}
	}
	fmt.Printf("%-52s %8s %10s %14s %10s\n", "", "seconds", "CPU s", "lines/s", "MiB")
	for _, p := range programs {
		wall, cpu := median(p.wall), median(p.cpu)
		fmt.Printf("%-52s %8.2f %10.2f %14.0f %10d\n", p.name, wall.Seconds(), cpu.Seconds(), float64(*lines)/wall.Seconds(), p.memory>>10)
	}
}

// write writes the log of a bundled mix.
func write(log, edge string, lines int) {
	file, err := os.Create(log)
	harness.Check(err)
	defer file.Close()
	cmd := exec.Command(edge, "replay", "generate", "cloudflare", "--output-format", "combined", "--requests", fmt.Sprint(lines))
	cmd.Stdout, cmd.Stderr = file, os.Stderr
	harness.Check(cmd.Run())
}

// A program is a command to measure.
type program struct {
	name      string
	args      []string
	wall, cpu []time.Duration
	memory    int64 // KiB at the peak
}

func (p *program) run() {
	cmd := exec.Command(p.args[0], p.args[1:]...)
	null, err := os.OpenFile(os.DevNull, os.O_WRONLY, 0)
	harness.Check(err)
	defer null.Close()
	cmd.Stdout = null
	var problem bytes.Buffer
	cmd.Stderr = &problem
	began := time.Now()
	if err := cmd.Run(); err != nil {
		harness.Check(fmt.Errorf("%s: %w: %s", strings.Join(p.args, " "), err, &problem))
	}
	p.wall = append(p.wall, time.Since(began))
	p.cpu = append(p.cpu, cmd.ProcessState.UserTime()+cmd.ProcessState.SystemTime())
	if usage, ok := cmd.ProcessState.SysUsage().(*syscall.Rusage); ok {
		p.memory = max(p.memory, usage.Maxrss)
	}
}

func median(all []time.Duration) time.Duration {
	slices.Sort(all)
	return all[len(all)/2]
}

// parse is a minimal parser of a combined log: it finds each line, its client and its time of day,
// and counts the requests of each client.
func parse(name string) {
	text, err := os.ReadFile(name)
	harness.Check(err)
	clients := map[string]int{}
	seconds := 0
	for len(text) > 0 {
		end := bytes.IndexByte(text, '\n')
		if end < 0 {
			end = len(text) - 1
		}
		line := text[:end]
		text = text[end+1:]
		client := line[:max(bytes.IndexByte(line, ' '), 0)]
		clients[string(client)]++
		if t := bytes.IndexByte(line, '['); t >= 0 && t+21 < len(line) {
			digit := func(i int) int { return int(line[t+i] - '0') }
			seconds += (digit(13)*10+digit(14))*3600 + (digit(16)*10+digit(17))*60 + digit(19)*10 + digit(20)
		}
	}
	fmt.Println(len(clients), seconds)
}
