package accuracy

import (
	"errors"
	"fmt"
	"math"
	"reflect"
	"slices"
	"strings"

	"github.com/edgelimit/edge/analysis/figure"
)

// A Share is the Nth of Of parts of a log's clients. Clients are dealt out in the order in which they first appear,
// so each is in exactly one part, whichever machine reads the log. The zero value is all clients.
type Share struct{ N, Of uint32 } // N is from 1 to Of

const maxParts = 1 << 16

// ParseShare parses a Share such as 3/16.
func ParseShare(text string) (s Share, err error) {
	if _, err := fmt.Sscanf(text, "%d/%d", &s.N, &s.Of); err != nil || s.String() != text {
		return s, errors.New("must be a number, a slash and the number of parts, such as 3/16")
	}
	if s.Of < 1 || s.Of > maxParts {
		return s, fmt.Errorf("the number of parts must be 1 to %d", maxParts)
	}
	if s.N < 1 || s.N > s.Of {
		return s, fmt.Errorf("must be 1/%d to %d/%d", s.Of, s.Of, s.Of)
	}
	return s, nil
}

// String formats s for ParseShare.
func (s Share) String() string { return fmt.Sprintf("%d/%d", s.N, s.Of) }

// MarshalText formats s for ParseShare.
func (s Share) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// UnmarshalText parses s.
func (s *Share) UnmarshalText(text []byte) (err error) {
	*s, err = ParseShare(string(text))
	return err
}

// A Part has the results of a share of the clients. The Parts of all shares can be merged.
type Part struct {
	Share    Share   `json:"part"`
	Settings Options `json:"settings"` // without Workers and Share
	Input            // the whole log, with the requests of all clients

	// Traffic is the timeline of the whole log. Callers that want it in the report's document set it.
	Traffic figure.Timeline `json:"traffic"`

	Sums []groupSums `json:"sums"` // of each period
}

// Part returns the results for the clients of Options.Share and stops a's goroutines. It must be called
// once, after all requests have been added.
func (a *Accuracy) Part() *Part {
	a.start()
	a.spread()
	for _, w := range a.workers {
		w.full <- w.next
		close(w.full)
	}
	a.running.Wait()
	p := &Part{Share: a.o.Share, Settings: a.o, Sums: newSums(a.groups)}
	p.Settings.Share, p.Settings.Workers = Share{}, 0
	p.Input = Input{a.events, int(a.clients.Len()), figure.TimeOf(a.first), figure.TimeOf(a.last), a.normal.finish()}
	for _, w := range a.workers {
		for g := range w.groups {
			p.Sums[g].add(&w.groups[g].sums)
		}
	}
	return p
}

// Merge returns the report that a single Accuracy would have returned for all clients.
func Merge(parts []*Part) (*Report, error) {
	if len(parts) == 0 {
		return nil, errors.New("accuracy: no parts to merge")
	}
	first := parts[0]
	a, err := New(first.Settings)
	if err != nil {
		return nil, err
	}
	sums := newSums(a.groups)
	given := make([]bool, first.Share.Of)
	for _, p := range parts {
		switch {
		case p.Share.Of != first.Share.Of:
			err = fmt.Errorf("accuracy: parts %v and %v do not belong together", first.Share, p.Share)
		case given[p.Share.N-1]:
			err = fmt.Errorf("accuracy: part %v is given twice", p.Share)
		case p.NormalizedSHA256 != first.NormalizedSHA256:
			err = fmt.Errorf("accuracy: parts %v and %v come from different logs", first.Share, p.Share)
		case !reflect.DeepEqual(p.Settings, first.Settings):
			err = fmt.Errorf("accuracy: parts %v and %v have different settings", first.Share, p.Share)
		case !slices.EqualFunc(sums, p.Sums, groupSums.fits):
			err = fmt.Errorf("accuracy: part %v is damaged", p.Share)
		}
		if err != nil {
			return nil, err
		}
		given[p.Share.N-1] = true
		for i := range sums {
			sums[i].add(&p.Sums[i])
		}
	}
	var missing []string
	for i, ok := range given {
		if !ok {
			missing = append(missing, Share{uint32(i) + 1, first.Share.Of}.String())
		}
	}
	if missing != nil {
		return nil, fmt.Errorf("accuracy: missing parts: %s", strings.Join(missing, ", "))
	}
	return a.report(first.Input, sums), nil
}

