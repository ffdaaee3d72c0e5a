package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"math"
	"net"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/edgelimit/edge/load"
)

// sendingFlags configures how requests are sent.
type sendingFlags struct {
	set      *pflag.FlagSet
	o        load.Options
	spread   string
	identity string
	headers  []string
	body     string
	bodyFile string
	insecure bool
	ca       string
	own      bool
}

func (f *sendingFlags) flags() *pflag.FlagSet {
	f.set = pflag.NewFlagSet("", pflag.ContinueOnError)
	f.set.DurationVarP(&f.o.Duration, "duration", "d", 0, "stop after this time (default: the whole mix or log; at a rate 10s, or until --requests are sent)")
	f.set.Uint64VarP(&f.o.Requests, "requests", "n", 1_000_000, "stop after this many requests")
	f.set.IntVarP(&f.o.Connections, "connections", "c", 64, "maximum number of concurrent connections, to all targets together")
	f.set.IntVar(&f.o.KeepAlive, "keep-alive", 0, "requests on one connection (default: as many as the target allows)")
	f.set.StringVar(&f.spread, "spread", "random", "random: each connection goes to any target; hash: each client always goes to the same one")
	f.set.BoolVar(&f.o.HTTP2, "http2", false, "use HTTP/2, even without TLS")
	f.set.IntVar(&f.o.Streams, "streams", 1, "concurrent requests on an HTTP/2 connection")
	f.set.StringVar(&f.identity, "identity", "xff", "how clients are distinguished: `words` of xff, proxy1, proxy2, header:NAME, cookie:NAME, none")
	f.set.StringArrayVarP(&f.headers, "header", "H", nil, "header `line` of all requests, such as 'Accept: text/html'; may be repeated")
	f.set.StringVar(&f.body, "body", "", "body of all requests except GET, HEAD, OPTIONS and TRACE, as `text` or @FILE")
	f.set.StringVarP(&f.bodyFile, "body-file", "D", "", "`file` with the body, instead of --body")
	f.set.DurationVar(&f.o.Timeout, "timeout", 5*time.Second, "maximum time for a request, and for connecting")
	f.set.StringVar(&f.o.NodeHeader, "node-header", "X-Edge-Node", "response header that names the node")
	f.set.StringVar(&f.ca, "ca", "", "PEM `file` with certificates to trust")
	f.set.BoolVar(&f.insecure, "insecure", false, "trust any certificate")
	f.set.BoolVar(&f.own, "i-own-this-target", false, "send even if a target is neither this machine nor in a private network")
	return f.set
}

// options returns the options that the flags specify, except for targets. It opens no socket.
func (f *sendingFlags) options(targets []string) (load.Options, error) {
	o := f.o
	var errs []error
	for _, number := range []struct {
		name string
		n    int64
	}{
		{"requests", int64(min(o.Requests, math.MaxInt64))}, {"connections", int64(o.Connections)}, {"streams", int64(o.Streams)}, {"timeout", int64(o.Timeout)},
	} {
		if number.n <= 0 {
			errs = append(errs, fail(number.name, "", "must be positive"))
		}
	}
	if o.Duration < 0 || o.Duration == 0 && f.set.Changed("duration") {
		errs = append(errs, fail("duration", "", "must be positive"))
	}
	if o.KeepAlive < 0 {
		errs = append(errs, fail("keep-alive", "0: no limit", "must not be negative"))
	}
	if o.Hashed = f.spread == "hash"; !o.Hashed && f.spread != "random" {
		errs = append(errs, fail("spread", "use random or hash", "unknown spread %q", f.spread))
	}
	id, err := load.ParseIdentity(f.identity)
	if err != nil {
		errs = append(errs, fail("identity", "", "%s", message(err)))
	}
	o.Identity = id
	if o.Body, err = f.readBody(); err != nil {
		errs = append(errs, err)
	}
	typed := false
	for _, line := range f.headers {
		header, err := load.ParseHeader(line)
		if err != nil {
			errs = append(errs, fail("header", "-H 'Accept: text/html'; use --host for Host, and --keep-alive 1 for Connection: close", "%s", message(err)))
		}
		o.Header = append(o.Header, header)
		typed = typed || strings.EqualFold(header[0], "Content-Type")
	}
	if len(o.Body) > 0 && !typed { // as curl does
		o.Header = append(o.Header, [2]string{"Content-Type", "application/x-www-form-urlencoded"})
	}
	if o.TLS, err = f.tls(); err != nil {
		errs = append(errs, err)
	}
	return o, errors.Join(append(errs, f.contradictions(&o, targets)...)...)
}

// readBody reads the body of requests. It returns nil without a body.
func (f *sendingFlags) readBody() ([]byte, error) {
	file, at := strings.CutPrefix(f.body, "@")
	switch {
	case f.body != "" && f.bodyFile != "":
		return nil, fail("body", "", "cannot be combined with --body-file")
	case f.bodyFile != "":
		file = f.bodyFile
	case !at:
		return []byte(f.body), nil
	}
	body, err := os.ReadFile(file)
	if err != nil {
		return nil, usageError{fmt.Errorf("reading the body of requests: %w", err), ""}
	}
	return body, nil
}

// reach resolves the targets.
func (f *sendingFlags) reach(ctx context.Context, targets []string, o *load.Options) error {
	var errs []error
	for _, text := range targets {
		t, err := load.ParseTarget(ctx, text, f.own)
		var public *load.PublicError
		var unknown *net.DNSError
		switch {
		case errors.As(err, &public):
			errs = append(errs, usageError{err, "sending load to a target of others is an attack; if it is yours, add --i-own-this-target"})
		case errors.As(err, &unknown):
			errs = append(errs, usageError{err, "check the spelling of the host, or write its address"})
		case err != nil:
			errs = append(errs, usageError{err, ""})
		}
		o.Targets = append(o.Targets, t)
	}
	return errors.Join(errs...)
}

// contradictions returns errors for flags that contradict others.
func (f *sendingFlags) contradictions(o *load.Options, targets []string) (errs []error) {
	add := func(name, hint, format string, args ...any) {
		errs = append(errs, fail(name, hint, format, args...))
	}
	if f.set.Changed("streams") && !o.HTTP2 {
		add("streams", "--http2", "an HTTP/1.1 connection carries one request at a time")
	}
	if o.HTTP2 && o.Identity.Proxy != 0 {
		add("http2", "", "the PROXY protocol works with HTTP/1.1 only")
	}
	if o.Hashed && o.Connections < len(targets) {
		add("connections", fmt.Sprintf("--connections %d", len(targets)), "%d are too few for %d targets with --spread hash", o.Connections, len(targets))
	}
	if f.ca != "" && f.insecure {
		add("ca", "", "cannot be combined with --insecure")
	}
	if (f.ca != "" || f.insecure) && !slices.ContainsFunc(targets, func(t string) bool { return strings.HasPrefix(t, "https://") }) {
		name := map[bool]string{true: "insecure", false: "ca"}[f.insecure]
		add(name, "https://…", "no target uses TLS")
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
		return nil, usageError{fmt.Errorf("cannot read certificates: %w", err), ""}
	}
	config.RootCAs = x509.NewCertPool()
	if !config.RootCAs.AppendCertsFromPEM(pem) {
		return nil, fail("ca", "", "no certificate in %s", f.ca)
	}
	return config, nil
}
