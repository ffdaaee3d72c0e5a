package main

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/edgelimit/edge/analysis/accesslog"
	"github.com/edgelimit/edge/internal/prose"
	"github.com/edgelimit/edge/internal/strictyaml"
	"github.com/edgelimit/edge/load"
	"github.com/edgelimit/edge/load/mix"
	"github.com/edgelimit/edge/pop/setting"
	"github.com/edgelimit/edge/rule"
)

// sendingFlags configures how requests are sent.
type sendingFlags struct {
	o      load.Options
	spread string
	tls    tls.Config
	own    bool
}

func (f *sendingFlags) settings() []setting.Setting {
	f.o.TLS = &f.tls
	return []setting.Setting{
		{Group: "sending", Name: "duration", Short: "d", Value: setting.Parsed("duration", &f.o.Duration, "", parseLength), Help: "stop after this time (default: the whole mix or log; otherwise 10s, or until --requests are sent)"},
		{Name: "requests", Short: "n", Value: setting.Parsed("number", &f.o.Requests, "", setting.Whole[uint64](1, math.MaxUint64)), Help: "stop after this many requests (default: no limit)"},
		{Name: "connections", Short: "c", Value: setting.Int(&f.o.Connections, 64, 1, math.MaxInt, "number"), Help: "maximum number of concurrent connections, to all targets together"},
		{Name: "keep-alive", Value: setting.Parsed("number", &f.o.KeepAlive, "0", setting.Whole(0, math.MaxInt)), Help: "maximum number of requests per connection (default: as many as the target allows)"},
		{Name: "spread", Value: oneOf(&f.spread, "random", "hash"), Help: "random: each connection goes to any target; hash: each client always goes to the same one"},
		{Name: "http2", Value: setting.Bool(&f.o.HTTP2, false), Help: "use HTTP/2, even without TLS"},
		{Name: "http3", Value: setting.Bool(&f.o.HTTP3, false), Help: "use HTTP/3", Contradicts: "http2"},
		{Name: "streams", Value: setting.Int(&f.o.Streams, 1, 1, math.MaxInt, "number"), Help: "concurrent requests on an HTTP/2 or HTTP/3 connection", Needs: []string{"http2|http3"}},
		{Name: "identity", Value: setting.Parsed("words", &f.o.Identity, "xff", load.ParseIdentity), Help: "how clients are distinguished: `words` from xff, proxy1, proxy2, header:NAME, cookie:NAME, none"},
		{Name: "header", Short: "H", Value: repeatable(setting.ListOf(&f.o.Header, load.ParseHeader)), Help: "header `line` of all requests, such as 'Accept: text/html'; may be repeated"},
		{Name: "body", Value: setting.Parsed("text", &f.o.Body, "", readBody), Help: "body of all requests except GET, HEAD, OPTIONS and TRACE, as `text` or @FILE"},
		{Name: "timeout", Value: setting.Parsed("duration", &f.o.Timeout, "5s", setting.Span(1, unbounded)), Help: "maximum time for a request, and for connecting"},
		{Name: "node-header", Value: setting.Text(&f.o.NodeHeader, "X-Edge-Node", nil), Help: "response header that names the node"},
		{Name: "ca", Value: setting.Parsed("file", &f.tls.RootCAs, "", readCertificates), Help: "PEM `file` with certificates to trust"},
		{Name: "insecure", Value: setting.Bool(&f.tls.InsecureSkipVerify, false), Help: "trust any certificate", Contradicts: "ca"},
		{Name: "i-own-this-target", Value: setting.Bool(&f.own, false), Help: "send even if a target is neither this machine nor on a private network"},
	}
}

// parseLength parses the duration of a run. -d has other meanings in other load generators.
func parseLength(text string) (time.Duration, error) {
	d, err := setting.Span(1, unbounded)(text)
	if length, long := strings.CutPrefix(text, "uration="); long {
		err = fmt.Errorf("write --duration=%s", length)
	} else if err != nil && strings.ContainsAny(text, "={[@") {
		err = fmt.Errorf("%w; --body is the body of requests", err)
	}
	return d, err
}

// counterparts are hints for flags of similar programs, by command. Those of edge load are for hey, wrk, vegeta and k6.
var counterparts = map[string]map[string]string{"lift": {
	"key": "give the key as the argument", "ip": "give the address as the argument, or rule=ID,ip=ADDRESS",
}, "load": {
	"z": "-d is the duration", "q": "--rate is the rate of all connections together", "R": "--rate is the rate", "rate": "write --rate", "rps": "--rate is the rate",
	"t": "-c is the number of connections, --timeout the timeout", "threads": "-c is the number of connections", "workers": "-c is the number of connections",
	"T": "-H 'Content-Type: …' sets the type of the body", "A": "-H 'Accept: …' sets the header", "a": "-H 'Authorization: Basic …' sets the header", "D": "--body @FILE sends a file",
	"vus": "-c is the number of connections, --clients of clients", "u": "-c is the number of connections, --clients of clients",
	"iterations": "-n is the number of requests", "i": "-n is the number of requests", "stage": "--rate 10/s,500/s@10s rises linearly",
	"L": "--latency prints the distribution", "o": "--json writes the report as JSON, --csv the requests", "keepalive": "--keep-alive 1 closes connections after each request",
	"s": "--mix describes traffic, --replay sends a log", "targets": "--mix describes traffic, --replay sends a log",
}}