// groupSums are the results of a group for some of the clients. They are integers, so that they can be added in any
// order.
type groupSums struct {
	Logged      uint64      `json:"logged"` // bytes of all exact logs at their peaks
	Limits      []limitSums `json:"limits"`
	Evaluations []errorSums `json:"evaluations"`
}

// limitSums are the results of a limit that are independent of estimators.
type limitSums struct {
	Over    uint64       `json:"over"`    // requests over in the exact log
	Near    uint64       `json:"near"`    // requests whose exact count is between half and twice the threshold
	Clients int          `json:"clients"` // over in the exact log
	Peaks   figure.Peaks `json:"peaks"`
}

// errorSums are the results of an evaluation. Relative errors are in units of 2^−32.
type errorSums struct {
	Signed       int64       `json:"signed"`        // sum of signed relative errors
	Errors       uint64      `json:"errors"`        // sum of their absolute values
	OfClients    uint64      `json:"of_clients"`    // sum of the means over each client's requests
	Partly       uint64      `json:"partly"`        // requests whose estimate has a weighted part
	PartlyErrors uint64      `json:"partly_errors"` // sum of their relative errors
	Limits       []decisions `json:"limits"`
}

// decisions are the results of decisions about one limit.
type decisions struct {
	Over           uint64 `json:"over"`
	WronglyAllowed uint64 `json:"wrongly_allowed"`
	WronglyLimited uint64 `json:"wrongly_limited"`
	Worst          uint64 `json:"worst"` // greatest exact count that was wrongly allowed

	Differ     int    `json:"differ"`      // clients with a wrong decision
	Missed     int    `json:"missed"`      // clients over, but never by the estimate
	MissedPeak uint64 `json:"missed_peak"` // greatest of their peaks
	Limited    int    `json:"limited"`     // clients over by the estimate only
	Lowest     uint64 `json:"lowest"`      // smallest of their peaks
}

func newSums(groups []group) (all []groupSums) {
	for _, g := range groups {
		all = append(all, newGroupSums(g))
	}
	return all
}

func newGroupSums(g group) groupSums {
	s := groupSums{Limits: make([]limitSums, len(g.limits)), Evaluations: make([]errorSums, len(g.evaluations))}
	for i, l := range g.limits {
		s.Limits[i].Peaks = figure.NewPeaks(l.Threshold)
	}
	for i := range s.Evaluations {
		s.Evaluations[i].Limits = slices.Repeat([]decisions{{Lowest: math.MaxUint64}}, len(g.limits))
	}
	return s
}

// fits reports whether o can be added to s.
func (s groupSums) fits(o groupSums) bool {
	return slices.EqualFunc(s.Limits, o.Limits, func(a, b limitSums) bool { return len(a.Peaks) == len(b.Peaks) }) &&
		slices.EqualFunc(s.Evaluations, o.Evaluations, func(a, b errorSums) bool { return len(a.Limits) == len(b.Limits) })
}

// add adds o, the sums of other clients.
func (s *groupSums) add(o *groupSums) {
	s.Logged += o.Logged
	for i := range s.Limits {
		a, b := &s.Limits[i], &o.Limits[i]
		a.Over, a.Near, a.Clients = a.Over+b.Over, a.Near+b.Near, a.Clients+b.Clients
		for j := range a.Peaks {
			a.Peaks[j].Clients += b.Peaks[j].Clients
		}
	}
	for i := range s.Evaluations {
		a, b := &s.Evaluations[i], &o.Evaluations[i]
		a.Signed, a.Errors, a.OfClients = a.Signed+b.Signed, a.Errors+b.Errors, a.OfClients+b.OfClients
		a.Partly, a.PartlyErrors = a.Partly+b.Partly, a.PartlyErrors+b.PartlyErrors
		for j := range a.Limits {
			a.Limits[j].add(&b.Limits[j])
		}
	}
}

func (d *decisions) add(o *decisions) {
	d.Over += o.Over
	d.WronglyAllowed, d.WronglyLimited = d.WronglyAllowed+o.WronglyAllowed, d.WronglyLimited+o.WronglyLimited
	d.Worst = max(d.Worst, o.Worst)
	d.Differ, d.Missed, d.Limited = d.Differ+o.Differ, d.Missed+o.Missed, d.Limited+o.Limited
	d.MissedPeak, d.Lowest = max(d.MissedPeak, o.MissedPeak), min(d.Lowest, o.Lowest)
}
