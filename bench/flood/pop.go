package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/edgelimit/edge/bench/harness"
)

// A pop is a group of nodes that count in the same memcached, and their origin.
type pop struct {
	*harness.Origin
	nodes []string // addresses
	end   func()
}

// secretText is the secret of a PoP.
const secretText = "a secret of the benchmark"

// start starts a PoP on some cores, with a rule. Answers of its memcached are delayed. It returns
// once at least lasts is left of the current window of a minute.
func start(binary, cores, rule string, nodes int, delay, lasts time.Duration) pop {
	return startLogging(nil, binary, cores, rule, nodes, delay, lasts)
}

// startLogging is like start, but passes each line of the nodes' logs to log, unless that is nil.
func startLogging(log func(node int, line []byte), binary, cores, rule string, nodes int, delay, lasts time.Duration) pop {
	dir, remove := harness.TempDir()
	ctx, cancel := context.WithCancel(context.Background())
	var running []*harness.Process
	addrs := harness.FreeAddrs(2 * nodes)
	p := pop{nodes: addrs[:nodes], end: func() {
		cancel()
		for i := range running {
			running[len(running)-1-i].End() // nodes first
		}
		remove()
	}}
	file := func(name, text string) string {
		path := filepath.Join(dir, name)
		harness.Check(os.WriteFile(path, []byte(text), 0o600))
		return path
	}
	memcached, shard := harness.Memcached(cores)
	p.Origin = harness.StartOrigin(cores, dir)
	running = append(running, memcached, p.Process)
	if delay > 0 {
		shard = relay(ctx, shard, delay)
	}
	rules, secret, gossip := file("rules.yaml", "rules: ["+rule+"]\n"), file("secret", secretText), addrs[nodes:]
	for i, addr := range p.nodes {
		args := []string{"node", "--name", fmt.Sprint("n", i+1), "--rules", rules, "--origin", "http://" + p.Addr, "--listen", addr, "--metrics-listen", "", "--admin-listen", "",
			"--secret-file", secret, "--shard", shard, "--trusted-proxy", "127.0.0.0/8"}
		if nodes > 1 {
			args = append(args, "--gossip-listen", gossip[i], "--join", strings.Join(gossip, ","))
		}
		if log != nil {
			running = append(running, harness.StartLogging(func(line []byte) { log(i, line) }, cores, binary, append(args, "--log-level", "debug", "--log-format", "json")...))
		} else {
			running = append(running, harness.Start(cores, binary, append(args, "--log-level", "error")...))
		}
		harness.WaitFor(addr)
	}
	time.Sleep(500 * time.Millisecond) // the nodes discover each other
	const window = time.Minute
	begun := time.Duration(time.Now().UnixNano()) % window
	if left := window - begun; left < lasts+2*time.Second {
		time.Sleep(left + 100*time.Millisecond)
	}
	return p
}

// relay starts a relay in front of the address to that delays replies by delay, and returns its address.
func relay(ctx context.Context, to string, delay time.Duration) string {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	harness.Check(err)
	context.AfterFunc(ctx, func() { ln.Close() })
	go func() {
		for {
			near, err := ln.Accept()
			if err != nil {
				return
			}
			far, err := net.Dial("tcp", to)
			if err != nil {
				near.Close()
				continue
			}
			go func() { _, _ = io.Copy(far, near); far.Close() }()
			go answerLate(near, far, delay)
		}
	}()
	return ln.Addr().String()
}

// answerLate copies data from far to near after delay.
func answerLate(near, far net.Conn, delay time.Duration) {
	type piece struct {
		at   time.Time
		data []byte
	}
	answers := make(chan piece, 1<<12)
	go func() {
		defer close(answers)
		for {
			b := make([]byte, 1<<15)
			n, err := far.Read(b)
			if err != nil {
				return
			}
			answers <- piece{time.Now().Add(delay), b[:n]}
		}
	}()
	defer near.Close()
	for p := range answers {
		time.Sleep(time.Until(p.at))
		if _, err := near.Write(p.data); err != nil {
			far.Close()
			for range answers { // until the reader has ended
			}
		}
	}
}

// coresOf returns the cores of a list in taskset's format.
func coresOf(list string) []string { return strings.Split(list, ",") }

// busyTime returns how long the listed cores were busy since the machine started.
func busyTime(list string) (busy time.Duration) {
	text, err := os.ReadFile("/proc/stat")
	harness.Check(err)
	for _, core := range coresOf(list) {
		for line := range strings.Lines(string(text)) {
			var user, nice, system, idle, wait, irq, softirq, steal int
			if n, _ := fmt.Sscanf(line, "cpu"+core+" %d %d %d %d %d %d %d %d", &user, &nice, &system, &idle, &wait, &irq, &softirq, &steal); n == 8 {
				busy += time.Duration(user+nice+system+irq+softirq+steal) * time.Second / 100
			}
		}
	}
	return busy
}
