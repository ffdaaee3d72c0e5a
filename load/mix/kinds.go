package mix

import (
	"slices"
	"strings"
	"time"

	"go.yaml.in/yaml/v4"

	"github.com/edgelimit/edge/internal/prose"
	"github.com/edgelimit/edge/internal/strictyaml"
)

// A kind is the behavior of a component.
type kind struct {
	name    string
	keys    string // names of its keys in files; ? marks one that is optional for this kind, but required for another
	attack  bool   // default
	request look   // defaults

	// aligned reports whether requests are aligned with limits' windows. Their times cannot be warped.
	aligned bool

	// check records errors in the values of n, and sets defaults that depend on them.
	check func(p *params, r *reader, n *yaml.Node)

	// generator returns a generator of the requests of l. It uses the clock, the end, the component and the stream of l.
	generator func(p *params, l *flow) generator
}

var kinds = []kind{
	{name: "steady", keys: "clients rate poisson", check: (*params).each, generator: (*params).steady},
	{name: "zipf", keys: "clients rate exponent offset", check: (*params).together, generator: (*params).zipf},
	{name: "pages", keys: "clients think load assets", check: (*params).checkPages, generator: (*params).pages},
	{name: "flash_crowd", keys: "clients rate ramp hold decay", check: (*params).checkFlashCrowd,
		generator: (*params).flashCrowd},
	{name: "boundary", keys: "clients requests period width every", attack: true, aligned: true,
		check: (*params).checkBoundary, generator: (*params).boundary},
	{name: "on_off", keys: "clients rate on off", attack: true, check: (*params).checkOnOff, generator: (*params).onOff},
	{name: "botnet", keys: "clients rate spread", attack: true, check: (*params).each, generator: (*params).botnet},
	{name: spread, keys: "clients rate requests? networks prefix shared", attack: true, check: (*params).together,
		generator: (*params).inOrder},
	{name: "guessing", keys: "clients rate", attack: true,
		request: look{methods: []string{"POST"}, paths: []string{"/login"}, status: 401},
		check:   (*params).each, generator: (*params).poissonian},
	{name: "random_keys", keys: "rate", attack: true, check: (*params).together, generator: (*params).inOrder},
}

// Kinds that need more than a generator.
const (
	spread = "spread"
	pages  = "pages"
)

func kindNames() []string { return prose.Texts(kinds, func(k kind) string { return k.name }) }

// params are the values of a kind's keys.
type params struct {
	clients uint64 // 0 if every request has a different one
	rate    rate   // of each client, or of all together

	poisson bool

	exponent, offset float64 // of the shares of clients

	think, load time.Duration // means
	assets      uint64        // mean

	ramp, hold, decay time.Duration

	requests      uint64 // of each client; 1 in a flood
	period, width time.Duration
	every         int64 // n, to burst at every nth window boundary

	on, off time.Duration

	spread float64 // maximum difference, as a fraction of the rate

	networks uint64
	prefix   int     // prefix length of the networks
	shared   float64 // fraction of networks that legitimate clients use as well
}

// usual holds the defaults of all keys, which also replace required values that are missing or invalid.
var usual = params{
	clients: 1, rate: rate{1, time.Second}, think: 30 * time.Second, load: 2 * time.Second, assets: 10,
	requests: 1, period: time.Minute, every: 2, on: time.Second, spread: 0.1, networks: 1, prefix: 24,
}

// A rate is n requests per duration.
type rate struct {
	n   uint64
	per time.Duration
}

// params reads the keys of a kind.
func (r *reader) params(n *yaml.Node, k *kind) *params {
	p := usual
	all := []strictyaml.Field{
		integer(r, "clients", "clients: 100, or another number", &p.clients, 1, maxClients),
		value(r, "rate", "rate: 50/1m", "write requests per duration, such as 50/1m or 2_000/s; the duration is at most 31d",
			&p.rate, parseRate),
		{Name: "poisson", Read: func(n *yaml.Node) { p.poisson = r.Boolean(n, "poisson", "write poisson: true") }},
		r.fraction("exponent", "exponent: 1.1", &p.exponent, 10),
		r.fraction("offset", "", &p.offset, 1e9),
		r.span("think", "", &p.think, time.Second, maxPer),
		r.span("load", "", &p.load, time.Millisecond, maxPer),
		integer(r, "assets", "", &p.assets, 0, 1000),
		r.span("ramp", "", &p.ramp, 0, maxPer),
		r.span("hold", "", &p.hold, 0, maxPer),
		r.span("decay", "", &p.decay, 0, maxPer),
		integer(r, "requests", "requests: 100, the number that each client sends around a boundary", &p.requests, 1, 1e6),
		r.span("period", "period: 1m, the length of the windows of the limit", &p.period, time.Second, maxPer),
		r.span("width", "", &p.width, time.Millisecond, maxPer),
		integer(r, "every", "", &p.every, 1, 1000),
		r.span("on", "on: 30s", &p.on, time.Millisecond, maxPer),
		r.span("off", "off: 5m", &p.off, 0, maxPer),
		r.fraction("spread", "", &p.spread, 0.9),
		integer(r, "networks", "networks: 200, the number of networks that the clients are in", &p.networks, 1, maxClients),
		integer(r, "prefix", "", &p.prefix, 8, 64),
		r.fraction("shared", "", &p.shared, 1),
	}
	var fields []strictyaml.Field
	for key := range strings.FieldsSeq(k.keys) {
		name, optional := strings.CutSuffix(key, "?")
		f := all[slices.IndexFunc(all, func(f strictyaml.Field) bool { return f.Name == name })]
		if optional {
			f.Need = ""
		}
		fields = append(fields, f)
	}
	if fields[0].Name != "clients" {
		p.clients = 0
	}
	r.Mapping(n, k.name, "", fields)
	k.check(&p, r, n)
	return &p
}

// bound records an error if the total rate of n clients is too high.
func (r *reader) bound(node *yaml.Node, rate rate, n uint64) {
	if float64(rate.n)*float64(n)/rate.per.Seconds() > maxRate {
		r.Fail(node, "at most 10 million a second", "this component has too many requests a second")
	}
}

func (p *params) each(r *reader, n *yaml.Node)     { r.bound(n, p.rate, p.clients) }
func (p *params) together(r *reader, n *yaml.Node) { r.bound(n, p.rate, 1) }

func (p *params) checkPages(r *reader, n *yaml.Node) {
	r.bound(n, rate{p.assets + 1, p.think + p.load}, p.clients)
}

func (p *params) checkFlashCrowd(r *reader, n *yaml.Node) {
	if p.ramp+p.hold+p.decay == 0 {
		r.Fail(n, "write ramp: 30s, hold: 2m and decay: 10m", "this crowd is empty: it has no ramp, hold or decay")
	}
	p.together(r, n)
}

func (p *params) checkBoundary(r *reader, n *yaml.Node) {
	if p.width == 0 {
		p.width = p.period / 10
	}
	if p.width > p.period*time.Duration(p.every) {
		r.Fail(n, "make width shorter", "the bursts of this component overlap")
	}
	if p.period*time.Duration(p.every) > maxDuration {
		r.Fail(n, "make period or every smaller", "there is more than a year between the bursts of this component")
	}
	r.bound(n, rate{p.requests, p.width}, p.clients)
}

func (p *params) checkOnOff(r *reader, n *yaml.Node) {
	if float64(p.rate.n)/p.rate.per.Seconds()*p.on.Seconds() > 1e9 {
		r.Fail(n, "use steady", "a client of this component sends more than a billion requests before it pauses")
	}
	p.each(r, n)
}
