package main

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"math"
	"net"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/edgelimit/edge/internal/strictyaml"
	"github.com/edgelimit/edge/load"
	"github.com/edgelimit/edge/pop/setting"
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

// counterparts are hints for flags of hey, wrk, vegeta and k6.
var counterparts = map[string]string{
	"z": "-d is the duration", "q": "--rate is the rate of all connections together", "R": "--rate is the rate", "rate": "write --rate", "rps": "--rate is the rate",
	"t": "-c is the number of connections, --timeout the timeout", "threads": "-c is the number of connections", "workers": "-c is the number of connections",
	"T": "-H 'Content-Type: …' sets the type of the body", "A": "-H 'Accept: …' sets the header", "a": "-H 'Authorization: Basic …' sets the header", "D": "--body @FILE sends a file",
	"vus": "-c is the number of connections, --clients of clients", "u": "-c is the number of connections, --clients of clients",
	"iterations": "-n is the number of requests", "i": "-n is the number of requests", "stage": "--rate 10/s,500/s@10s rises linearly",
	"L": "--latency prints the distribution", "o": "--json writes the report as JSON, --csv the requests", "keepalive": "--keep-alive 1 closes connections after each request",
	"s": "--mix describes traffic, --replay sends a log", "targets": "--mix describes traffic, --replay sends a log",
}

// loadFlagError names the counterpart of a flag of another load generator.
func loadFlagError(cmd *cobra.Command, err error) error {
	unknown, ok := errors.AsType[*pflag.NotExistError](err)
	if !ok {
		return flagError(cmd, err)
	}
	name := unknown.GetSpecifiedName()
	word, _, _ := strings.Cut(unknown.GetSpecifiedShortnames(), "=")
	hint := cmp.Or(counterparts[word], counterparts[name])
	if hint == "" {
		return flagError(cmd, err)
	}
	return usageError{fmt.Errorf("unknown flag -%s", cmp.Or(word, "-"+name)), hint}
}

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
		var public *load.PublicError
		var unknown *net.DNSError
		switch {
		case errors.As(err, &public):
			errs = append(errs, usageError{err, "do not load-test servers that you do not own; if you own this one, add --i-own-this-target"})
		case errors.As(err, &unknown):
			errs = append(errs, usageError{err, "check the spelling of the host, or write its address"})
		case err != nil:
			errs = append(errs, usageError{err, ""})
		}
		o.Targets = append(o.Targets, t)
	}
	return errors.Join(errs...)
}
