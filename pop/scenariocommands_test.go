package pop_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/datadriven"
	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"github.com/edgelimit/edge/counter/shard"
	"github.com/edgelimit/edge/internal/harness"
	"github.com/edgelimit/edge/operate"
	"github.com/edgelimit/edge/pop"
	rulefile "github.com/edgelimit/edge/rule/file"
)

// request sends requests: request ip=192.0.2.1 x=60 every=2ms node=1 method=POST host=… path=…
// header=(name:value) answer=401 takes=1s. It sends each after the given time: if two nodes counted at the same
// moment, the transcript would depend on chance. Without node, nodes take turns. It prints the statuses in
// order. With stop=yes, the client waits for each answer, and stops when RateLimit says that nothing remains. With
// least=45, that number of answers or a few more, all with the same status, are printed alike, since chance decides.
func (s *scenario) request(d *datadriven.TestData) (string, error) {
	var statuses []string
	s.origin.set(number(d, "answer", 200), duration(d, "takes", "0s"))
	every := duration(d, "every", "1ms")
	var wg sync.WaitGroup
	results := make([]string, number(d, "x", 1))
	for i := range results {
		time.Sleep(every)
		n := number(d, "node", 0)
		if n == 0 {
			n = s.turn%len(s.nodes) + 1
			s.turn++
		}
		r := httptest.NewRequest(arg(d, "method", "GET"), "http://"+arg(d, "host", "example.com")+arg(d, "path", "/"), nil)
		r.RemoteAddr = arg(d, "ip", "192.0.2.1") + ":1234"
		if ip := arg(d, "ip", ""); strings.Contains(ip, ":") {
			r.RemoteAddr = "[" + ip + "]:1234"
		}
		if name, value, ok := strings.Cut(arg(d, "header", ""), ":"); ok {
			r.Header.Set(name, value)
		}
		wg.Go(func() { results[i] = s.serve(s.nodes[n-1], r) })
		if synctest.Wait(); arg(d, "stop", "no") == "yes" {
			wg.Wait()
			if strings.Contains(s.last, ";r=0;") {
				results = results[:i+1]
				break
			}
		}
	}
	wg.Wait()
	statuses = results
	if least := number(d, "least", 0); least > 0 && len(statuses) >= least && len(statuses) <= least+6 && len(slices.Compact(slices.Clone(statuses))) == 1 {
		return fmt.Sprintf("at least %d×%s\n", least, statuses[0]), nil
	}
	var out []string
	for len(statuses) > 0 {
		n := slices.IndexFunc(statuses, func(status string) bool { return status != statuses[0] })
		if n < 0 {
			n = len(statuses)
		}
		out = append(out, fmt.Sprintf("%d×%s", n, statuses[0]))
		statuses = statuses[n:]
	}
	return strings.Join(out, ", ") + "\n", nil
}

