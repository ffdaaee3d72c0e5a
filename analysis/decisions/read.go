// Package decisions replays the decision logs of the nodes of a PoP. It determines what other limits would
// have decided, and how often decisions were wrong because of the estimate or the lag of counting.
//
// # What is compared
//
// Each key has its own limiters, an exact one and an estimating one. They see the key's requests from
// all nodes in chronological order, and know immediately how much each counts, even if that depended on
// the answer. They ignore the nodes' decisions: a request that they refuse does not count (unless the
// rule has count_while_mitigated), and exceeding a limit starts a mitigation, which lasts until the rule's timeout
// is over and no limit is exceeded. The exact limiter keeps the time of every request
// and counts those in (t−P, t]; the other one estimates as nodes do.
//
// A decision is wrong if the exact limiter refuses the request and the node did not, or vice versa.
// The cause is the estimate if the estimating limiter decided as the node did, and lag otherwise.
//
// Requests that were refused for another key, because an operator started the mitigation by hand, or
// because a shard was unavailable, are not judged and do not count as decisions about the key. A lift
// resets the key. If a rule counts by the answer, how much a refused request would have counted is unknown: it
// counts as much as the rule says.
package decisions

import (
	"bufio"
	"bytes"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"time"

	"github.com/edgelimit/edge/analysis/accesslog"
	"github.com/edgelimit/edge/analysis/figure"
	"github.com/edgelimit/edge/counter"
	"github.com/edgelimit/edge/limit/decision"
	"github.com/edgelimit/edge/rule"
)

// A Log holds the merged logs of a PoP's nodes. Each decision takes 32 bytes.
type Log struct {
	read        Report         // filled in while reading: counts of lines
	first       *decision.Line // describes a node; secret, share and kind of keys are the same for all
	firstFile   string
	nodes       map[string]*NodeReport // by name
	definitions []*definition
	byText      map[string]uint32 // indexes in definitions
	begun       map[string]string // where a log begins, by node and time
	keys        map[counter.Key]uint32
	events      []event
	waiting     map[decisionID][]uint32 // events whose answer has not been counted yet
}

const maxSamples = 5 // of malformed lines

// A definition is a node's version of a rule.
type definition struct {
	*rule.Rule
	limits  string // description of the limits
	counts  string // description of the counted requests
	answers bool   // counts by the answer
}

// An event is a decision about a request, or a count without its decision.
type event struct {
	t          int64 // microseconds since the Unix epoch, by the PoP's clock
	cost       uint64
	key        uint32
	definition uint32
	generation uint32
	kind       kind
	mitigated  bool // whether the key was mitigated when the request arrived
	counted    bool // whether the node counted it
}

// A kind is what an event says about its key.
type kind uint8

const (
	decided          kind = iota // the decision depended on the key alone
	decidedOtherwise             // the request was refused for another key, or by hand
	unavailable                  // the request was refused because no shard was available
	countOnly                    // a count without its decision
)

// A decisionID identifies the decision that a count belongs to.
type decisionID struct {
	t    int64 // by the node's clock
	key  uint32
	node *NodeReport
}

// New returns an empty Log.
func New() *Log {
	return &Log{nodes: map[string]*NodeReport{}, byText: map[string]uint32{}, begun: map[string]string{},
		keys: map[counter.Key]uint32{}, waiting: map[decisionID][]uint32{}}
}

// IsLog reports whether a file that begins with head is a decision log.
func IsLog(head []byte) bool {
	rest, ok := bytes.CutPrefix(bytes.TrimLeft(head, "\r\n"), []byte(`{"event":"`))
	return ok && slices.ContainsFunc(
		[]string{decision.EventNode, decision.EventClock, decision.EventRule, decision.EventDecision,
			decision.EventCount, decision.EventMissing},
		func(event string) bool { return bytes.HasPrefix(rest, []byte(event+`"`)) })
}

// maxLine is the maximum length of a line, in bytes.
const maxLine = 1 << 20

// A reader reads a file into a Log.
type reader struct {
	*Log
	file  string
	line  int64
	node  *NodeReport    // nil before a line names it
	ahead int64          // current offset of the node's clock, in microseconds
	refs  map[int]uint32 // indexes in definitions, by the node's references
}

