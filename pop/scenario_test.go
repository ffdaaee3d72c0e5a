package pop_test

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/datadriven"

	"github.com/edgelimit/edge/counter/shard"
	"github.com/edgelimit/edge/counter/wire"
	"github.com/edgelimit/edge/internal/bubble"
	"github.com/edgelimit/edge/internal/harness"
	"github.com/edgelimit/edge/pop"
	"github.com/edgelimit/edge/proxy"
	"github.com/edgelimit/edge/proxy/http1"
)

// TestScenarios runs the files of testdata/scenarios: a whole PoP in fake time, without sockets. Each begins
// with the command pop; the other commands are the methods of scenario. -rewrite writes the transcripts: read
// the diff before you commit it.
func TestScenarios(t *testing.T) {
	files, err := filepath.Glob("testdata/scenarios/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("no scenarios: %v", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			bubble.Test(t, func(t *testing.T) {
				s := &scenario{t: t, shards: map[string]*fakeShard{}, fronts: map[*pop.Node]*shard.Pipe{}, network: newNetwork(t)}
				defer s.stop()
				datadriven.RunTest(t, file, func(t *testing.T, d *datadriven.TestData) string {
					return s.run(d)
				})
			})
		})
	}
}

const scenarioSecret = "a secret of the scenarios"

// A scenario is a PoP and its environment.
type scenario struct {
	t       *testing.T
	start   time.Time
	nodes   []*pop.Node
	options []pop.Options // of the nodes
	shards  map[string]*fakeShard
	origin  fakeOrigin
	log     eventLog
	turn    int // of the node that gets the next request

	network *network
	end     context.CancelFunc // stops its statuses; nil if there are none

	mu     sync.Mutex // guards the fields below
	fronts map[*pop.Node]*shard.Pipe
	last   string // answer
}

func (s *scenario) run(d *datadriven.TestData) string {
	commands := map[string]func(*datadriven.TestData) (string, error){
		"pop": s.pop, "request": s.request, "advance": s.advance, "rules": s.rules, "headers": s.headers,
		"kill": s.kill, "restart": s.restart, "stall": s.stall, "resume": s.resume, "commands": s.commands, "metric": s.metric,
		"at": s.at, "lift": s.lift, "refuse": s.refuse, "partition": s.partition, "heal": s.heal, "messages": s.messages,
		"out": s.takeOut, "in": s.takeIn, "reboot": s.reboot, "strangers": s.strangers, "mitigations": s.mitigations, "explain": s.explain,
	}
	command, ok := commands[d.Cmd]
	if !ok {
		return fmt.Sprintf("unknown command %q", d.Cmd)
	}
	out, err := command(d)
	if err != nil {
		return "error: " + err.Error()
	}
	synctest.Wait()
	if out += s.log.take(); out == "" {
		return "ok\n"
	}
	return strings.TrimRight(out, "\n") + "\n"
}

// arg returns an argument of a command, or a default.
func arg(d *datadriven.TestData, name, otherwise string) string {
	for _, a := range d.CmdArgs {
		if a.Key == name {
			if len(a.Vals) == 0 {
				return "true"
			}
			return strings.Join(a.Vals, ",")
		}
	}
	return otherwise
}

func number(d *datadriven.TestData, name string, otherwise int) int {
	n, err := strconv.Atoi(arg(d, name, strconv.Itoa(otherwise)))
	if err != nil {
		d.Fatalf(nil, "%s: %v", name, err)
	}
	return n
}

func duration(d *datadriven.TestData, name, otherwise string) time.Duration {
	v, err := time.ParseDuration(arg(d, name, otherwise))
	if err != nil {
		panic(err)
	}
	return v
}

// pop starts a PoP: pop nodes=3 shards=3, with the rules below. Nodes tell each other about mitigations, unless
// peers=no: then they learn of them from the shards. With statuses=yes they catch up on what they have missed.
// clocks=(0s,200ms) sets how far their clocks are ahead, max-nodes=20 the maximum number of nodes.
func (s *scenario) pop(d *datadriven.TestData) (string, error) {
	rules := parse(s.t, d.Input)
	var addrs []string
	for i := range number(d, "shards", 3) {
		addr := fmt.Sprintf("s%d:11211", i+1)
		addrs = append(addrs, addr)
		s.shards[addr] = newFakeShard()
		s.shards[addr].restart()
	}
	s.start = time.Now()
	clocks := strings.Split(arg(d, "clocks", "0s"), ",")
	for i := range number(d, "nodes", 3) {
		ahead, err := time.ParseDuration(clocks[i%len(clocks)])
		if err != nil {
			return "", err
		}
		s.network.ahead[fmt.Sprintf("n%d", i+1)] = ahead
		o := pop.Options{
			Name:          fmt.Sprintf("n%d", i+1),
			Secret:        scenarioSecret,
			Rules:         rules,
			Origin:        "http://origin",
			OriginOptions: proxy.OriginOptions{Dial: harness.Origin(&s.origin)},
			Shards:        addrs,
			ShardOptions:  wire.Options{Dial: s.dial},
			Limits:        http1.Limits{BodyTimeout: -1},
			QueueSize:     1024,
			MaxNodes:      number(d, "max-nodes", 0),
			LogClients:    arg(d, "log-clients", "no") == "yes",
			Now:           func() time.Time { return time.Now().Add(ahead) },
			Logger:        slog.New(&eventHandler{log: &s.log, start: s.start, node: fmt.Sprintf("n%d", i+1)}),
		}
		if arg(d, "peers", "yes") == "yes" {
			o.Peers = way{s.network, o.Name}
		}
		n, err := pop.New(o)
		if err != nil {
			return "", err
		}
		s.nodes, s.options = append(s.nodes, n), append(s.options, o)
	}
	s.network.nodes = s.nodes
	for _, n := range s.nodes {
		if err := n.Start(); err != nil {
			return "", err
		}
	}
	if arg(d, "statuses", "no") == "yes" {
		ctx, cancel := context.WithCancel(context.Background())
		s.end = cancel
		go s.network.tell(ctx)
	}
	return "", nil
}

func (s *scenario) stop() {
	if s.end != nil {
		s.end()
	}
	for _, n := range s.nodes {
		if err := n.Stop(context.Background()); err != nil {
			s.t.Error(err)
		}
	}
	for _, each := range s.shards {
		each.kill()
	}
}

func (s *scenario) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	return s.shards[addr].dial(ctx, network, addr)
}
