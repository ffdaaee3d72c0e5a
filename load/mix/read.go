package mix

import (
	"fmt"
	"net/netip"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v4"

	"github.com/edgelimit/edge/internal/prose"
	"github.com/edgelimit/edge/internal/strictyaml"
)

// Bounds of values in files.
const (
	maxClients  = 1 << 24              // of a component
	maxRate     = 1e7                  // requests a second of a component
	maxDuration = 366 * 24 * time.Hour // so that ticks do not overflow
	maxPer      = 31 * 24 * time.Hour  // of a rate
)

// A reader reads the file of a mix.
type reader struct {
	*strictyaml.Document
	mix       *Mix
	addresses uint64 // selects the addresses of clients
	drafts    []*draft
}

// A draft is a component as written in its file.
type draft struct {
	component
	place   *yaml.Node
	nodes   map[string]*yaml.Node // values of the component's and its request's keys
	kinds   int                   // number of kinds
	request look
	assets  []string
}

// Parse parses the file of a mix. Its error for an invalid file is a [strictyaml.Errors].
func Parse(file string, text []byte) (*Mix, error) { return parse(file, text, 0) }

func parse(file string, text []byte, addresses uint64) (*Mix, error) {
	const start = 1767225600e6 // 2026-01-01T00:00:00Z
	r := &reader{Document: strictyaml.New(file, text), mix: &Mix{Seed: 1, start: start}, addresses: addresses}
	r.Read("", `begin it with the lines "duration: 10m" and "components:"`, r.fileFields())
	if len(r.Errs) == 0 {
		r.complete()
	}
	if err := r.Err(); err != nil {
		return nil, err
	}
	for _, d := range r.drafts {
		r.mix.components = append(r.mix.components, d.component)
	}
	return r.mix, nil
}

// fileFields returns the keys of a file.
func (r *reader) fileFields() []strictyaml.Field {
	return []strictyaml.Field{
		integer(r, "seed", "", &r.mix.Seed, 0, 1<<64-1),
		value(r, "start", "", "write it as 2026-01-01T00:00:00Z, from 1970 to 2200", &r.mix.start, parseTime),
		r.span("duration", "duration: 10m, the length of the traffic", &r.mix.duration, time.Second, maxDuration),
		integer(r, "requests", "", &r.mix.Requests, 1, 1<<63),
		{Name: "components", Need: `components: and a list of them, each with a name and one of ` +
			prose.EnumerateAll(kindNames(), "or"), Read: func(n *yaml.Node) {
			for _, item := range r.Sequence(n, "components", `begin every component with "- name:"`, "") {
				d := &draft{place: item, nodes: map[string]*yaml.Node{}}
				if r.Mapping(item, "this component", "", r.componentFields(d)) {
					r.drafts = append(r.drafts, d)
				}
			}
		}},
	}
}

// componentFields returns the keys of a component; they read into d.
func (r *reader) componentFields(d *draft) []strictyaml.Field {
	fields := []strictyaml.Field{
		{Name: "name", Need: "name: and a unique name, such as visitors", Read: func(n *yaml.Node) { d.Name = r.name(n) }},
		{Name: "attack", Read: func(n *yaml.Node) { d.Attack = r.Boolean(n, "attack", "write attack: true") }},
		r.span("from", "", &d.from, 0, maxDuration),
		r.span("to", "", &d.to, 0, maxDuration),
		{Name: "addresses", Read: func(n *yaml.Node) { d.networks = r.networks(n) }},
		{Name: "diurnal", Read: func(n *yaml.Node) {
			d.swing.period = 24 * time.Hour
			r.Mapping(n, "diurnal", "", []strictyaml.Field{
				r.span("period", "", &d.swing.period, time.Minute, maxDuration),
				r.fraction("depth", "depth: 0.5, how far the rate swings above and below its average", &d.swing.depth, 1),
				r.span("peak", "", &d.swing.peak, 0, maxDuration),
			})
		}},
		{Name: "request", Read: func(n *yaml.Node) { r.Mapping(n, "request", "", r.lookFields(d)) }},
	}
	for i := range kinds {
		k := &kinds[i]
		fields = append(fields, strictyaml.Field{Name: k.name, Read: func(n *yaml.Node) {
			d.kind, d.params = k, r.params(n, k)
			d.kinds++
		}})
	}
	return d.noted(fields)
}

// noted returns fields, which also keep the nodes of their values.
func (d *draft) noted(fields []strictyaml.Field) []strictyaml.Field {
	for i, f := range fields {
		fields[i].Read = func(n *yaml.Node) {
			d.nodes[f.Name] = n
			f.Read(n)
		}
	}
	return fields
}

// value returns the key of a single value. It reads the value into to, which remains as it is after an error. hint says
// how to write the value, and need how to write the key if it is required.
func value[T any](r *reader, name, need, hint string, to *T, parse func(string) (T, bool)) strictyaml.Field {
	return strictyaml.Field{Name: name, Need: need, Read: func(n *yaml.Node) {
		s, ok := strictyaml.Scalar(n)
		if !ok || s == "" {
			r.Fail(n, hint, "%s is %s", name, strictyaml.KindOf(n))
		} else if v, ok := parse(s); ok {
			*to = v
		} else {
			r.Fail(n, hint, "%s cannot be %s", name, prose.Quote(s))
		}
	}}
}