// Read adds a file to the log. Malformed lines are counted. Read returns an error if the file cannot
// be read or comes from another PoP.
func (l *Log) Read(file string, text io.Reader) error {
	r := &reader{Log: l, file: file}
	lines := bufio.NewReaderSize(text, maxLine)
	for {
		line, err := lines.ReadSlice('\n')
		r.line++
		if errors.Is(err, bufio.ErrBufferFull) {
			r.wrong("the line is too long")
			for errors.Is(err, bufio.ErrBufferFull) {
				_, err = lines.ReadSlice('\n')
			}
			line = nil
		}
		if errors.Is(err, io.EOF) {
			if len(line) > 0 {
				r.wrong("the file ends in the middle of the line")
			}
			return nil
		}
		if err != nil {
			return fmt.Errorf("reading %s: %w", file, err)
		}
		if len(bytes.TrimSpace(line)) == 0 {
			continue // a blank line, or one that is too long
		}
		if err := r.take(line); err != nil {
			return err
		}
	}
}

// wrong counts a malformed line.
func (r *reader) wrong(reason string) {
	r.read.Malformed++
	if len(r.read.Samples) < maxSamples {
		r.read.Samples = append(r.read.Samples, accesslog.Sample{File: r.file, Line: r.line, Reason: reason})
	}
}

func (r *reader) take(text []byte) error {
	var line decision.Line
	if err := json.Unmarshal(text, &line); err != nil {
		r.wrong("not a JSON object of a decision log")
		return nil
	}
	if line.Event == decision.EventNode {
		return r.begin(line)
	}
	if r.node == nil {
		r.wrong("no earlier line names the node")
		return nil
	}
	switch line.Event {
	case decision.EventClock:
		r.setAhead(line.AheadMicros)
	case decision.EventRule:
		r.define(&line)
	case decision.EventDecision, decision.EventCount:
		r.request(&line)
	case decision.EventMissing:
		r.read.Missing += uint64(max(0, line.Lines))
	default:
		r.wrong(fmt.Sprintf("unknown event %q", line.Event))
	}
	return nil
}

// begin reads the line that names the node of the lines after it.
func (r *reader) begin(line decision.Line) error {
	fail := func(format string, args ...any) error {
		return fmt.Errorf("%s:%d: %s", r.file, r.line, fmt.Sprintf(format, args...))
	}
	if line.Version != decision.Version {
		return fail("unsupported version %d of the decision log: this program reads version %d", line.Version,
			decision.Version)
	}
	if line.Node == "" {
		r.wrong("the line does not name its node")
		return nil
	}
	begins, here := fmt.Sprint(line.Time, " ", line.Node), fmt.Sprintf("%s:%d", r.file, r.line)
	if r.first == nil {
		r.first, r.firstFile = &line, here
	}
	switch first := r.first; {
	case line.Secret != first.Secret:
		return fail("node %s has a different secret from node %s in %s: these are logs of different PoPs", line.Node,
			first.Node, r.firstFile)
	case line.Clients != first.Clients:
		return fail("node %s logs with a different log_clients from node %s in %s: their keys cannot be matched", line.Node,
			first.Node, r.firstFile)
	case line.Share != first.Share:
		return fail("node %s logs %v of the keys, but node %s in %s logs %v: replay logs with the same share",
			line.Node, line.Share, first.Node, r.firstFile, first.Share)
	}
	if before := r.begun[begins]; before != "" {
		return fail("the lines of node %s from here on are also in %s: pass each log only once", line.Node, before)
	}
	r.begun[begins] = here
	from, n := figure.TimeOf(line.Time), r.nodes[line.Node]
	if n == nil {
		n = &NodeReport{Node: line.Node}
		r.nodes[line.Node] = n
	}
	if n.From.IsZero() || from.Before(n.From) {
		n.From, n.Rotated = from, line.Reason == decision.ReasonRotation
	}
	r.node, r.refs = n, map[int]uint32{}
	r.setAhead(line.AheadMicros)
	return nil
}

func (r *reader) setAhead(ahead int64) {
	r.ahead = ahead
	if ms := float64(ahead) / 1e3; math.Abs(ms) > math.Abs(r.node.AheadMS) {
		r.node.AheadMS = ms
	}
}

func (r *reader) define(line *decision.Line) {
	if line.Definition == nil || line.Rule == "" {
		r.wrong("the line does not define its rule")
		return
	}
	text, _ := json.Marshal(line.Definition)
	id := line.Rule + "\x00" + string(text)
	at, known := r.byText[id]
	if !known {
		d, err := definitionOf(line.Rule, line.Definition)
		if err != nil {
			r.wrong(err.Error())
			return
		}
		at = uint32(len(r.definitions))
		r.byText[id], r.definitions = at, append(r.definitions, d)
	}
	r.refs[line.Ref] = at
}

