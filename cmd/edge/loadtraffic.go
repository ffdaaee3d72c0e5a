package main

import (
	"context"
	"errors"
	"net/netip"
	"strings"

	"github.com/spf13/pflag"

	"github.com/edgelimit/edge/analysis/accesslog"
	"github.com/edgelimit/edge/load"
	"github.com/edgelimit/edge/load/mix"
)

// trafficFlags say what is sent.
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
}

func (f *trafficFlags) flags() *pflag.FlagSet {
	f.set = pflag.NewFlagSet("", pflag.ContinueOnError)
	f.set.StringVar(&f.rate, "rate", "", "requests a second: `500/s`; 10/s,500/s@10s rises evenly for ten seconds; max: what the connections carry")
	f.set.StringVar(&f.mix, "mix", "", "send the requests of a `mix`: a file, or one of "+strings.Join(mix.Names(), ", "))
	listVar(f.set, &f.replay, "replay", "send the requests of access `logs`, oldest first, in the formats of edge replay")
	f.set.Float64Var(&f.speed, "speed", 1, "how many times as fast as it was a mix or a log is sent; bursts meet the edges of windows at 1 only")
	f.set.Uint64Var(&f.seed, "seed", 0, "another seed than that of the mix")
	f.set.Uint64Var(&f.clients, "clients", 1, "how many clients send at the rate, in turn")
	listVar(f.set, &f.networks, "networks", "where they come from, as `CIDRs` (default 10.0.0.0/8)")
	f.set.StringVar(&f.method, "method", "GET", "of requests at the rate")
	f.set.StringVar(&f.path, "path", "", "of requests at the rate (default: that of the target)")
	f.set.StringVar(&f.host, "host", "", "of requests at the rate (default: that of the target)")
	f.set.BoolVar(&f.attack, "attack", false, "requests at the rate are meant to be refused")
	return f.set
}

// A kindOfTraffic is one of those that exclude each other, with the flags that it has no use
// for.
type kindOfTraffic struct {
	flag  string
	given bool
	no    []string
	apply func(context.Context, *load.Options) (end func() error, err error)
}

func (f *trafficFlags) kinds() []kindOfTraffic {
	steady := []string{"clients", "networks", "method", "path", "host", "attack"}
	return []kindOfTraffic{
		{"rate", f.rate != "", []string{"speed", "seed"}, f.applyRate},
		{"mix", f.mix != "", steady, f.applyMix},
		{"replay", len(f.replay) > 0, append([]string{"seed"}, steady...), f.applyLog},
	}
}

// check refuses what contradicts itself.
func (f *trafficFlags) check() error {
	_, err := f.kind()
	return err
}

// kind returns which one is asked for.
func (f *trafficFlags) kind() (kind kindOfTraffic, err error) {
	n := 0
	for _, k := range f.kinds() {
		if k.given {
			kind = k
			n++
		}
	}
	if n != 1 {
		return kind, usageError{errors.New("what is to be sent?"), "give one of --rate 500/s, --mix web, --replay access.log"}
	}
	var errs []error
	for _, name := range kind.no {
		if f.set.Changed(name) {
			errs = append(errs, fail(f.set, name, "", "it has no meaning with --%s", kind.flag))
		}
	}
	if f.speed <= 0 || f.speed > 1e6 {
		errs = append(errs, fail(f.set, "speed", "", "%v is not between 0 and a million", f.speed))
	}
	return kind, errors.Join(errs...)
}

// apply sets what is sent. The function that it returns is called at the end.
func (f *trafficFlags) apply(ctx context.Context, o *load.Options) (end func() error, err error) {
	kind, err := f.kind()
	if err != nil {
		return nil, err
	}
	return kind.apply(ctx, o)
}

func nothing() error { return nil }

func (f *trafficFlags) applyRate(_ context.Context, o *load.Options) (end func() error, err error) {
	var errs []error
	s := &load.Steady{Clients: f.clients, Attack: f.attack, Look: load.Look{Method: f.method, Host: f.host, Target: f.path}}
	if f.rate == "max" {
		o.ClosedLoop = true
	} else {
		profile, err := load.ParseProfile(f.rate)
		if err != nil {
			errs = append(errs, fail(f.set, "rate", "--rate 500/s, or 10/s,500/s@10s, or max", "%s", message(err)))
		}
		s.Profile = profile
	}
	for _, text := range f.networks {
		p, err := netip.ParsePrefix(text)
		if err != nil {
			errs = append(errs, fail(f.set, "networks", "--networks 10.0.0.0/8,2001:db8::/32", "%q is no network", text))
			continue
		}
		s.Networks = append(s.Networks, p.Masked())
	}
	if f.clients == 0 {
		errs = append(errs, fail(f.set, "clients", "", "it has to be positive"))
	}
	if err := s.Check(); err != nil && len(errs) == 0 {
		errs = append(errs, usageError{err, "--method POST --host example.com --path /login --networks 10.0.0.0/8"})
	}
	o.Source = s
	return nothing, errors.Join(errs...)
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
	return nothing, nil
}

func (f *trafficFlags) applyLog(ctx context.Context, o *load.Options) (end func() error, err error) {
	log, err := accesslog.Open(f.replay, accesslog.Options{})
	if err != nil {
		return nil, err
	}
	s := load.NewRecorded(ctx, log, f.speed)
	o.Source = s
	return s.Close, nil
}