// span returns the key of a duration from low to high.
func (r *reader) span(name, need string, to *time.Duration, low, high time.Duration) strictyaml.Field {
	const hint = "write whole numbers with units, such as 250ms, 10s, 1h30m or 7d; at most 366d"
	return strictyaml.Field{Name: name, Need: need, Read: func(n *yaml.Node) {
		parsed := low
		value(r, name, "", hint, &parsed, parseDuration).Read(n)
		if parsed < low || parsed > high {
			r.Fail(n, "must be from "+prose.Duration(low)+" to "+prose.Duration(high), "%s cannot be %q", name, n.Value)
			parsed = low
		}
		*to = parsed
	}}
}

// integer returns the key of an integer from low to high, whose digits may be grouped by underscores.
func integer[T int | int64 | uint64](r *reader, name, need string, to *T, low, high uint64) strictyaml.Field {
	hint := fmt.Sprintf("write a whole number from %d to %d", low, high)
	return value(r, name, need, hint, to, func(s string) (T, bool) {
		v, ok := digits(s)
		return T(v), ok && low <= v && v <= high
	})
}

// fraction returns the key of a decimal number from 0 to high.
func (r *reader) fraction(name, need string, to *float64, high float64) strictyaml.Field {
	hint := "write a number from 0 to " + strconv.FormatFloat(high, 'f', -1, 64)
	return value(r, name, need, hint, to, func(s string) (float64, bool) {
		v, err := strconv.ParseFloat(s, 64)
		return v, err == nil && strings.Trim(s, "0123456789.") == "" && v <= high
	})
}

var validName = regexp.MustCompile(`^[\w.-]{1,64}$`)

func (r *reader) name(n *yaml.Node) string {
	s, ok := r.Text(n, "name")
	if !ok {
		return ""
	}
	if !validName.MatchString(s) {
		r.Fail(n, "must be 1 to 64 letters, digits, dots, hyphens and underscores", "name cannot be %s", prose.Quote(s))
	}
	if slices.ContainsFunc(r.drafts, func(d *draft) bool { return d.Name == s }) {
		r.Fail(n, "names must be unique", "component %s already exists", prose.Quote(s))
	}
	return s
}

func (r *reader) networks(n *yaml.Node) (list []netip.Prefix) {
	for _, item := range r.Sequence(n, "addresses", "write a list: [192.0.2.0/24, 2001:db8::/48]", "") {
		s, ok := r.Text(item, "a network")
		if !ok {
			continue
		}
		p, err := netip.ParsePrefix(s)
		switch {
		case err != nil || p.Addr().Is4In6():
			r.Fail(item, "write a network such as 192.0.2.0/24 or 2001:db8::/48", "%s is not a network", prose.Quote(s))
		case p != p.Masked():
			r.Fail(item, "write "+p.Masked().String(), "%s is an address within a network", prose.Quote(s))
		case p.Addr().Is6() && p.Bits() > 64:
			r.Fail(item, "every client has its own /64, since limiters treat it as one client", "%s is smaller than a /64",
				prose.Quote(s))
		case p.Bits() < 8:
			r.Fail(item, "write /8 or longer", "%s is too large", prose.Quote(s))
		case slices.ContainsFunc(list, p.Overlaps):
			r.Fail(item, "leave it out", "%s overlaps an earlier network", prose.Quote(s))
		default:
			list = append(list, p)
		}
	}
	return list
}

// parseTime parses a time and returns it in microseconds since the epoch.
func parseTime(s string) (int64, bool) {
	t, err := time.Parse(time.RFC3339, s)
	return t.UnixMicro(), err == nil && t.Unix() >= 0 && t.Year() <= 2200
}

// parseDuration parses a duration of milliseconds and larger units.
func parseDuration(s string) (time.Duration, bool) {
	d, err := prose.ParseDuration(s, time.Millisecond)
	return d, err == nil && d <= maxDuration
}

// parseRate parses a number of requests, a slash, and a duration, whose number may be omitted if it
// is 1: 50/1m, 50/m, 2_000/s.
func parseRate(s string) (rate, bool) {
	left, right, _ := strings.Cut(s, "/")
	n, ok := digits(left)
	if right != "" && (right[0] < '0' || right[0] > '9') {
		right = "1" + right
	}
	per, valid := parseDuration(right)
	return rate{n, per}, ok && valid && n > 0 && n <= 1e9 && per > 0 && per <= maxPer
}

// digits parses an integer in decimal digits.
func digits(s string) (uint64, bool) {
	plain := strings.ReplaceAll(s, "_", "")
	v, err := strconv.ParseUint(plain, 10, 64)
	return v, err == nil && s[0] != '_' && (plain == "0" || plain[0] != '0')
}
