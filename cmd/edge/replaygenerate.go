package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net/netip"
	"os"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/edgelimit/edge/analysis/accesslog"
	"github.com/edgelimit/edge/load/mix"
	"github.com/edgelimit/edge/pop/setting"
)

// generateFlags configures the log to write.
type generateFlags struct {
	set      *pflag.FlagSet
	mix      string
	seed     uint64
	requests uint64
	format   mix.Format
	over     []string
}

func (f *generateFlags) flags() *pflag.FlagSet {
	names := mix.FormatNames()
	f.set = flagSet([]setting.Setting{
		{Name: "generate", Value: setting.Text(&f.mix, "", nil), Help: "write the log of a `mix`: a file, or one of " + strings.Join(mix.Names(), ", ")},
		{Name: "seed", Value: setting.Parsed("number", &f.seed, "", setting.Whole[uint64](0, math.MaxUint64)), Help: "seed to use instead of the mix's own"},
		{Name: "requests", Value: setting.Parsed("number", &f.requests, "", setting.Whole[uint64](1, math.MaxUint64)), Help: "stop after this `number` of requests"},
		{Name: "generate-format", Value: setting.Parsed("format", &f.format, names[0], quotingOnce(mix.ParseFormat)), Help: strings.Join(names, ", ")},
		{Name: "over", Value: setting.List(&f.over, nil), Help: "`files` of a log: write it as JSON, with the attacks of the mix added and marked"},
	})
	return f.set
}

// write writes the log of a mix, or lays its attacks over other logs. in configures how those are read.
func (f *generateFlags) write(ctx context.Context, files []string, in *inputFlags, stdout, stderr io.Writer) error {
	if len(files) > 0 {
		return usageError{fmt.Errorf("--generate reads no log, but %q was given", files[0]), "edge replay --generate " + f.mix + " > access.log; to add an attack to a log: --over"}
	}
	m, err := mix.Load(f.mix, 0)
	if err != nil {
		return err
	}
	if f.set.Changed("seed") {
		m.Seed = f.seed
	}
	if f.set.Changed("requests") {
		m.Requests = f.requests
	}
	if len(f.over) > 0 {
		return f.lay(ctx, m, in, stdout, stderr)
	}
	_, err = mix.Write(stdout, m, f.format)
	return err
}

// An overlay lays the attacks of a mix over a log.
type overlay struct {
	attack *mix.Source
	mix    *mix.Mix
	next   mix.Request
	left   bool // next has yet to be written
	out    *json.Encoder

	// Known after the log was read for the first time.
	began, ended int64
	has          [len(overlaidProperties)]bool // whether at least one request has the property
	clients      []netip.Addr                  // in the order of their first requests
	addrs        map[string]netip.Addr
	population   mix.Population
}

// An overlaid is a line of the resulting log.
type overlaid struct {
	Time    string     `json:"time"`
	Client  netip.Addr `json:"remote_addr"`
	Method  string     `json:"request_method,omitempty"`
	Host    string     `json:"host,omitempty"`
	URI     string     `json:"request_uri"`
	Status  int        `json:"status"`
	Request *request   `json:"request,omitempty"`
	Attack  bool       `json:"attack,omitempty"`
}

type request struct {
	Headers map[string]string `json:"headers"`
}

// overlaidProperties are the properties of the attack's requests. A property that no request of the log has is
// omitted: rules that use it would apply only to the attack.
var overlaidProperties = [...]struct {
	name string
	set  func(*overlaid, *mix.Request)
}{
	{"method", func(l *overlaid, r *mix.Request) { l.Method = r.Method }},
	{"host", func(l *overlaid, r *mix.Request) { l.Host = r.Host }},
	{"path", func(l *overlaid, r *mix.Request) { l.URI = r.Path }},
	{"status", func(l *overlaid, r *mix.Request) { l.Status = r.Status }},
	{"header:User-Agent", func(l *overlaid, r *mix.Request) { l.set("User-Agent", r.Agent) }},
}

