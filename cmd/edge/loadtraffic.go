package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/edgelimit/edge/analysis/accesslog"
	"github.com/edgelimit/edge/load"
	"github.com/edgelimit/edge/load/mix"
	"github.com/edgelimit/edge/pop/rule"
)

// trafficFlags configures what is sent.
type trafficFlags struct {
	set      *pflag.FlagSet
	rate     string
	mix      string
	replay   []string
	speed    float64
	seed     uint64
	clients  uint64
	networks []string
	method   string
	path     string
	host     string
	attack   bool

	printRules bool
}

func (f *trafficFlags) flags() *pflag.FlagSet {
	f.set = pflag.NewFlagSet("", pflag.ContinueOnError)
	f.set.StringVar(&f.rate, "rate", "", "requests a second: `500/s`; 10/s,500/s@10s rises linearly over 10 seconds; max (default): as fast as answers come")
	f.set.StringVar(&f.mix, "mix", "", "send the requests of a `mix`: a file, or one of "+strings.Join(mix.Names(), ", "))
	f.set.BoolVar(&f.printRules, "print-rules", false, "print the rules that the bundled mix is made for, and send nothing")
	listVar(f.set, &f.replay, "replay", "send the requests of access `logs`, oldest first, in the formats of edge replay")
	f.set.Float64Var(&f.speed, "speed", 1, "speed of a mix or a log, as a multiple of the recorded one; bursts are aligned with windows only at 1")
	f.set.Uint64Var(&f.seed, "seed", 0, "seed to use instead of the mix's own")
	f.set.Uint64Var(&f.clients, "clients", 1, "number of clients, which send in turn, at the rate")
	listVar(f.set, &f.networks, "networks", "addresses of these clients, as `CIDRs` (default 10.0.0.0/8)")
	f.set.StringVarP(&f.method, "method", "m", "", "method of requests at the rate (default: GET, or POST with a body)")
	f.set.StringVar(&f.path, "path", "", "path of requests at the rate (default: that of the target)")
	f.set.StringVar(&f.host, "host", "", "Host of requests at the rate (default: that of the target)")
	f.set.BoolVar(&f.attack, "attack", false, "mark requests at the rate as an attack, which should be refused")
	return f.set
}

// A kindOfTraffic is one of several mutually exclusive kinds, with the flags that do not apply to
// it.
type kindOfTraffic struct {
	flag  string
	given bool
	no    []string
	apply func(context.Context, *load.Options) (end func() error, err error)
}

func (f *trafficFlags) kinds() []kindOfTraffic {
	steady := []string{"clients", "networks", "method", "path", "host", "attack"}
	return []kindOfTraffic{
		{"mix", f.mix != "", steady, f.applyMix},
		{"replay", len(f.replay) > 0, append([]string{"seed"}, steady...), f.applyLog},
		{"rate", f.rate != "", []string{"speed", "seed"}, f.applyRate},
	}
}

// kind returns the requested kind, by default requests as fast as answers arrive. It returns an error
// if several are requested, or if flags are given that do not apply to it.
func (f *trafficFlags) kind() (kind kindOfTraffic, err error) {
	var given []string
	for _, k := range f.kinds() {
		if k.given {
			given = append(given, "--"+k.flag)
		}
		if k.given || kind.flag == "" {
			kind = k
		}
	}
	if len(given) > 1 {
		return kind, usageError{fmt.Errorf("%s cannot be combined", strings.Join(given, " and ")), "choose one"}
	}
	if len(given) == 0 {
		f.rate, kind = "max", f.kinds()[2]
	}
	var errs []error
	for _, name := range kind.no {
		if f.set.Changed(name) {
			errs = append(errs, fail(name, "", "cannot be combined with --%s", kind.flag))
		}
	}
	if f.speed <= 0 || f.speed > 1e6 {
		errs = append(errs, fail("speed", "", "invalid speed %v: must be between 0 and 1,000,000", f.speed))
	}
	return kind, errors.Join(errs...)
}

// apply sets the source and the duration. The caller must call end after the run.
func (f *trafficFlags) apply(ctx context.Context, o *load.Options) (end func() error, err error) {
	kind, err := f.kind()
	if err != nil {
		return nil, err
	}
	return kind.apply(ctx, o)
}

// rules returns the rules that a bundled mix is made for.
func (f *trafficFlags) rules() ([]byte, error) {
	text, ok := mix.Rules(f.mix)
	if !ok {
		return nil, fail("print-rules", "edge load --mix web --print-rules > rules.yaml", "only the mixes web and attack have rules")
	}
	return text, nil
}

