package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/edgelimit/edge/bench/harness"
)

// A pop is a group of nodes that count in the same shards, and their origin.
type pop struct {
	*harness.Origin
	binary  string
	nodes   []string // addresses
	running []*node
	end     func()
}

// secretText is the secret of a PoP.
const secretText = "a secret of the benchmark"

// A setup is how a PoP is started.
type setup struct {
	binary, cores, rule string
	nodes               int
	delay               time.Duration               // of the answers of its memcached
	shards              []string                    // used instead of its memcached
	embedded            bool                        // each node has a shard, instead of its memcached
	log                 func(node int, line []byte) // gets each line of the nodes' logs, unless it is nil
}

// A node is one process of a PoP.
type node struct {
	*harness.Process
	listen, metrics, admin string
	start                  func() *harness.Process
}

// restart stops the node, calls stopped, and returns once the node is ready again.
func (n *node) restart(stopped func()) {
	n.Signal(syscall.SIGTERM)
	stopped()
	n.Wait()
	n.Process = n.start()
	harness.WaitForReady(n.metrics)
}

// start starts a PoP on some cores, with a rule. Answers of its memcached are delayed. It waits until at least lasts is
// left of the current window of a minute, unless lasts is 0.
func start(binary, cores, rule string, nodes int, delay, lasts time.Duration) pop {
	return setup{binary: binary, cores: cores, rule: rule, nodes: nodes, delay: delay}.start(lasts)
}

func (s setup) start(lasts time.Duration) (p pop) {
	dir, remove := harness.TempDir()
	ctx, cancel := context.WithCancel(context.Background())
	var behind []*harness.Process
	addrs := harness.FreeAddrs(5 * s.nodes)
	p.binary, p.nodes = s.binary, addrs[:s.nodes]
	p.end = func() {
		cancel()
		for _, n := range p.running {
			n.End()
		}
		for _, b := range behind {
			b.End()
		}
		remove()
	}
	file := func(name, text string) string {
		path := filepath.Join(dir, name)
		harness.Check(os.WriteFile(path, []byte(text), 0o600))
		return path
	}
	p.Origin = harness.StartOrigin(s.cores, dir)
	behind = append(behind, p.Process)
	if s.shards == nil && !s.embedded {
		shard := harness.FreeAddr()
		if *redis {
			behind = append(behind, harness.RedisAt(s.cores, shard))
		} else {
			behind = append(behind, harness.MemcachedAt(s.cores, shard, "-m", "2048", "-o", "hashpower=22"))
		}
		if s.delay > 0 {
			shard = relay(ctx, shard, s.delay)
		}
		s.shards = []string{nameOf(shard)}
	}
	of := func(kind int) []string { return addrs[kind*s.nodes : (kind+1)*s.nodes] }
	rules, secret, gossip := file("rules.yaml", "rules: ["+s.rule+"]\n"), file("secret", secretText), of(1)
	for i := range s.nodes {
		n := &node{listen: p.nodes[i], metrics: of(2)[i], admin: of(3)[i]}
		args := []string{"node", "--name", fmt.Sprint("n", i+1), "--rules", rules, "--origin", "http://" + p.Addr, "--listen", n.listen,
			"--metrics-listen", n.metrics, "--admin-listen", n.admin, "--secret-file", secret, "--trusted-proxy", "127.0.0.0/8"}
		if s.embedded {
			args = append(args, "--shard-listen", of(4)[i])
		} else {
			args = append(args, "--shard", strings.Join(s.shards, ","))
		}
		if s.nodes > 1 {
			args = append(args, "--gossip-listen", gossip[i], "--join", strings.Join(gossip, ","))
		}
		n.start = func() *harness.Process {
			if s.log != nil {
				return harness.StartLogging(func(line []byte) { s.log(i, line) }, s.cores, s.binary, append(args, "--log-level", "debug", "--log-format", "json")...)
			}
			return harness.Start(s.cores, s.binary, append(args, "--log-level", "error")...)
		}
		n.Process = n.start()
		p.running = append(p.running, n)
	}
	for _, n := range p.running {
		harness.WaitForReady(n.metrics)
	}
	time.Sleep(500 * time.Millisecond) // the nodes discover each other
	const window = time.Minute
	begun := time.Duration(time.Now().UnixNano()) % window
	if left := window - begun; left < lasts+2*time.Second && lasts > 0 {
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