// lay writes the logs that f names, with the attacks of m inserted.
func (f *generateFlags) lay(ctx context.Context, m *mix.Mix, in *inputFlags, stdout, stderr io.Writer) error {
	if f.set.Changed("generate-format") {
		return usageError{errors.New("--over writes JSON"), "leave out --generate-format"}
	}
	for _, name := range f.over {
		if info, err := os.Stat(name); name == "-" || err == nil && !info.Mode().IsRegular() {
			return fail("over", "write it to a file first", "%s can be read only once", name)
		}
	}
	var o *overlay
	err := in.read(f.over, accesslog.All, nil, io.Discard, func(log *input) (err error) { // malformed lines are reported later
		o, err = survey(ctx, log)
		return err
	})
	if err != nil {
		return err
	}
	if o.mix, err = m.Over(time.UnixMicro(o.began), o.clients); err != nil {
		return err
	}
	o.attack = o.mix.Source()
	o.left = o.attack.Next(&o.next)
	if o.left && o.next.Time > o.ended {
		report(stderr, errors.New("the attack begins after the end of the log"))
	}
	w := bufio.NewWriterSize(stdout, 64<<10)
	o.out = json.NewEncoder(w)
	o.out.SetEscapeHTML(false)
	log, err := in.open(f.over, accesslog.All, nil, stderr)
	if err != nil {
		return err
	}
	defer log.log.Close()
	if err := log.entries(ctx, o.write); err != nil {
		return err
	}
	return errors.Join(o.writeAttack(1<<63-1), w.Flush())
}

// survey reads the log for the first time.
func survey(ctx context.Context, log *input) (*overlay, error) {
	o := &overlay{addrs: map[string]netip.Addr{}}
	known := map[netip.Addr]bool{}
	return o, log.entries(ctx, func(e *accesslog.Entry) error {
		if len(o.clients) == 0 {
			o.began = e.Time
		}
		o.ended = e.Time
		for i, p := range overlaidProperties {
			o.has[i] = o.has[i] || hasProperty(e, p.name)
		}
		if a := o.addr(e); !known[a] {
			known[a] = true
			o.clients = append(o.clients, a)
		}
		return nil
	})
}

// addr returns the address of a client. It is generated if the log does not identify clients by address.
func (o *overlay) addr(e *accesslog.Entry) netip.Addr {
	if e.Addr.IsValid() {
		return e.Addr.Unmap().WithZone("")
	}
	a, known := o.addrs[e.Client]
	if !known {
		a = o.population.Next()
		o.addrs[strings.Clone(e.Client)] = a
	}
	return a
}

// write writes a request of the log, after the attack's earlier requests.
func (o *overlay) write(e *accesslog.Entry) error {
	if err := o.writeAttack(e.Time); err != nil {
		return err
	}
	line := overlaid{Client: o.addr(e), Method: e.Method, Host: e.Host, URI: e.Path, Status: e.Status, Attack: e.Attack}
	if e.Query != "" {
		line.URI += "?" + e.Query
	}
	for _, f := range e.Header {
		line.set(f.Name, f.Value)
	}
	return o.writeLine(e.Time, &line)
}

// writeAttack writes the requests of the attack before a time.
func (o *overlay) writeAttack(before int64) error {
	for ; o.left && o.next.Time < before; o.left = o.attack.Next(&o.next) {
		line := overlaid{Client: o.mix.Addr(o.next.Client), Attack: true}
		for i, p := range overlaidProperties {
			if o.has[i] {
				p.set(&line, &o.next)
			}
		}
		if err := o.writeLine(o.next.Time, &line); err != nil {
			return err
		}
	}
	return nil
}

func (l *overlaid) set(name, value string) {
	if l.Request == nil {
		l.Request = &request{map[string]string{}}
	}
	l.Request.Headers[name] = value
}

func (o *overlay) writeLine(at int64, l *overlaid) error {
	l.Time = time.UnixMicro(at).UTC().Format("2006-01-02T15:04:05.000000Z")
	if l.URI == "" {
		l.URI = "/" // a line without it would not be read as a request
	}
	if err := o.out.Encode(l); err != nil {
		return fmt.Errorf("writing the log: %w", err)
	}
	return nil
}
