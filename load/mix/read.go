package mix

import (
	"net/netip"
	"slices"
	"strings"
	"time"

	"go.yaml.in/yaml/v4"
)

// Bounds of values in files.
const (
	maxClients = 1 << 24 // of a component
	maxRate    = 1e7     // requests a second of a component
)

// A reader reads the file of a mix.
type reader struct {
	decoder
	mix    *Mix
	drafts []*draft
}

// A draft is a component as written in its file. The nodes are nil for missing keys.
type draft struct {
	component
	place     *yaml.Node
	word      kindWord
	kinds     int   // number of kinds
	attack    *bool // nil if missing
	request   look
	assets    []string
	assetsAt  *yaml.Node
	networks  []netip.Prefix
	addresses *yaml.Node
	clientsOf *yaml.Node
	since     *yaml.Node
	until     *yaml.Node
}

// Parse parses the file of a mix. Its error for an invalid file is an [Errors].
func Parse(file string, text []byte) (*Mix, error) {
	const start = 1767225600e6 // 2026-01-01T00:00:00Z
	r := &reader{decoder: decoder{file: file, text: text}, mix: &Mix{Seed: 1, start: start}}
	if root := r.parse(); root != nil {
		r.mapping(root, "the file", r.fileFields())
	}
	if len(r.errs) == 0 {
		r.complete()
	}
	if len(r.errs) > 0 {
		return nil, r.report()
	}
	for _, d := range r.drafts {
		r.mix.components = append(r.mix.components, d.component)
	}
	return r.mix, nil
}

// fileFields are the keys of a file.
func (r *reader) fileFields() []field {
	return []field{
		{"seed", "", func(n *yaml.Node) { r.mix.Seed = r.integer(n, "seed", 0, 1<<64-1) }},
		{"start", "", func(n *yaml.Node) { r.mix.start = r.time(n) }},
		{"duration", "duration: 10m, or how long the traffic is", func(n *yaml.Node) {
			r.mix.duration = r.duration(n, "duration", time.Second, maxDuration)
		}},
		{"requests", "", func(n *yaml.Node) { r.mix.Requests = r.integer(n, "requests", 1, 1<<63) }},
		{"components", `components: and a list of them, each with a name and one of ` + enumerate(kindNames(), "or"), func(n *yaml.Node) {
			for _, each := range r.sequence(n, "components", `begin every component with "- name:"`) {
				d := &draft{place: each}
				if r.mapping(each, "this component", r.componentFields(d)) {
					r.drafts = append(r.drafts, d)
				}
			}
		}},
	}
}

// componentFields are the keys of a component; they read into d.
func (r *reader) componentFields(d *draft) []field {
	fields := []field{
		{"name", "name: and a unique one, such as visitors", func(n *yaml.Node) { d.Name = r.name(n) }},
		{"attack", "", func(n *yaml.Node) { d.attack = new(r.boolean(n, "attack")) }},
		{"from", "", func(n *yaml.Node) { d.from, d.since = r.duration(n, "from", 0, maxDuration), n }},
		{"to", "", func(n *yaml.Node) { d.to, d.until = r.duration(n, "to", 0, maxDuration), n }},
		{"clients_of", "", func(n *yaml.Node) { d.clientsOf = n }},
		{"addresses", "", func(n *yaml.Node) { d.networks, d.addresses = r.networks(n), n }},
		{"diurnal", "", func(n *yaml.Node) {
			d.swing.period = 24 * time.Hour
			r.mapping(n, "diurnal", r.swingFields(&d.swing))
		}},
		{"request", "", func(n *yaml.Node) { r.mapping(n, "request", r.lookFields(d)) }},
	}
	for _, w := range kindWords {
		fields = append(fields, field{w.name, "", func(n *yaml.Node) {
			d.word, d.kind = w, w.read(r, n)
			d.kinds++
		}})
	}
	return fields
}

