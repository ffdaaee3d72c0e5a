package main

import (
	"context"
	_ "embed"
	"fmt"
	"io"
	"net/netip"
	"strings"
	"time"

	"github.com/edgelimit/edge/internal/chart"
	"github.com/edgelimit/edge/load"
	"github.com/edgelimit/edge/load/mix"
	"github.com/edgelimit/edge/pop"
)

//go:embed demo.yaml
var demoMix []byte

// loopback holds the networks that the demonstration sends from. Nodes trust their X-Forwarded-For.
var loopback = []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8"), netip.MustParsePrefix("::1/128")}

// A demonstration sends traffic to a PoP and explains the results. If its length is not positive,
// it sends nothing.
type demonstration struct {
	length time.Duration
	show   progressLine
}

// run sends the traffic and writes the results to out.
func (d demonstration) run(ctx context.Context, local *pop.Local, out io.Writer) error {
	m, err := mix.Parse("demo.yaml", demoMix)
	if err != nil {
		return err
	}
	t, err := load.ParseTarget(ctx, "http://"+reachable(local.Addr()), false)
	if err != nil {
		return err
	}
	if wait := d.delay(time.Now()); wait > 0 {
		fmt.Fprintf(out, "Waiting %v for the next minute, so that none ends during the run.\n", (wait + time.Second).Truncate(time.Second))
		select {
		case <-ctx.Done():
		case <-time.After(wait):
		}
	}
	fmt.Fprintf(out, "Sending traffic for %v. X-Forwarded-For identifies the clients.\n\n", d.length)
	o := load.Options{
		Targets: []load.Target{t}, Source: load.NewMixed(m, 1), Duration: d.length, Connections: 24, KeepAlive: 100,
		Identity: load.Identity{Forwarded: true}, Progress: d.show.ofLoad(),
	}
	log, err := load.Run(ctx, o)
	d.show.end()
	if err != nil || log.Requests() == 0 {
		return err
	}
	report := log.Report()
	if report.Score, err = log.Score(load.JudgeOptions{Rules: local.Nodes()[0].Rules(), Skew: defaultSkew}); err != nil {
		return err
	}
	return explain(out, report, local.Reactions())
}

// delay returns how long to wait at now so that all requests fall into one window, a minute, of the sample rules:
// spread over two windows, fewer requests exceed the limits. A longer demonstration does not wait.
func (d demonstration) delay(now time.Time) time.Duration {
	const late = time.Second // how late the last requests may be
	left := now.Truncate(time.Minute).Add(time.Minute).Sub(now)
	if d.length+late > time.Minute || d.length+late <= left {
		return 0
	}
	return left
}

// demoParts describes the components of the demonstration, by name.
var demoParts = map[string]string{
	"readers":  "200 people reading pages",
	"readers6": "100 more, over IPv6",
	"regulars": "10 clients at 2 requests a second, too few to exceed a limit in this time",
	"scrapers": "3 clients at 10 requests a second",
	"guessers": "4 clients trying a password a second",
}

// explain writes the results of a demonstration. reactions are those of the nodes, the shortest first.
func explain(w io.Writer, r *load.Report, reactions []time.Duration) error {
	s := r.Score
	var b strings.Builder
	fmt.Fprintf(&b, "%s to %s over %s:\n\n", chart.Count(r.Sending.Requests, "request"), chart.Count(len(r.Nodes), "node"), chart.Count(r.Sending.Connections, "connection"))
	for _, c := range r.Components {
		fmt.Fprintf(&b, "  %-9s %6d, %5d refused   %s\n", c.Name, c.Requests, c.Refused, demoParts[c.Name])
	}
	fmt.Fprintf(&b, "\nWas that correct? The generator kept an exact log of every client:\n\n")
	fmt.Fprintf(&b, "  innocent   %s refused from clients that exceeded no limit, and %d from clients that only the\n             estimate put over a limit\n",
		chart.Count(s.InnocentRefused, "request"), s.InnocentByEstimate)
	fmt.Fprintf(&b, "  guilty     %s exceeded a limit. Requests are counted after they pass, so a few more may\n             pass: %d passed of the %d that an exact limiter would have refused\n",
		chart.Count(s.ClientsOver, "client"), s.WronglyAllowed.Requests, s.Exact)
	if n := len(reactions); n > 0 {
		ms := func(d time.Duration) float64 { return d.Seconds() * 1e3 }
		fmt.Fprintf(&b, "  reaction   from the arrival of the request that exceeded a limit until all nodes had the client's\n             mitigation: median %.1f ms, longest %.1f ms\n", ms(reactions[n/2]), ms(reactions[n-1]))
	}
	if t := s.FirstRefusal; t.Keys > 0 {
		fmt.Fprintf(&b, "  clients    got their first refusal a median of %.1f ms (at most %.1f ms) after the request that\n"+
			"             exceeded the limit, mostly the pause before their next request\n", t.P50, t.Max)
	}
	fmt.Fprintf(&b, "  latency    median %.1f ms, 99th percentile %.1f ms. No request waits for a counter\n", r.Latency.P50MS, r.Latency.P99MS)
	if len(s.Faults) == 0 {
		b.WriteString("  faults     none\n")
	}
	for _, f := range s.Faults {
		fmt.Fprintf(&b, "  fault      %s: %s\n", f.Name, f.Text)
	}
	b.WriteString("\nThe lines \"mitigation started\" above show which clients the nodes refused, and why.\nedge load tests any PoP in this way; edge pop without --demo keeps one running.\n")
	return writePrintable(w, b.String())
}
