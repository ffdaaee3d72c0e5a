package main

import (
	"errors"
	"net/netip"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/edgelimit/edge/load"
	"github.com/edgelimit/edge/load/mix"
)

// trafficFlags say what is sent.
type trafficFlags struct {
	set      *pflag.FlagSet
	rate     string
	mix      string
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
	f.set.Float64Var(&f.speed, "speed", 1, "how many times as fast as it was, a mix is sent")
	f.set.Uint64Var(&f.seed, "seed", 0, "another seed than that of the mix")
	f.set.Uint64Var(&f.clients, "clients", 1, "how many clients send at the rate, in turn")
	listVar(f.set, &f.networks, "networks", "where they come from, as `CIDRs` (default 10.0.0.0/8)")
	f.set.StringVar(&f.method, "method", "GET", "of requests at the rate")
	f.set.StringVar(&f.path, "path", "", "of requests at the rate (default: that of the target)")
	f.set.StringVar(&f.host, "host", "", "of requests at the rate (default: that of the target)")
	f.set.BoolVar(&f.attack, "attack", false, "requests at the rate are meant to be refused")
	return f.set
}

// apply sets what is sent.
func (f *trafficFlags) apply(o *load.Options) error {
	if (f.rate == "") == (f.mix == "") {
		return usageError{errors.New("what is to be sent?"), "give one of --rate 500/s, --mix web"}
	}
	if f.mix != "" {
		return f.applyMix(o)
	}
	var errs []error
	for _, name := range []string{"speed", "seed"} {
		if f.set.Changed(name) {
			errs = append(errs, fail(f.set, name, "--rate says how fast", "it is for mixes"))
		}
	}
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
	if f.path != "" && (f.path[0] != '/' || strings.ContainsAny(f.path, " \r\n")) || strings.ContainsAny(f.host, " \r\n/") || !isToken(f.method) {
		errs = append(errs, usageError{errors.New("--method, --host and --path: they do not make a request"), "--method POST --host example.com --path /login"})
	}
	if err := s.Check(); err != nil && len(errs) == 0 {
		errs = append(errs, fail(f.set, "networks", "", "%s", message(err)))
	}
	o.Source = s
	return errors.Join(errs...)
}

func (f *trafficFlags) applyMix(o *load.Options) error {
	var errs []error
	for _, name := range []string{"clients", "networks", "method", "path", "host", "attack"} {
		if f.set.Changed(name) {
			errs = append(errs, fail(f.set, name, "its file says it", "it is not for mixes"))
		}
	}
	if f.speed <= 0 || f.speed > 1e6 {
		errs = append(errs, fail(f.set, "speed", "", "%v is not between 0 and a million", f.speed))
	}
	m, err := mix.Load(f.mix)
	if err != nil {
		return errors.Join(append(errs, err)...)
	}
	if f.set.Changed("seed") {
		m.Seed = f.seed
	}
	o.Source = load.NewMixed(m, f.speed, time.Duration(0))
	return errors.Join(errs...)
}
