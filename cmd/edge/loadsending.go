package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"math"
	"os"
	"slices"
	"time"

	"github.com/spf13/pflag"

	"github.com/edgelimit/edge/load"
)

// sendingFlags say how requests are sent.
type sendingFlags struct {
	set      *pflag.FlagSet
	o        load.Options
	spread   string
	identity string
	headers  []string
	insecure bool
	ca       string
	own      bool
}

func (f *sendingFlags) flags() *pflag.FlagSet {
	f.set = pflag.NewFlagSet("", pflag.ContinueOnError)
	f.set.DurationVar(&f.o.Duration, "duration", 10*time.Second, "end after so long")
	f.set.Uint64Var(&f.o.Requests, "requests", 1_000_000, "end after so many")
	f.set.IntVar(&f.o.Connections, "connections", 64, "to all targets together, at a time")
	f.set.IntVar(&f.o.KeepAlive, "keep-alive", 0, "requests that a connection carries (default: as many as the target allows)")
	f.set.StringVar(&f.spread, "spread", "random", "random: a connection goes to any target; hash: a client always to the same")
	f.set.BoolVar(&f.o.HTTP2, "http2", false, "speak HTTP/2, without TLS too")
	f.set.IntVar(&f.o.Streams, "streams", 1, "requests at a time on a connection of HTTP/2")
	f.set.StringVar(&f.identity, "identity", "xff", "how clients are told apart: `words` of xff, proxy1, proxy2, header:NAME, cookie:NAME, none")
	f.set.StringArrayVar(&f.headers, "header", nil, "another header `line` for all requests, several by repeating")
	f.set.DurationVar(&f.o.Timeout, "timeout", 5*time.Second, "of a request, and of a dial")
	f.set.StringVar(&f.o.NodeHeader, "node-header", "X-Edge-Node", "response header that names the node")
	f.set.StringVar(&f.ca, "ca", "", "`file` of certificates to trust, in PEM")
	f.set.BoolVar(&f.insecure, "insecure", false, "trust any certificate")
	f.set.BoolVar(&f.own, "i-own-this-target", false, "send even if a target is neither this machine nor in a private network")
	return f.set
}

// options returns what the flags say.
func (f *sendingFlags) options(ctx context.Context, targets []string) (load.Options, error) {
	o := f.o
	var errs []error
	for _, number := range []struct {
		name string
		n    int64
	}{
		{"duration", int64(o.Duration)}, {"requests", int64(min(o.Requests, math.MaxInt64))}, {"connections", int64(o.Connections)},
		{"streams", int64(o.Streams)}, {"timeout", int64(o.Timeout)},
	} {
		if number.n <= 0 {
			errs = append(errs, fail(f.set, number.name, "", "it has to be positive"))
		}
	}
	if o.KeepAlive < 0 {
		errs = append(errs, fail(f.set, "keep-alive", "0 is no bound", "it cannot be negative"))
	}
	if o.Hashed = f.spread == "hash"; !o.Hashed && f.spread != "random" {
		errs = append(errs, fail(f.set, "spread", "there are random and hash", "%q is unknown", f.spread))
	}
	id, err := load.ParseIdentity(f.identity)
	if err != nil {
		errs = append(errs, fail(f.set, "identity", "", "%s", message(err)))
	}
	o.Identity = id
	for _, line := range f.headers {
		header, err := load.ParseHeader(line)
		if err != nil {
			errs = append(errs, fail(f.set, "header", "--header 'Accept: text/html'", "%s", message(err)))
		}
		o.Header = append(o.Header, header)
	}
	if o.TLS, err = f.tls(); err != nil {
		errs = append(errs, err)
	}
	for _, text := range targets {
		t, err := load.ParseTarget(ctx, text, f.own)
		var public *load.PublicError
		switch {
		case errors.As(err, &public):
			errs = append(errs, usageError{err, "load of strangers is an attack; if it is yours: --i-own-this-target"})
		case err != nil:
			errs = append(errs, usageError{err, ""})
		}
		o.Targets = append(o.Targets, t)
	}
	return o, errors.Join(append(errs, f.contradictions(&o)...)...)
}

// contradictions returns what of the flags has no meaning beside others.
func (f *sendingFlags) contradictions(o *load.Options) (errs []error) {
	add := func(name, hint, format string, args ...any) {
		errs = append(errs, fail(f.set, name, hint, format, args...))
	}
	if f.set.Changed("streams") && !o.HTTP2 {
		add("streams", "--http2", "a connection of HTTP/1.1 carries one request at a time")
	}
	if o.HTTP2 && o.Identity.Proxy != 0 {
		add("http2", "", "the PROXY protocol is spoken before HTTP/1.1 only")
	}
	if o.Hashed && o.Connections < len(o.Targets) {
		add("connections", fmt.Sprintf("--connections %d", len(o.Targets)), "%d are too few for %d targets by hash", o.Connections, len(o.Targets))
	}
	if f.ca != "" && f.insecure {
		add("ca", "", "it has no meaning with --insecure")
	}
	if (f.ca != "" || f.insecure) && !slices.ContainsFunc(o.Targets, func(t load.Target) bool { return t.TLS }) {
		name := map[bool]string{true: "insecure", false: "ca"}[f.insecure]
		add(name, "https://…", "no target speaks TLS")
	}
	return errs
}

func (f *sendingFlags) tls() (*tls.Config, error) {
	config := &tls.Config{InsecureSkipVerify: f.insecure}
	if f.ca == "" {
		return config, nil
	}
	pem, err := os.ReadFile(f.ca)
	if err != nil {
		return nil, usageError{fmt.Errorf("reading certificates: %w", err), ""}
	}
	config.RootCAs = x509.NewCertPool()
	if !config.RootCAs.AppendCertsFromPEM(pem) {
		return nil, fail(f.set, "ca", "", "there is no certificate in %s", f.ca)
	}
	return config, nil
}
