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
	attack  bool // default
	read    func(r *reader, n *yaml.Node) kind
	request look // defaults
}

var kindWords = []kindWord{
	{"steady", false, readSteady, look{}},
	{"zipf", false, readZipf, look{}},
	{"pages", false, readPages, look{}},
	{"flash_crowd", false, readFlashCrowd, look{}},
	{"boundary", true, readBoundary, look{}},
	{"on_off", true, readOnOff, look{}},
	{"botnet", true, readBotnet, look{}},
	{"spread", true, readSpread, look{}},
	{"guessing", true, readGuessing, look{methods: []string{"POST"}, paths: []string{"/login"}, status: 401}},
	{"random_keys", true, readRandomKeys, look{}},
}

func kindNames() []string {
	list := make([]string, len(kindWords))
	for i, k := range kindWords {
		list[i] = k.name
	}
	return list
}

// count returns the key of a number of clients.
func (r *reader) count(n *uint64) strictyaml.Field {
	return strictyaml.Field{Name: "clients", Need: "clients: 100, or how many there are", Read: func(node *yaml.Node) {
		*n = r.integer(node, "clients", 1, maxClients)
	}}
}

// rateOf returns the key of a rate.
func (r *reader) rateOf(name string, rate *rate) strictyaml.Field {
	return strictyaml.Field{Name: name, Need: name + ": 50/1m", Read: func(node *yaml.Node) { *rate = r.rate(node, name) }}
}

// span returns the key of a duration of at least low.
func (r *reader) span(name, need string, d *time.Duration, low time.Duration) strictyaml.Field {
	return strictyaml.Field{Name: name, Need: need, Read: func(node *yaml.Node) { *d = r.duration(node, name, low, maxPer) }}
}

// bound records an error if n clients at a rate are too much.
func (r *reader) bound(node *yaml.Node, rate rate, n uint64) {
	if float64(rate.n)*float64(n)/rate.per.Seconds() > maxRate {
		r.Fail(node, "at most 10 million a second", "this component has too many requests a second")
	}
}

func readSteady(r *reader, node *yaml.Node) kind {
	k := &steady{members: members{1}, each: rate{1, time.Second}}
	r.Mapping(node, "steady", "", []strictyaml.Field{r.count(&k.n), r.rateOf("rate", &k.each),
		{Name: "poisson", Read: func(n *yaml.Node) { k.poisson = r.Boolean(n, "poisson", "write poisson: true") }}})
	r.bound(node, k.each, k.n)
	return k
}

func readGuessing(r *reader, node *yaml.Node) kind {
	k := &steady{members: members{1}, each: rate{1, time.Second}, poisson: true}
	r.Mapping(node, "guessing", "", []strictyaml.Field{r.count(&k.n), r.rateOf("rate", &k.each)})
	r.bound(node, k.each, k.n)
	return k
}

func readZipf(r *reader, node *yaml.Node) kind {
	k := &zipf{members: members{1}, total: rate{1, time.Second}}
	r.Mapping(node, "zipf", "", []strictyaml.Field{r.count(&k.n), r.rateOf("rate", &k.total),
		{Name: "exponent", Need: "exponent: 1.1", Read: func(n *yaml.Node) { k.exponent = r.fraction(n, "exponent", 0, 10) }},
		{Name: "offset", Read: func(n *yaml.Node) { k.offset = r.fraction(n, "offset", 0, 1e9) }}})
	r.bound(node, k.total, 1)
	return k
}

func readRandomKeys(r *reader, node *yaml.Node) kind {
	k := &randomKeys{total: rate{1, time.Second}}
	r.Mapping(node, "random_keys", "", []strictyaml.Field{r.rateOf("rate", &k.total)})
	r.bound(node, k.total, 1)
	return k
}

func readFlashCrowd(r *reader, node *yaml.Node) kind {
	k := &flashCrowd{members: members{1}, peak: rate{1, time.Second}}
	var ramp, hold, decay time.Duration
	r.Mapping(node, "flash_crowd", "", []strictyaml.Field{r.count(&k.n), r.rateOf("rate", &k.peak),
		r.span("ramp", "", &ramp, 0), r.span("hold", "", &hold, 0), r.span("decay", "", &decay, 0)})
	if ramp+hold+decay == 0 {
		r.Fail(node, "write ramp: 30s, hold: 2m and decay: 10m", "this crowd never comes: it has neither ramp nor hold nor decay")
	}
	k.shape = crowd{ticksOf(ramp), ticksOf(hold), ticksOf(decay)}
	r.bound(node, k.peak, 1)
	return k
}

func readBoundary(r *reader, node *yaml.Node) kind {
	k := &boundary{members: members{1}, requests: 1, period: time.Minute, every: 2}
	r.Mapping(node, "boundary", "", []strictyaml.Field{r.count(&k.n),
		{Name: "requests", Need: "requests: 100, or how many each client sends around an edge", Read: func(n *yaml.Node) {
			k.requests = r.integer(n, "requests", 1, 1e6)
		}},
		r.span("period", "period: 1m, or how long the windows of the limit are", &k.period, time.Second),
		r.span("width", "", &k.width, time.Millisecond),
		{Name: "every", Read: func(n *yaml.Node) { k.every = int64(r.integer(n, "every", 1, 1000)) }},
	})
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
	return k
}

func readOnOff(r *reader, node *yaml.Node) kind {
	k := &onOff{members: members{1}, each: rate{1, time.Second}, on: time.Second}
	r.Mapping(node, "on_off", "", []strictyaml.Field{r.count(&k.n), r.rateOf("rate", &k.each),
		r.span("on", "on: 30s", &k.on, time.Millisecond), r.span("off", "off: 5m", &k.off, 0)})
	if float64(k.each.n)/k.each.per.Seconds()*k.on.Seconds() > 1e9 {
		r.Fail(node, "use steady", "a client of this component sends more than a billion requests before it pauses")
	}
	r.bound(node, k.each, k.n)
	return k
}

func readBotnet(r *reader, node *yaml.Node) kind {
	k := &botnet{members: members{1}, below: rate{1, time.Second}, spread: 0.1}
	r.Mapping(node, "botnet", "", []strictyaml.Field{r.count(&k.n), r.rateOf("rate", &k.below),
		{Name: "spread", Read: func(n *yaml.Node) { k.spread = r.fraction(n, "spread", 0, 0.9) }}})
	r.bound(node, k.below, k.n)
	return k
}

func readPages(r *reader, node *yaml.Node) kind {
	k := &pages{members: members{1}, think: 30 * time.Second, load: 2 * time.Second, assets: 10}
	r.Mapping(node, "pages", "", []strictyaml.Field{r.count(&k.n),
		r.span("think", "", &k.think, time.Second),
		r.span("load", "", &k.load, time.Millisecond),
		{Name: "assets", Read: func(n *yaml.Node) { k.assets = r.integer(n, "assets", 0, 1000) }}})
	r.bound(node, rate{k.assets + 1, k.think + k.load}, k.n)
	return k
}