func definitionOf(id string, from *decision.Definition) (*definition, error) {
	seconds := func(s float64) time.Duration { return time.Duration(s * float64(time.Second)).Round(time.Microsecond) }
	d := &definition{Rule: &rule.Rule{ID: id, CountWhileMitigated: from.CountWhileMitigated},
		counts: from.Counts, answers: from.CountsAnswer}
	if from.Action == rule.Shed.String() {
		d.Action = rule.Shed
	}
	if !(from.MitigationTimeoutS >= 0 && from.MitigationTimeoutS <= rule.MaxPeriod.Seconds()) {
		return nil, errors.New("the rule's mitigation timeout is not between 0 and 7 days")
	}
	d.MitigationTimeout = seconds(from.MitigationTimeoutS)
	for _, l := range from.Limits {
		estimate := slices.Index(counter.KindNames(), l.Estimate)
		layout, ok := counter.LayoutOf(max(1, l.SubWindows))
		switch {
		case !ok || l.Threshold == 0 || l.Threshold > min(rule.MaxThreshold, layout.MaxThreshold()), estimate < 0,
			!(l.PeriodS >= rule.MinPeriod.Seconds() && l.PeriodS <= rule.MaxPeriod.Seconds()),
			l.PeriodS != float64(int64(l.PeriodS)):
			return nil, errors.New("the rule has an invalid limit")
		}
		limit := rule.Limit{Threshold: l.Threshold, Period: seconds(l.PeriodS), SubWindows: l.SubWindows,
			Estimate: counter.Kind(estimate)}
		if slices.ContainsFunc(d.Limits, func(other rule.Limit) bool { return other.Period == limit.Period }) {
			return nil, errors.New("the rule has two limits with the same period")
		}
		d.Limits = append(d.Limits, limit)
	}
	if len(d.Limits) == 0 {
		return nil, errors.New("the rule has no limits")
	}
	d.limits = limitsText(d.Rule)
	return d, nil
}

func (r *reader) request(line *decision.Line) {
	at, known := r.refs[line.Ref]
	var key counter.Key
	n, err := hex.Decode(key[:], []byte(line.Key[:min(len(line.Key), 2*len(key))]))
	switch {
	case !known || r.definitions[at].ID != line.Rule:
		r.wrong("no earlier line defines its rule")
		return
	case err != nil || n != len(key) || len(line.Key) != 2*len(key):
		r.wrong("the key is not 32 hexadecimal digits")
		return
	case line.Time <= 0 || line.Time > maxTime:
		r.wrong("the time is not between 1970 and 2255: the node's clock was probably not set")
		return
	case line.Cost > rule.MaxThreshold:
		r.wrong("the cost is out of range")
		return
	}
	number, known := r.keys[key]
	if !known {
		number = uint32(len(r.keys))
		r.keys[key] = number
	}
	r.node.Lines++
	d := r.definitions[at]
	e := event{t: line.Time - r.ahead, cost: line.Cost, key: number, definition: at, generation: line.Generation}
	if line.Event == decision.EventCount {
		at := decisionID{line.Decided, number, r.node}
		if list := r.waiting[at]; len(list) > 0 {
			answered := &r.events[list[0]]
			answered.cost, answered.counted = answered.cost+line.Cost, true // line.Cost is beyond the reserve
			r.waiting[at] = list[1:]
			if len(list) == 1 {
				delete(r.waiting, at)
			}
			return
		}
		r.read.Unpaired++
		e.kind, e.counted = countOnly, true
	} else {
		e.mitigated, e.counted = line.Mitigated, line.Counted
		switch {
		case line.Other || line.ByHand:
			e.kind = decidedOtherwise
		case line.Verdict == "unavailable":
			e.kind = unavailable
		case d.answers && !e.mitigated:
			if !line.Counted {
				e.cost = 0 // until a line reports the count
			}
			at := decisionID{line.Time, number, r.node}
			r.waiting[at] = append(r.waiting[at], uint32(len(r.events)))
		}
	}
	r.events = append(r.events, e)
}

const maxTime = 1 << 53 // exact in JSON; the year 2255
