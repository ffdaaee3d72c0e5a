package mix

// The kinds of components in files.

import (
	"time"

	"go.yaml.in/yaml/v4"

	"github.com/edgelimit/edge/internal/strictyaml"
)

// A kindWord is the key of a kind in files.
type kindWord struct {
	name    string
	attack  bool        // default
	new     func() kind // with the defaults of its keys
	request look        // defaults
}

var kindWords = []kindWord{
	{"steady", false, func() kind { return &steady{members: lone} }, look{}},
	{"zipf", false, func() kind { return &zipf{together: together{lone}} }, look{}},
	{"pages", false, func() kind { return &pages{members: lone, think: 30 * time.Second, load: 2 * time.Second, assets: 10} }, look{}},
	{"flash_crowd", false, func() kind { return &flashCrowd{together: together{lone}} }, look{}},
	{"boundary", true, func() kind { return &boundary{members: lone, requests: 1, period: time.Minute, every: 2} }, look{}},
	{"on_off", true, func() kind { return &onOff{members: lone, on: time.Second} }, look{}},
	{"botnet", true, func() kind { return &botnet{members: lone, spread: 0.1} }, look{}},
	{"spread", true, func() kind { return &spread{together: together{lone}, requests: 1, networks: 1, prefix: 24} }, look{}},
	{"guessing", true, func() kind { return &guessing{steady{members: lone, poisson: true}} }, look{methods: []string{"POST"}, paths: []string{"/login"}, status: 401}},
	{"random_keys", true, func() kind { return &randomKeys{together{members{rate: lone.rate}}} }, look{}},
}

// lone replaces clients and a rate that are missing or invalid.
var lone = members{1, rate{1, time.Second}}

func kindNames() []string {
	list := make([]string, len(kindWords))
	for i, k := range kindWords {
		list[i] = k.name
	}
	return list
}

// kind reads the keys of a kind.
func (r *reader) kind(node *yaml.Node, word *kindWord) kind {
	k := word.new()
	r.Mapping(node, word.name, "", k.keys(r))
	k.check(r, node)
	return k
}

// bound records an error if the total rate of n clients is too high.
func (r *reader) bound(node *yaml.Node, rate rate, n uint64) {
	if float64(rate.n)*float64(n)/rate.per.Seconds() > maxRate {
		r.Fail(node, "at most 10 million a second", "this component has too many requests a second")
	}
}

func (m *members) keys(r *reader) []strictyaml.Field {
	return []strictyaml.Field{r.count(&m.n), r.rateOf(&m.rate)}
}

func (m *members) check(r *reader, node *yaml.Node) { r.bound(node, m.rate, m.n) }

func (t *together) check(r *reader, node *yaml.Node) { r.bound(node, t.rate, 1) }

func (k *steady) keys(r *reader) []strictyaml.Field {
	return append(k.members.keys(r), strictyaml.Field{Name: "poisson", Read: func(n *yaml.Node) {
		k.poisson = r.Boolean(n, "poisson", "write poisson: true")
	}})
}

func (k *guessing) keys(r *reader) []strictyaml.Field { return k.members.keys(r) }

func (k *zipf) keys(r *reader) []strictyaml.Field {
	return append(k.members.keys(r), r.fraction("exponent", "exponent: 1.1", &k.exponent, 10), r.fraction("offset", "", &k.offset, 1e9))
}

func (k *randomKeys) keys(r *reader) []strictyaml.Field {
	return []strictyaml.Field{r.rateOf(&k.rate)}
}

func (k *flashCrowd) keys(r *reader) []strictyaml.Field {
	return append(k.members.keys(r), r.span("ramp", "", &k.ramp, 0, maxPer), r.span("hold", "", &k.hold, 0, maxPer), r.span("decay", "", &k.decay, 0, maxPer))
}

func (k *flashCrowd) check(r *reader, node *yaml.Node) {
	if k.ramp+k.hold+k.decay == 0 {
		r.Fail(node, "write ramp: 30s, hold: 2m and decay: 10m", "this crowd is empty: it has no ramp, hold or decay")
	}
	k.together.check(r, node)
}

func (k *boundary) keys(r *reader) []strictyaml.Field {
	return []strictyaml.Field{
		r.count(&k.n),
		integer(r, "requests", "requests: 100, or how many each client sends around an edge", &k.requests, 1, 1e6),
		r.span("period", "period: 1m, or how long the windows of the limit are", &k.period, time.Second, maxPer),
		r.span("width", "", &k.width, time.Millisecond, maxPer),
		integer(r, "every", "", &k.every, 1, 1000),
	}
}

func (k *boundary) check(r *reader, node *yaml.Node) {
	if k.width == 0 {
		k.width = k.period / 10
	}
	if k.width > k.period*time.Duration(k.every) {
		r.Fail(node, "make width shorter", "the bursts of this component overlap")
	}
	if k.period*time.Duration(k.every) > maxDuration {
		r.Fail(node, "make period or every smaller", "there is more than a year between the bursts of this component")
	}
	r.bound(node, rate{k.requests, k.width}, k.n)
}

func (k *onOff) keys(r *reader) []strictyaml.Field {
	return append(k.members.keys(r), r.span("on", "on: 30s", &k.on, time.Millisecond, maxPer), r.span("off", "off: 5m", &k.off, 0, maxPer))
}

func (k *onOff) check(r *reader, node *yaml.Node) {
	if float64(k.rate.n)/k.rate.per.Seconds()*k.on.Seconds() > 1e9 {
		r.Fail(node, "use steady", "a client of this component sends more than a billion requests before it pauses")
	}
	k.members.check(r, node)
}

func (k *botnet) keys(r *reader) []strictyaml.Field {
	return append(k.members.keys(r), r.fraction("spread", "", &k.spread, 0.9))
}

func (k *pages) keys(r *reader) []strictyaml.Field {
	return []strictyaml.Field{
		r.count(&k.n), r.span("think", "", &k.think, time.Second, maxPer), r.span("load", "", &k.load, time.Millisecond, maxPer),
		integer(r, "assets", "", &k.assets, 0, 1000),
	}
}

func (k *pages) check(r *reader, node *yaml.Node) {
	r.bound(node, rate{k.assets + 1, k.think + k.load}, k.n)
}

func (k *spread) keys(r *reader) []strictyaml.Field {
	return append(k.members.keys(r),
		integer(r, "requests", "", &k.requests, 1, 1e6),
		integer(r, "networks", "networks: 200, or how many the clients are in", &k.networks, 1, maxClients),
		integer(r, "prefix", "", &k.prefix, 8, 64),
		r.fraction("shared", "", &k.shared, 1))
}
