package mix

import (
	"errors"
	"fmt"
	"io"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/edgelimit/edge/analysis/accesslog"
)

// An Overlay adds the attacks of a mix to a log, and writes both as lines of JSON, which mark the attacks. It needs the
// entries of the log twice, in order: all of them for Survey, and then, after Begin, for Add. Call End last.
//
// Attack requests have only the properties that at least one entry has: rules that use other properties would apply
// only to the attacks.
type Overlay struct {
	began, ended              int64 // times of the first and the last entry of the log
	method, host, path, agent bool  // whether an entry has it
	status                    bool
	clients                   []netip.Addr          // in the order of their first requests
	addrs                     map[string]netip.Addr // by client
	population                Population

	mix    *Mix
	attack *Source
	next   Request
	left   bool // next has yet to be written
	out    *accesslog.Writer
}

// NewOverlay returns an Overlay that writes to w.
func NewOverlay(w io.Writer) *Overlay {
	return &Overlay{addrs: map[string]netip.Addr{}, out: accesslog.NewWriter(w)}
}

// Survey collects the clients of the log and the properties that its entries have. It never fails.
func (o *Overlay) Survey(e *accesslog.Entry) error {
	if len(o.clients) == 0 {
		o.began = e.Time
	}
	o.ended = e.Time
	o.method, o.host, o.path = o.method || e.Method != "", o.host || e.Host != "", o.path || e.Path != ""
	o.status = o.status || e.Status != 0
	o.agent = o.agent || slices.ContainsFunc(e.Header,
		func(f accesslog.Field) bool { return strings.EqualFold(f.Name, "User-Agent") })
	o.addr(e)
	return nil
}

// Begin sets the mix, and reports whether the first attack begins after the end of the log.
func (o *Overlay) Begin(m *Mix) (late bool, err error) {
	if o.mix, err = m.Over(time.UnixMicro(o.began), o.clients); err != nil {
		return false, err
	}
	o.attack = o.mix.Source()
	o.left = o.attack.Next(&o.next)
	return o.left && o.next.Time > o.ended, nil
}

// Add writes an entry of the log, after the attacks' earlier requests.
func (o *Overlay) Add(e *accesslog.Entry) error {
	return errors.Join(o.writeAttacks(e.Time), o.write(e, o.addr(e)))
}

// End writes the attacks' remaining requests.
func (o *Overlay) End() error {
	return errors.Join(o.writeAttacks(1<<63-1), o.out.Flush())
}

// addr returns the address of a client. It is generated if the log does not identify clients by address.
func (o *Overlay) addr(e *accesslog.Entry) netip.Addr {
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

// writeAttacks writes the requests of the attacks before a time.
func (o *Overlay) writeAttacks(before int64) error {
	for ; o.left && o.next.Time < before; o.left = o.attack.Next(&o.next) {
		e := accesslog.Entry{Time: o.next.Time, Attack: true}
		if o.method {
			e.Method = o.next.Method
		}
		if o.host {
			e.Host = o.next.Host
		}
		if o.path {
			e.Path = o.next.Path
		}
		if o.status {
			e.Status = o.next.Status
		}
		if o.agent {
			e.Header = []accesslog.Field{{Name: "User-Agent", Value: o.next.Agent}}
		}
		if err := o.write(&e, o.mix.Addr(o.next.Client)); err != nil {
			return err
		}
	}
	return nil
}

// write writes an entry, with the address of a client.
func (o *Overlay) write(e *accesslog.Entry, client netip.Addr) error {
	line := *e
	line.Addr = client
	if err := o.out.Write(&line); err != nil {
		return fmt.Errorf("mix: writing the log: %w", err)
	}
	return nil
}