func readCertificates(file string) (*x509.CertPool, error) {
	pem, err := strictyaml.ReadFile(file)
	if err != nil {
		return nil, err
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(pem) {
		return nil, errors.New("must contain at least one certificate")
	}
	return pool, nil
}

// readBody returns the body of requests: text, or the contents of @FILE.
func readBody(text string) ([]byte, error) {
	if file, ok := strings.CutPrefix(text, "@"); ok {
		return strictyaml.ReadFile(file)
	}
	return []byte(text), nil
}

// options returns the options that the flags specify, except for targets.
func (f *sendingFlags) options() load.Options {
	o := f.o
	o.Hashed = f.spread == "hash"
	typed := slices.ContainsFunc(o.Header, func(h [2]string) bool { return strings.EqualFold(h[0], "Content-Type") })
	if len(o.Body) > 0 && !typed { // as curl does
		o.Header = append(o.Header, [2]string{"Content-Type", "application/x-www-form-urlencoded"})
	}
	return o
}

// reach resolves the targets.
func (f *sendingFlags) reach(ctx context.Context, targets []string, o *load.Options) error {
	var errs []error
	for _, text := range targets {
		t, err := load.ParseTarget(ctx, text, f.own)
		hint := ""
		if _, public := errors.AsType[*load.PublicError](err); public {
			hint = "do not load-test servers that you do not own; if you own this one, add --i-own-this-target"
		} else if _, unknown := errors.AsType[*net.DNSError](err); unknown {
			hint = "check the spelling of the host, or write its address"
		}
		if err != nil {
			errs = append(errs, usageError{err, hint})
		}
		o.Targets = append(o.Targets, t)
	}
	return errors.Join(errs...)
}

// trafficFlags configures what is sent.
type trafficFlags struct {
	flags  *pflag.FlagSet // of the command
	mix    string
	replay []string
	in     inputFlags // how these logs are read
	speed  float64
	seed   uint64
	steady load.Steady

	printRules bool
}

func (f *trafficFlags) settings() []setting.Setting {
	const other = "mix|replay" // than requests at a rate
	s := &f.steady
	return []setting.Setting{
		{Group: "traffic", Name: "rate", Value: setting.Parsed("rate", &s.Profile, "max", parseRate), Help: "requests a second: `500/s`; 10/s,500/s@10s rises linearly over 10 seconds; max: as fast as responses arrive", Contradicts: other},
		{Name: "mix", Value: setting.Text(&f.mix, "", nil).Choices(mix.Names()...), Help: "send the requests of a `mix`: a file, or one of " + strings.Join(mix.Names(), ", "), Sample: "web"},
		{Name: "print-rules", Value: setting.Bool(&f.printRules, false), Help: "print the rules that the bundled mix is made for, and send nothing"},
		{Name: "replay", Value: setting.List(&f.replay, nil), Help: "send the requests of access `logs`, oldest first, in the formats of edge replay", Contradicts: "mix"},
		{Name: "speed", Value: setting.Parsed("factor", &f.speed, "1", setting.Number(0.001, 1e6)), Help: "speed of a mix or a log, as a multiple of the recorded one; bursts are aligned with windows only at 1", Needs: []string{other}},
		{Name: "seed", Value: setting.Parsed("number", &f.seed, "", setting.Whole[uint64](0, math.MaxUint64)), Help: "seed of a mix, and of the clients' addresses with --mix and --rate (default: the mix's own, and new addresses in each run)", Contradicts: "replay"},
		{Name: "clients", Value: setting.Parsed("number", &s.Clients, "1", setting.Whole[uint64](1, math.MaxUint64)), Help: "number of clients that send in turn, with --rate", Contradicts: other},
		{Name: "networks", Value: setting.ListOf(&s.Networks, parseNetwork), Help: "`CIDRs` that these clients' addresses are taken from, in order (default: addresses in 10.0.0.0/8 that differ from run to run)", Contradicts: other},
		{Name: "method", Short: "m", Value: setting.Text(&s.Look.Method, "", nil), Help: "method of requests with --rate (default: GET, or POST with a body)", Contradicts: other},
		{Name: "path", Value: setting.Text(&s.Look.Target, "", nil), Help: "path of requests with --rate (default: that of the target)", Contradicts: other},
		{Name: "host", Value: setting.Text(&s.Look.Host, "", nil), Help: "Host of requests with --rate (default: that of the target)", Contradicts: other},
		{Name: "attack", Value: setting.Bool(&s.Attack, false), Help: "mark requests with --rate as an attack, which should be refused", Contradicts: other},
	}
}

// parseRate parses the profile of a rate. It returns nil for max, the highest rate possible.
func parseRate(text string) ([]load.Point, error) {
	if text == "max" {
		return nil, nil
	}
	return load.ParseProfile(text)
}

func parseNetwork(text string) (netip.Prefix, error) {
	p, err := netip.ParsePrefix(text)
	if err == nil {
		p, err = rule.Unmap(p)
	}
	if err != nil {
		return p, errors.New("must be a network, such as 10.0.0.0/8 or 2001:db8::/32")
	}
	return p.Masked(), nil
}

// apply sets the source and the duration. The caller must call end after the run.
func (f *trafficFlags) apply(cmd *cobra.Command, o *load.Options) (end func() error, err error) {
	switch {
	case f.mix != "":
		return noop, f.applyMix(o)
	case len(f.replay) > 0:
		return f.applyLog(cmd, o)
	}
	return noop, f.applyRate(o)
}

// writeRules writes the rules that a bundled mix is made for.
func (f *trafficFlags) writeRules(w io.Writer) error {
	text, ok := mix.Rules(f.mix)
	if !ok {
		return fail("print-rules", "edge load --mix web --print-rules > rules.yaml", "only the mixes web and attack have rules")
	}
	_, err := w.Write(text)
	return err
}

func noop() error { return nil }

// addresses returns a number that selects the addresses of clients. A PoP remembers those of earlier runs.
func (f *trafficFlags) addresses() uint64 {
	if f.flags.Changed("seed") {
		return f.seed
	}
	return rand.Uint64()
}

// unbounded is the duration of a run that ends when its requests do.
const unbounded = 10 * 365 * 24 * time.Hour

func (f *trafficFlags) applyRate(o *load.Options) error {
	s := &f.steady
	if s.Look.Method == "" {
		s.Look.Method = http.MethodGet
		if len(o.Body) > 0 {
			s.Look.Method = http.MethodPost
		}
	}
	if len(s.Networks) == 0 {
		s.Offset = f.addresses()
	}
	o.Source, o.ClosedLoop = s, s.Profile == nil
	if len(o.Body) > 0 && !load.CarriesBody(s.Look.Method) {
		return fail("body", "-m POST", "%s requests have no body", s.Look.Method)
	}
	if err := s.Check(); err != nil {
		return usageError{err, "--method POST --host example.com --path /login --networks 10.0.0.0/8"}
	}
	return nil
}

func (f *trafficFlags) applyMix(o *load.Options) error {
	m, err := mix.Load(f.mix, f.addresses())
	if err != nil {
		return err
	}
	if f.flags.Changed("seed") {
		m.Seed = f.seed
	}
	o.Source = load.NewMixed(m, f.speed)
	o.Duration = cmp.Or(o.Duration, time.Duration(float64(m.Duration())/f.speed))
	return nil
}

// applyLog reads the logs to determine the duration, unless that is given or a log can be read only once.
func (f *trafficFlags) applyLog(cmd *cobra.Command, o *load.Options) (end func() error, err error) {
	ctx := cmd.Context()
	if o.Duration == 0 && slices.ContainsFunc(f.replay, isPipe) {
		o.Duration = unbounded
	}
	if o.Duration == 0 {
		err := f.in.read(cmd, f.replay, accesslog.Addr, func(in *input) (err error) {
			o.Duration, err = f.span(ctx, in, cmp.Or(o.Requests, math.MaxUint64))
			return err
		})
		if err != nil {
			return nil, err
		}
	}
	in, err := f.in.open(cmd, f.replay, accesslog.All)
	if err != nil {
		return nil, err
	}
	s := load.NewRecorded(ctx, in.log.Log, f.speed)
	o.Source = s
	return func() error { return in.explain(s.Close()) }, nil
}

var errEnough = errors.New("enough")

// span returns how long it takes to send the first n requests of the logs.
func (f *trafficFlags) span(ctx context.Context, in *input, n uint64) (time.Duration, error) {
	var first, last int64 // microseconds
	var seen uint64
	err := in.arrivals(ctx, func(batch []accesslog.Arrival) error {
		if seen == 0 {
			first = batch[0].Time
		}
		batch = batch[:min(uint64(len(batch)), n-seen)]
		seen += uint64(len(batch))
		last = max(last, batch[len(batch)-1].Time)
		if seen == n {
			return errEnough
		}
		return nil
	})
	if err != nil && !errors.Is(err, errEnough) {
		return 0, err
	}
	const second = 1e6 // the requests of a whole second are spread over it
	return max(time.Millisecond, time.Duration(min(float64(last-first+second)/f.speed*1e3, float64(unbounded)))), nil
}

// plan describes what will be sent and how long it will take. It is empty if the duration was given
// or is not known.
func (f *trafficFlags) plan(o *load.Options, given bool, now time.Time) string {
	if given || f.mix == "" && len(f.replay) == 0 || o.Duration >= unbounded {
		return ""
	}
	what := "sending the mix " + f.mix
	if len(f.replay) > 0 {
		what = "replaying " + prose.FirstThree(f.replay)
	}
	takes := o.Duration.Round(time.Second)
	if o.Duration < time.Minute {
		takes = o.Duration.Round(10 * time.Millisecond)
	}
	return fmt.Sprintf("%s takes %v, until %s (shorten it with --duration or --speed)", what, takes, now.Add(o.Duration).Format("2006-01-02 15:04:05"))
}
