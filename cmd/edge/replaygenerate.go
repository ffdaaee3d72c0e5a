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
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/edgelimit/edge/analysis/accesslog"
	"github.com/edgelimit/edge/load/mix"
	"github.com/edgelimit/edge/pop/setting"
)

func newReplayGenerate() *cobra.Command {
	var g generator
	names := mix.FormatNames()
	cmd := &cobra.Command{
		Use:   "generate MIX",
		Short: "Write a generated log, or add attacks to a log",
		Long: `Write the log of a mix: a file, or one of ` + strings.Join(mix.Names(), ", ") + `. It is the same each time.

With --over, write the requests of a log as JSON, add the attacks of the mix, and mark them with
the field attack: see docs/attacks.md.`,
		Example: `  edge replay generate attack --requests 1000 > access.log
  edge replay generate web --requests 10000 | edge replay accuracy -
  edge replay generate attack --over access.log > attacked.log`,
		Args: takes("one mix; --over adds its attacks to a log"),
		RunE: g.run,
	}
	own := []setting.Setting{
		{Name: "seed", Value: setting.Parsed("number", &g.seed, "", setting.Whole[uint64](0, math.MaxUint64)), Help: "seed to use instead of the mix's own"},
		{Name: "requests", Value: setting.Parsed("number", &g.requests, "", setting.Whole[uint64](1, math.MaxUint64)), Help: "stop after this `number` of requests"},
		{Name: "output-format", Value: setting.Parsed("format", &g.format, names[0], mix.ParseFormat), Help: strings.Join(names, ", "), Contradicts: "over"},
		{Name: "over", Value: setting.List(&g.over, nil), Help: "`files` of a log to which the attacks are added", Sample: "access.log"},
	}
	define(cmd.Flags(), append(own, append(g.in.settings("over"), progressSetting(&g.in.progress))...))
	return cmd
}

// A generator writes the log of a mix, or adds its attacks to other logs.
type generator struct {
	in       inputFlags
	seed     uint64
	requests uint64
	format   mix.Format
	over     []string
}

func (g *generator) run(cmd *cobra.Command, args []string) error {
	m, err := mix.Load(args[0], 0)
	if err != nil {
		return err
	}
	if cmd.Flags().Changed("seed") {
		m.Seed = g.seed
	}
	if cmd.Flags().Changed("requests") {
		m.Requests = g.requests
	}
	if len(g.over) > 0 {
		return g.lay(cmd.Context(), m, cmd.OutOrStdout(), cmd.ErrOrStderr())
	}
	_, err = mix.Write(cmd.OutOrStdout(), m, g.format)
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
	addrs        map[string]netip.Addr         // by client
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

// lay writes the logs of --over, with the attacks of m inserted.
func (g *generator) lay(ctx context.Context, m *mix.Mix, stdout, stderr io.Writer) error {
	if i := slices.IndexFunc(g.over, isPipe); i >= 0 {
		return fail("over", "write it to a file first", "%s can be read only once", g.over[i])
	}
	var o *overlay
	err := g.in.read(g.over, accesslog.All, nil, io.Discard, func(log *input) (err error) { // malformed lines are reported later
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
	log, err := g.in.open(g.over, accesslog.All, nil, stderr)
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
	return o, log.entries(ctx, func(e *accesslog.Entry) error {
		if len(o.clients) == 0 {
			o.began = e.Time
		}
		o.ended = e.Time
		for i, p := range overlaidProperties {
			o.has[i] = o.has[i] || hasProperty(e, p.name)
		}
		o.addr(e)
		return nil
	})
}

// addr returns the address of a client. It is generated if the log does not identify clients by address.
func (o *overlay) addr(e *accesslog.Entry) netip.Addr {
	a, known := o.addrs[e.Client]
	if !known {
		if a = e.Addr.Unmap().WithZone(""); !a.IsValid() {
			a = o.population.Next()
		}
		o.addrs[strings.Clone(e.Client)] = a
		o.clients = append(o.clients, a)
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
