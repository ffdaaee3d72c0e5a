package analysis

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/edgelimit/edge/analysis/accesslog"
	"github.com/edgelimit/edge/rule"
	rulefile "github.com/edgelimit/edge/rule/file"
)

// SweepOptions configures a Sweep. The zero value is usable.
type SweepOptions struct {
	// Thresholds and Periods are tried in all combinations. If empty, DefaultThresholds, and 10 s, 1 m, 10 m and 1 h.
	Thresholds []uint64
	Periods    []time.Duration

	// Characteristics are the lists of characteristics to try, each as in a rule. If empty, ip.
	Characteristics [][]rule.Characteristic

	// MaxClientsPct is the maximum share of clients, in percent, that a recommended threshold affects. If zero,
	// 0.1.
	MaxClientsPct float64

	// MitigationTimeout is the mitigation timeout of the rules. If zero, they throttle.
	MitigationTimeout time.Duration

	// Client is the part of an address that identifies a client. If zero, an IPv4 address or an IPv6 /64.
	Client rule.ClientPrefix

	ReportOptions
}

// DefaultThresholds returns the thresholds that a Sweep tries: 5, 10, 20, 50 … 1,000,000.
func DefaultThresholds() []uint64 {
	thresholds := []uint64{5}
	for n := uint64(10); n < 1e6; n *= 10 {
		thresholds = append(thresholds, n, 2*n, 5*n)
	}
	return append(thresholds, 1e6)
}

// ParseCharacteristics parses characteristics that are counted together, joined by plus
// signs: ip+path.
func ParseCharacteristics(text string) (list []rule.Characteristic, err error) {
	for word := range strings.SplitSeq(text, "+") {
		c, err := rulefile.ParseCharacteristic(word)
		if err != nil {
			return nil, err
		}
		list = append(list, c)
	}
	return list, checkCharacteristics(list)
}

func checkCharacteristics(list []rule.Characteristic) error {
	seen := map[string]bool{}
	for _, c := range list {
		if seen[c.String()] {
			return fmt.Errorf("analysis: the characteristic %s is given twice", c)
		}
		seen[c.String()] = true
	}
	if len(list) == 0 {
		return errors.New("analysis: empty list of characteristics")
	}
	return nil
}

func (o SweepOptions) withDefaults() (SweepOptions, error) {
	if len(o.Thresholds) == 0 {
		o.Thresholds = DefaultThresholds()
	}
	if len(o.Periods) == 0 {
		o.Periods = []time.Duration{10 * time.Second, time.Minute, 10 * time.Minute, time.Hour}
	}
	if len(o.Characteristics) == 0 {
		o.Characteristics = [][]rule.Characteristic{{{Kind: rule.IP}}}
	}
	o.Thresholds = slices.Compact(slices.Sorted(slices.Values(o.Thresholds)))
	o.Periods = slices.Compact(slices.Sorted(slices.Values(o.Periods)))
	for _, n := range o.Thresholds {
		if n == 0 || n > rule.MaxThreshold {
			return o, fmt.Errorf("analysis: invalid threshold %d: must be 1 to 2^53", n)
		}
	}
	for _, p := range o.Periods {
		if p < rule.MinPeriod || p > rule.MaxPeriod || p%time.Second != 0 {
			return o, fmt.Errorf("analysis: invalid period %v: must be whole seconds, 1 s to 7 days", p)
		}
	}
	seen := map[string]bool{}
	for _, list := range o.Characteristics {
		if err := checkCharacteristics(list); err != nil {
			return o, err
		}
		if seen[join(list)] {
			return o, fmt.Errorf("analysis: %s is given twice", join(list))
		}
		seen[join(list)] = true
	}
	if o.MitigationTimeout < 0 || o.MitigationTimeout > rule.MaxPeriod || o.MitigationTimeout%time.Second != 0 {
		return o, fmt.Errorf("analysis: invalid mitigation timeout %v: must be whole seconds, at most 7 days",
			o.MitigationTimeout)
	}
	if !(o.MaxClientsPct >= 0 && o.MaxClientsPct <= 100) {
		return o, fmt.Errorf("analysis: invalid percentage of clients %v: must be 0 to 100", o.MaxClientsPct)
	}
	o.MaxClientsPct = cmp.Or(o.MaxClientsPct, 0.1)
	return o, o.setDefaults()
}

// Fields returns the fields of entries that a Sweep needs.
func (o SweepOptions) Fields() accesslog.Fields {
	needs := accesslog.Addr
	for _, c := range slices.Concat(o.Characteristics...) {
		if c.Field() != "" {
			needs |= accesslog.Header
		} else if c.Kind.Text(&rule.Request{}) != nil {
			needs |= accesslog.Host | accesslog.Method | accesslog.Path
		}
	}
	return needs
}

// A Sweep tries a grid of thresholds, periods and characteristics on a log in one pass. Each cell of the grid
// is a separate rule with one limit, on one node that knows everything immediately: requests that pass are counted,
// a request that exceeds the threshold starts a mitigation, and requests until its end are refused. The methods
// of a Sweep must not be called concurrently. It runs goroutines from the first Add until Report.
//
// Memory depends on the number of clients, not of requests. Each client needs 16 bytes for its key and, for each
// period, another 16 bytes for two counters that all thresholds share. For each threshold that it exceeds, it needs
// two more counters.
type Sweep struct {
	o        SweepOptions
	player   *player
	grids    [][]*grid // of each owner of requests, one for each list of characteristics
	failed   atomic.Pointer[error]
	timeline TimelineCollector
}

// ticksOfSweep is the maximum number of ticks of a Sweep's timelines.
const ticksOfSweep = 1 << 11

// NewSweep returns a Sweep.
func NewSweep(o SweepOptions) (*Sweep, error) {
	o, err := o.withDefaults()
	if err != nil {
		return nil, err
	}
	s := &Sweep{o: o, timeline: TimelineCollector{max: ticksOfSweep}, player: newPlayer(o.Client, true, o.Characteristics)}
	s.player.done = func(r *replayedRequest) { s.timeline.Add(r.now, false) }
	for range s.player.owners {
		var grids []*grid
		for _, list := range o.Characteristics {
			grids = append(grids, newGrid(list, &s.o))
		}
		s.grids = append(s.grids, grids)
		converter := requests{fields: true}
		s.player.share(func(own []*replayedRequest) {
			for _, r := range own {
				req := converter.at(&r.entry, r.addr)
				req.Canonicalize(s.o.Client)
				for _, g := range grids {
					if err := g.add(r, req); err != nil {
						failed := err // on the heap only if there is an error
						s.failed.CompareAndSwap(nil, &failed)
					}
				}
			}
		})
	}
	return s, nil
}

// Add adds the next request of the log. Times must not decrease. Add does not retain e, but may retain its
// strings. The error may be that of an earlier request.
func (s *Sweep) Add(e *accesslog.Entry) error {
	p := s.player
	if p.n > 0 && e.Time < p.last {
		return fmt.Errorf("analysis: a request at %d µs comes after one at %d µs", e.Time, p.last)
	}
	if err := s.failed.Load(); err != nil {
		return *err
	}
	p.add(e)
	return nil
}
