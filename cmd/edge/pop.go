package main

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/edgelimit/edge/internal/chart"
	"github.com/edgelimit/edge/internal/prose"
	"github.com/edgelimit/edge/internal/version"
	"github.com/edgelimit/edge/pop"
	"github.com/edgelimit/edge/pop/setting"
	"github.com/edgelimit/edge/rule"
	"github.com/edgelimit/edge/rule/describe"
	rulefile "github.com/edgelimit/edge/rule/file"
)

//go:embed sample.yaml
var sampleRules []byte

// newPop returns the command pop, which calls run with its options.
func newPop(run func(context.Context, io.Writer, pop.LocalOptions, demonstration) error) *cobra.Command {
	var p pop.LocalOptions
	var demo demonstration
	var log logging
	cmd := &cobra.Command{
		Use:   "pop",
		Short: "Run a whole PoP on this machine, with no setup",
		Long: `Run a whole PoP on this machine: several nodes, each with its own shard, and a
spreader that passes each new connection to the next node, as the routers of a PoP do.
Without --rules it uses sample rules, without --origin a demo origin. --shard uses real
memcached servers instead of the nodes' own shards.

--demo sends traffic to it, explains what was refused and why, and exits.`,
		Example: `  edge pop
  edge pop --demo
  edge pop --nodes 5 --rules rules.yaml --origin http://127.0.0.1:3000
  edge pop --shard 127.0.0.1:11211,127.0.0.1:11212`,
	}
	rows := []setting.Setting{
		{Name: "nodes", Help: "number of nodes", Value: setting.Int(&p.Nodes, 3, 1, 64, "nodes")},
		{Name: "listen", Help: "`address` for clients; the nodes listen on the next ports, if they are free", Value: setting.Text(&p.Listen, "127.0.0.1:8080", nil)},
		{Name: "demo", Help: "send traffic for 20s, or for this `duration`, explain the result, and exit", Value: setting.Parsed("duration", &demo.length, "", setting.Span(1, time.Hour))},
	}
	for _, row := range append(pop.Settings(&p.Node), log.settings()...) {
		if otherwise := map[string]string{"node-header": "X-Edge-Node", "log-clients": "true"}[row.Name]; otherwise != "" {
			row.Value.Default = otherwise
		}
		if !row.Single {
			rows = append(rows, row)
		}
	}
	// Fill in the settings that the PoP gives its nodes, so that the others can be checked.
	check := func() error {
		o := p.Node
		o.Name, o.Listen, o.Embedded = "node-1", p.Listen, true // no origin is needed: there is the demo origin
		if len(o.RuleFiles) == 0 {
			o.Rules = new(rule.Set)
		}
		if o.Secret == "" && o.SecretFile == "" {
			o.Secret = "chosen at random"
		}
		var err error
		if p.Listen == "" {
			err = &setting.Error{Setting: "listen", Hint: "--listen :8080"}
		}
		return errors.Join(o.Check(), err)
	}
	cmd = withSettings(cmd, rows, check, func(cmd *cobra.Command) error {
		defer log.start(cmd.ErrOrStderr(), &p.Node)()
		demo.show = newProgressLine(true, cmd.ErrOrStderr())
		return run(cmd.Context(), cmd.OutOrStdout(), p, demo)
	})
	cmd.Flags().Lookup("demo").NoOptDefVal = "20s"
	return cmd
}

// runPop runs a PoP until ctx is done, a signal arrives, or the demonstration is over. It writes to
// out how to use the PoP.
func runPop(ctx context.Context, out io.Writer, p pop.LocalOptions, d demonstration) error {
	o := &p.Node
	o.Version = version.String()
	if d.length > 0 {
		o.TrustedProxies = append(o.TrustedProxies, loopback...)
	}
	sample, demo := len(o.RuleFiles) == 0, o.Origin == "" && len(o.HostOrigins) == 0
	// Without files there is nothing to reload, so a closed terminal ends the PoP.
	var hangup chan os.Signal
	if sample {
		rules, err := rulefile.Parse("sample.yaml", sampleRules)
		if err != nil {
			return err
		}
		o.Rules = rules
	} else {
		hangup = onHangup()
		defer signal.Stop(hangup)
	}
	if demo {
		origin, err := startDemoOrigin()
		if err != nil {
			return err
		}
		defer origin.Close()
		o.Origin = "http://" + origin.Addr
	}
	ctx, stop := untilSignal(ctx)
	defer stop()
	forMetrics, forAdmin := "127.0.0.1:9180", "127.0.0.1:9190" // the nodes' ports are the next ones: easy to remember
	if _, port, _ := net.SplitHostPort(p.Listen); port == "0" {
		forMetrics, forAdmin = "127.0.0.1:0", "127.0.0.1:0"
	}
	p.Addrs = func(i int) (clients, metrics, admin string) {
		return portAfter(p.Listen, i+1), portAfter(forMetrics, i+1), portAfter(forAdmin, i+1)
	}
	local, err := pop.StartLocal(p)
	if err != nil {
		return err
	}
	describePop(out, local, sample, o.Origin, demo)
	if d.length > 0 {
		err = d.run(ctx, local, out)
	} else {
		suggest(out, local, sample, demo)
		waitForEnd(ctx, o.Logger, hangup, local.Reload)
	}
	return errors.Join(err, local.Stop(context.WithoutCancel(ctx)))
}