func noop() error { return nil }

// unbounded is the duration of a run that ends when its requests do.
const unbounded = 10 * 365 * 24 * time.Hour

func (f *trafficFlags) applyRate(_ context.Context, o *load.Options) (end func() error, err error) {
	var errs []error
	method := cmp.Or(f.method, map[bool]string{false: "GET", true: "POST"}[len(o.Body) > 0])
	if len(o.Body) > 0 && !load.CarriesBody(method) {
		errs = append(errs, fail("body", "-m POST", "%s requests have no body", method))
	}
	s := &load.Steady{Clients: f.clients, Attack: f.attack, Look: load.Look{Method: method, Host: f.host, Target: f.path}}
	if f.rate == "max" {
		o.ClosedLoop = true
	} else {
		profile, err := load.ParseProfile(f.rate)
		if err != nil {
			errs = append(errs, fail("rate", "--rate 500/s, or 10/s,500/s@10s, or max", "%s", message(err)))
		}
		s.Profile = profile
	}
	for _, text := range f.networks {
		p, err := netip.ParsePrefix(text)
		if err == nil {
			p, err = rule.Unmap(p)
		}
		if err != nil {
			errs = append(errs, fail("networks", "--networks 10.0.0.0/8,2001:db8::/32", "invalid network %q", text))
			continue
		}
		s.Networks = append(s.Networks, p.Masked())
	}
	if f.clients == 0 {
		errs = append(errs, fail("clients", "", "must be positive"))
	}
	if err := s.Check(); err != nil && len(errs) == 0 {
		errs = append(errs, usageError{err, "--method POST --host example.com --path /login --networks 10.0.0.0/8"})
	}
	o.Source = s
	return noop, errors.Join(errs...)
}

func (f *trafficFlags) applyMix(_ context.Context, o *load.Options) (end func() error, err error) {
	m, err := mix.Load(f.mix)
	if err != nil {
		return nil, err
	}
	if f.set.Changed("seed") {
		m.Seed = f.seed
	}
	o.Source = load.NewMixed(m, f.speed)
	o.Duration = cmp.Or(o.Duration, time.Duration(float64(m.Duration())/f.speed))
	return noop, nil
}

func (f *trafficFlags) applyLog(ctx context.Context, o *load.Options) (end func() error, err error) {
	if err := onlyOnce(f.replay); err != nil {
		return nil, err
	}
	if o.Duration == 0 {
		if o.Duration, err = f.span(ctx, o.Requests); err != nil {
			return nil, err
		}
	}
	log, err := accesslog.Open(f.replay, accesslog.Options{})
	if err != nil {
		return nil, err
	}
	s := load.NewRecorded(ctx, log, f.speed)
	o.Source = s
	return s.Close, nil
}

var errEnough = errors.New("enough")

// span returns how long it takes to send the first n requests of the logs, or unbounded if they
// can be read only once.
func (f *trafficFlags) span(ctx context.Context, n uint64) (time.Duration, error) {
	for _, name := range f.replay {
		if info, err := os.Stat(name); name == "-" || err == nil && !info.Mode().IsRegular() {
			return unbounded, nil
		}
	}
	var first, last int64 // microseconds
	var seen uint64
	log, err := accesslog.Open(f.replay, accesslog.Options{})
	if err != nil {
		return 0, err
	}
	err = log.Arrivals(ctx, func(batch []accesslog.Arrival) error {
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
	if err = errors.Join(err, log.Close()); err != nil && !errors.Is(err, errEnough) {
		return 0, err
	}
	if seen == 0 {
		return 0, fmt.Errorf("%s has no requests", joined(f.replay))
	}
	const second = 1e6 // the requests of a whole second are spread over it
	return max(time.Millisecond, time.Duration(min(float64(last-first+second)/f.speed*1e3, float64(unbounded)))), nil
}

// plan describes what will be sent and how long it will take. It is empty if the duration was given
// or is not known.
func (f *trafficFlags) plan(o *load.Options, given bool, now time.Time) string {
	if given || f.rate != "" || o.Duration >= unbounded {
		return ""
	}
	what := "sending the mix " + f.mix
	if len(f.replay) > 0 {
		what = "replaying " + joined(f.replay)
	}
	takes := o.Duration.Round(time.Second)
	if o.Duration < time.Minute {
		takes = o.Duration.Round(10 * time.Millisecond)
	}
	return fmt.Sprintf("%s takes %v, until %s (shorten it with --duration or --speed)", what, takes, now.Add(o.Duration).Format("2006-01-02 15:04:05"))
}