// time returns the time n, in microseconds since the epoch.
func (r *reader) time(n *yaml.Node) int64 {
	const hint = "write it as 2026-01-01T00:00:00Z, from 1970 to 2200"
	s, ok := r.scalar(n, "start", hint)
	if !ok {
		return 0
	}
	t, err := time.Parse(time.RFC3339, s)
	if err != nil || t.Unix() < 0 || t.Year() > 2200 {
		r.fail(n, hint, "start cannot be %s", quote(s))
		return 0
	}
	return t.UnixMicro()
}

func (r *reader) duration(n *yaml.Node, what string, low, high time.Duration) time.Duration {
	const hint = "write whole numbers with units, such as 250ms, 10s, 1h30m or 7d; at most 366d"
	s, ok := r.scalar(n, what, hint)
	if !ok {
		return low
	}
	d, ok := parseDuration(s)
	switch {
	case !ok:
		r.fail(n, hint, "%s cannot be %s", what, quote(s))
	case d < low || d > high:
		r.fail(n, "it is from "+formatDuration(low)+" to "+formatDuration(high), "%s cannot be %s", what, quote(s))
	default:
		return d
	}
	return low
}

func (r *reader) rate(n *yaml.Node, what string) rate {
	const hint = "write requests per duration, such as 50/1m or 2_000/s; the duration is at most 31d"
	s, ok := r.scalar(n, what, hint)
	if !ok {
		return rate{1, time.Second}
	}
	v, ok := parseRate(s)
	if !ok {
		r.fail(n, hint, "%s cannot be %s", what, quote(s))
		return rate{1, time.Second}
	}
	return v
}

func (r *reader) name(n *yaml.Node) string {
	s, ok := r.string(n, "name")
	if !ok {
		return ""
	}
	if s == "" || len(s) > 64 || strings.Trim(strings.ToLower(s), "abcdefghijklmnopqrstuvwxyz0123456789-_.") != "" {
		r.fail(n, "a name has 1 to 64 letters, digits, dots, hyphens and underscores", "name cannot be %s", quote(s))
	}
	if slices.ContainsFunc(r.drafts, func(d *draft) bool { return d.Name == s }) {
		r.fail(n, "names must be unique", "there is a component %s already", quote(s))
	}
	return s
}

func (r *reader) networks(n *yaml.Node) (list []netip.Prefix) {
	for _, each := range r.sequence(n, "addresses", "write a list: [192.0.2.0/24, 2001:db8::/48]") {
		s, ok := r.string(each, "a network")
		if !ok {
			continue
		}
		p, err := netip.ParsePrefix(s)
		switch {
		case err != nil || p.Addr().Is4In6():
			r.fail(each, "write a network such as 192.0.2.0/24 or 2001:db8::/48", "%s is not a network", quote(s))
		case p != p.Masked():
			r.fail(each, "write "+p.Masked().String(), "%s is an address inside of a network", quote(s))
		case p.Addr().Is6() && p.Bits() > 64:
			r.fail(each, "every client has its own /64, since limiters treat it as one client", "%s is smaller than a /64", quote(s))
		case p.Bits() < 8:
			r.fail(each, "write /8 or more", "%s is too large", quote(s))
		case slices.ContainsFunc(list, p.Overlaps):
			r.fail(each, "leave it out", "%s overlaps an earlier network", quote(s))
		default:
			list = append(list, p)
		}
	}
	return list
}

// swingFields are the keys of diurnal.
func (r *reader) swingFields(s *swing) []field {
	return []field{
		{"period", "", func(n *yaml.Node) { s.period = r.duration(n, "period", time.Minute, maxDuration) }},
		{"depth", "depth: 0.5, or how far the rate swings above and below its average", func(n *yaml.Node) {
			s.depth = r.fraction(n, "depth", 0, 1)
		}},
		{"peak", "", func(n *yaml.Node) { s.peak = r.duration(n, "peak", 0, maxDuration) }},
	}
}
