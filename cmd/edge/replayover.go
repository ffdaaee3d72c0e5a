package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"strings"
	"time"

	"github.com/edgelimit/edge/analysis/accesslog"
	"github.com/edgelimit/edge/load/mix"
)

// An overlay lays the attacks of a mix over a log.
type overlay struct {
	attack *mix.Source
	mix    *mix.Mix
	next   mix.Request
	left   bool // next has yet to be written
	out    *json.Encoder

	// Known after the log was read for the first time.
	began, ended int64
	has          map[string]bool // properties of at least one request
	clients      []netip.Addr    // in the order of their first requests
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

const userAgent = "User-Agent"

// overlaidProperties are the properties of the attack's requests, unless no request of the log has them.
var overlaidProperties = []string{"method", "host", "path", "status", "header:" + userAgent}

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
	o := &overlay{has: map[string]bool{}, addrs: map[string]netip.Addr{}}
	known := map[netip.Addr]bool{}
	return o, log.entries(ctx, func(e *accesslog.Entry) error {
		if len(o.clients) == 0 {
			o.began = e.Time
		}
		o.ended = e.Time
		for _, name := range overlaidProperties {
			o.has[name] = o.has[name] || hasProperty(e, name)
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

// write writes a request of the log, after the attack's requests before it.
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

// writeAttack writes the requests of the attack before a time. It omits properties that no request of the
// log has: rules that use them would apply only to the attack.
func (o *overlay) writeAttack(before int64) error {
	for ; o.left && o.next.Time < before; o.left = o.attack.Next(&o.next) {
		line := overlaid{Client: o.mix.Addr(o.next.Client), Attack: true}
		if o.has["method"] {
			line.Method = o.next.Method
		}
		if o.has["host"] {
			line.Host = o.next.Host
		}
		if o.has["path"] {
			line.URI = o.next.Path
		}
		if o.has["status"] {
			line.Status = o.next.Status
		}
		if o.has["header:"+userAgent] {
			line.set(userAgent, o.next.Agent)
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