// portAfter returns addr with its port increased by n. If that port is in use, or addr's port is 0, the result has
// port 0, which stands for any free port.
func portAfter(addr string, n int) string {
	host, port, _ := net.SplitHostPort(addr) // checked before
	base, _ := strconv.Atoi(port)
	if next := net.JoinHostPort(host, strconv.Itoa(base+n)); base > 0 {
		if ln, err := net.Listen("tcp", next); err == nil {
			_ = ln.Close()
			return next
		}
	}
	return net.JoinHostPort(host, "0")
}

// describePop writes the addresses and rules of the PoP.
func describePop(w io.Writer, local *pop.Local, sample bool, origin string, demo bool) {
	rules := local.Nodes()[0].Rules().Rules()
	fmt.Fprintf(w, "A PoP of %s is running.\n\n", chart.Count(len(local.Nodes()), "node"))
	url := "http://" + reachable(local.Addr())
	fmt.Fprintf(w, "  clients  %s   each new connection goes to the next node\n", url)
	own := local.ShardAddrs()
	for i, n := range local.Nodes() {
		line := fmt.Sprintf("  %-7s  http://%s   metrics http://%s/metrics   page http://%s/", n.Name(), reachable(n.Addr("http")), reachable(n.Addr("metrics")), reachable(n.Addr("admin")))
		if i < len(own) {
			line += "   shard " + own[i]
		}
		fmt.Fprintln(w, line)
	}
	if len(own) == 0 {
		fmt.Fprintf(w, "  shards   %s\n", strings.Join(local.Nodes()[0].ShardNames(), ", "))
	}
	if demo {
		fmt.Fprintf(w, "  origin   %s   a demo\n", origin)
	}
	fmt.Fprintf(w, "\nRules%s:\n", chart.When(sample, " (samples)"))
	for i, r := range rules {
		if i == 5 {
			fmt.Fprintf(w, "  … and %d more\n", len(rules)-i)
			break
		}
		fmt.Fprintf(w, "  %s: %s\n", r.ID, strings.TrimPrefix(prose.Paragraph(describe.Rule(r), 84, "    "), "    "))
	}
	fmt.Fprintln(w)
}

// suggest writes commands to try.
func suggest(w io.Writer, local *pop.Local, sample, demo bool) {
	url := "http://" + reachable(local.Addr())
	fmt.Fprintf(w, "Try, in another terminal:\n")
	if demo && sample {
		fmt.Fprintf(w, "  for i in $(seq 8); do curl -s -o /dev/null -w '%%{http_code} ' -d password=guess %s/login; done\n", url)
	}
	if sample {
		fmt.Fprintf(w, "  for i in $(seq 60); do curl -s -o /dev/null -w '%%{http_code} ' %s/; done\n", url)
	}
	fmt.Fprintf(w, "  curl -i %s/\n", url)
	for _, shard := range local.ShardAddrs()[:min(1, len(local.ShardAddrs()))] {
		fmt.Fprintf(w, "  printf 'stats\\r\\nquit\\r\\n' | curl -s telnet://%s | grep cmd_\n", shard)
	}
	fmt.Fprintf(w, "  edge mitigations --node http://%s/\n", reachable(local.Nodes()[0].Addr("admin")))
	fmt.Fprintf(w, "\nMitigations are logged here. Press Ctrl-C to stop.\n\n")
}

// reachable returns addr in a form that clients on this machine can use.
func reachable(addr net.Addr) string {
	tcp, ok := addr.(*net.TCPAddr)
	if ok && tcp.IP.IsUnspecified() {
		return net.JoinHostPort("127.0.0.1", strconv.Itoa(tcp.Port))
	}
	return addr.String()
}

// startDemoOrigin starts a site that greets visitors and accepts one password.
func startDemoOrigin() (*http.Server, error) {
	mux := http.NewServeMux()
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintf(w, "%s %s from the demo origin\n", r.Method, r.URL.Path)
	})
	mux.HandleFunc("POST /login", func(w http.ResponseWriter, r *http.Request) {
		if r.PostFormValue("password") != "correct horse battery staple" {
			http.Error(w, "wrong password", http.StatusUnauthorized)
			return
		}
		fmt.Fprintln(w, "welcome")
	})
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("starting the demo origin: %w", err)
	}
	server := &http.Server{Addr: ln.Addr().String(), Handler: mux, ReadHeaderTimeout: 10 * time.Second}
	go func() { _ = server.Serve(ln) }() // until Close
	return server, nil
}