// serve sends r to n and returns the status, or "closed".
func (s *scenario) serve(n *pop.Node, r *http.Request) (status string) {
	s.mu.Lock()
	front := s.fronts[n]
	if front == nil {
		front = shard.NewPipe()
		s.fronts[n] = front
		if err := n.Serve(front); err != nil {
			s.t.Error(err)
		}
	}
	s.mu.Unlock()
	answer := harness.Ask(s.t, front, r)
	if answer == "" {
		return "closed"
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.last = answer
	return strings.Fields(answer)[1]
}

// headers prints the headers, except Date, and the body of the last answer.
func (s *scenario) headers(*datadriven.TestData) (string, error) {
	head, body, _ := strings.Cut(strings.ReplaceAll(s.last, "\r", ""), "\n\n")
	lines := strings.Split(head, "\n")[1:]
	lines = slices.DeleteFunc(lines, func(line string) bool { return strings.HasPrefix(line, "Date: ") })
	slices.SortFunc(lines, func(a, b string) int {
		return strings.Compare(strings.ReplaceAll(a, ":", ""), strings.ReplaceAll(b, ":", ""))
	})
	return strings.Join(lines, "\n") + "\n| " + body, nil
}

// advance advances the time: advance 15s. Mitigations that end by then are logged.
func (s *scenario) advance(d *datadriven.TestData) (string, error) {
	v, err := time.ParseDuration(d.CmdArgs[0].Key)
	if err != nil {
		return "", err
	}
	time.Sleep(v)
	return "", nil
}

// at advances the time to this long after the start: at 59.9s.
func (s *scenario) at(d *datadriven.TestData) (string, error) {
	v, err := time.ParseDuration(d.CmdArgs[0].Key)
	if err != nil {
		return "", err
	}
	if left := v - time.Since(s.start); left < 0 {
		return "", fmt.Errorf("it is already %v", time.Since(s.start))
	} else {
		time.Sleep(left)
	}
	return "", nil
}

// rules replaces the rules of all nodes, or of one, node=2, with those below.
func (s *scenario) rules(d *datadriven.TestData) (string, error) {
	rules, err := rulefile.Parse("rules.yaml", []byte(d.Input))
	if err != nil {
		return "", err
	}
	for i, n := range s.nodes {
		if only := number(d, "node", 0); only == 0 || only == i+1 {
			if err := n.SetRules(rules); err != nil {
				return "", err
			}
		}
	}
	return "", nil
}

// strangers makes the nodes learn of this many other nodes: strangers x=20.
func (s *scenario) strangers(d *datadriven.TestData) (string, error) {
	for _, n := range s.nodes {
		for i := range number(d, "x", 1) {
			n.ReceiveStatus(fmt.Sprintf("stranger-%d", i+1), n.Status(), false)
		}
	}
	return "", nil
}

// lift lifts a mitigation on a node: lift node=1 rule=all ip=192.0.2.1 host=….
func (s *scenario) lift(d *datadriven.TestData) (string, error) {
	values := map[string]string{"rule": "all", "ip": "192.0.2.1"}
	for _, a := range d.CmdArgs {
		values[a.Key] = strings.Join(a.Vals, ",")
	}
	delete(values, "node")
	_, err := s.nodes[number(d, "node", 1)-1].Operator().Lift(operate.LiftOne{Values: values})
	return "", err
}

// refuse refuses a client on a node for an hour, regardless of rules: refuse node=1 ip=192.0.2.1.
func (s *scenario) refuse(d *datadriven.TestData) (string, error) {
	values := map[string]string{"ip": "192.0.2.1"}
	_, err := s.nodes[number(d, "node", 1)-1].Operator().Add(operate.Order{Values: values, Duration: time.Hour})
	return "", err
}

// each applies f to the shards that the command names: kill s1 s2.
func (s *scenario) each(d *datadriven.TestData, f func(*fakeShard)) (string, error) {
	for _, a := range d.CmdArgs {
		sh, ok := s.shards[a.Key+":11211"]
		if !ok {
			return "", fmt.Errorf("no shard %s", a.Key)
		}
		f(sh)
	}
	return "", nil
}

func (s *scenario) kill(d *datadriven.TestData) (string, error) { return s.each(d, (*fakeShard).kill) }
func (s *scenario) restart(d *datadriven.TestData) (string, error) {
	return s.each(d, (*fakeShard).restart)
}
func (s *scenario) stall(d *datadriven.TestData) (string, error) {
	return s.each(d, (*fakeShard).stall)
}
func (s *scenario) resume(d *datadriven.TestData) (string, error) {
	return s.each(d, (*fakeShard).resume)
}

// takeOut drains shards on all nodes, or on one: out s2 node=1.
func (s *scenario) takeOut(d *datadriven.TestData) (string, error) { return s.drain(d, true) }

// takeIn returns shards to the ring: in s2.
func (s *scenario) takeIn(d *datadriven.TestData) (string, error) { return s.drain(d, false) }

func (s *scenario) drain(d *datadriven.TestData, on bool) (string, error) {
	for i, n := range s.nodes {
		if only := number(d, "node", 0); only != 0 && only != i+1 {
			continue
		}
		for _, a := range d.CmdArgs {
			if a.Key == "node" {
				continue
			}
			if err := n.Operator().Drain(a.Key+":11211", on); err != nil {
				return "", err
			}
		}
	}
	return "", nil
}

// reboot restarts all nodes, or one, node=2. They lose their state.
func (s *scenario) reboot(d *datadriven.TestData) (string, error) {
	begin := func(i int) bool { only := number(d, "node", 0); return only == 0 || only == i+1 }
	for i, n := range s.nodes {
		if begin(i) {
			ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
			err := n.Stop(ctx) // waits half of that for clients to leave
			cancel()
			if err != nil {
				return "", err
			}
		}
	}
	for i := range s.nodes {
		if !begin(i) {
			continue
		}
		n, err := pop.New(s.options[i])
		if err != nil {
			return "", err
		}
		s.network.replace(i, n)
		if err := n.Start(); err != nil {
			return "", err
		}
	}
	return "", nil
}

// mitigations prints the mitigations of each node.
func (s *scenario) mitigations(*datadriven.TestData) (string, error) {
	var b strings.Builder
	for _, n := range s.nodes {
		for _, m := range listed(n) {
			fmt.Fprintf(&b, "%s: rule=%s client=%s by=%s lifted=%t by_hand=%t ineffective=%t %s\n",
				n.Name(), m.Rule, m.Client, m.Node, m.Lifted, m.ByHand, m.Ineffective, m.Why)
		}
	}
	return b.String(), nil
}

// listed returns the mitigations of a node, those that end last first.
func listed(n *pop.Node) (all []operate.Mitigation) {
	q := operate.Query{Limit: 2}
	for {
		page, err := n.Operator().Mitigations(q)
		if err != nil {
			panic(err)
		}
		all = append(all, page.Mitigations...)
		if q.Cursor = page.Next; q.Cursor == "" {
			return all
		}
	}
}

// explain prints how each node explains a client: explain ip=192.0.2.1 rule=all.
func (s *scenario) explain(d *datadriven.TestData) (string, error) {
	values := map[string]string{}
	for _, a := range d.CmdArgs {
		values[a.Key] = strings.Join(a.Vals, ",")
	}
	var b strings.Builder
	for _, n := range s.nodes {
		e, err := n.Operator().Explain(values)
		if err != nil {
			return "", err
		}
		for _, k := range e.Keys {
			fmt.Fprintf(&b, "%s: rule=%s mitigated=%t", n.Name(), k.Rule, k.Mitigation != nil && !k.Mitigation.Lifted)
			for _, l := range k.Limits {
				fmt.Fprintf(&b, " %s, %d more;", l.Text, l.Remaining)
			}
			b.WriteString(strings.TrimRight(" "+k.Problem, " ") + "\n")
		}
		for _, need := range e.Needs {
			fmt.Fprintf(&b, "%s: rule=%s needs %v\n", n.Name(), need.Rule, need.Characteristics)
		}
	}
	return b.String(), nil
}

// commands prints how many commands the shards have received since the last call, in total, or for each of the
// named shards: commands s1 s2.
func (s *scenario) commands(d *datadriven.TestData) (string, error) {
	if len(d.CmdArgs) > 0 {
		var counts []string
		_, err := s.each(d, func(sh *fakeShard) { counts = append(counts, strconv.Itoa(sh.commands())) })
		return strings.Join(counts, " ") + "\n", err
	}
	total := 0
	for _, sh := range s.shards {
		total += sh.commands()
	}
	return fmt.Sprintf("%d\n", total), nil
}

// metric prints each node's sum of a metric over its labels: metric edge_mitigation_records.
func (s *scenario) metric(d *datadriven.TestData) (string, error) {
	var out []string
	for _, n := range s.nodes {
		for _, a := range d.CmdArgs {
			v, err := sum(n.Gatherer(), a.Key)
			if err != nil {
				return "", err
			}
			out = append(out, fmt.Sprintf("%s %s %v\n", n.Name(), a.Key, v))
		}
	}
	return strings.Join(out, ""), nil
}

func sum(g prometheus.Gatherer, name string) (total float64, err error) {
	name, label, _ := strings.Cut(name, "/")
	families, err := g.Gather()
	if err != nil {
		return 0, err
	}
	for _, family := range families {
		if family.GetName() != name {
			continue
		}
		for _, m := range family.GetMetric() {
			if label == "" || slices.ContainsFunc(m.GetLabel(), func(l *dto.LabelPair) bool { return l.GetValue() == label }) {
				total += m.GetCounter().GetValue() + m.GetGauge().GetValue()
			}
		}
		return total, nil
	}
	return 0, errors.New("no metric " + name)
}
