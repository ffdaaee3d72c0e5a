package translate

import (
	"fmt"
	"math"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/edgelimit/edge/internal/prose"
)

// An nginx translates an nginx configuration.
type nginx struct {
	*Translation
	variables map[string]*directive // map and geo blocks, by the variables that they define, without $
	keys      map[string]key        // of the variables of maps
	zones     map[string]*zone
	order     []*zone
	servers   []*server
	sockets   map[string]*socket
	bound     []*socket          // the same, in order
	defaults  map[string]*server // the default_server of each address
	trusted   []string           // set_real_ip_from
}

var nowhere = position{file: new(File)}

// standardIndex is in force where no other index is.
var standardIndex = newDirective(nowhere, "index", "index.html")

// A zone is defined by limit_req_zone: leaky buckets with a rate per second or minute.
type zone struct {
	*directive
	name   string
	rate   uint64
	per    time.Duration
	window bool // requests in the last period instead, as ingress-nginx counts them globally
	key    key
	status int // of refusals; if 0, that of limit_req_status
	used   bool
}

// A level has the settings that a block inherits or sets.
type level struct {
	limits          []*use
	errors, indexes []*directive // error_page, index
	status          int
	dry             bool
	counts          string // equal for levels with the same limits; empty without any
}

// A use is a limit_req.
type use struct {
	*directive
	zone  *zone
	burst uint64 // what it allows in addition to the rate
	queue string // delay=N, nodelay, or empty
}

func newNginx(t *Translation) *nginx {
	return &nginx{Translation: t, variables: map[string]*directive{}, keys: map[string]key{}, zones: map[string]*zone{},
		sockets: map[string]*socket{}, defaults: map[string]*server{}}
}

func translateNginx(t *Translation, files []File) {
	f := &files[0]
	r := &nginxReader{directory: filepath.Dir(f.Name)}
	top := r.parse(f)
	n := newNginx(t)
	n.nameOthers(top)
	n.blocks(top)
	n.makeRules()
	for _, name := range r.absent {
		t.uncovered(position{f, 1, 1}, "the included file %s does not exist", name)
	}
	if len(t.rules)+len(t.missing) == 0 {
		t.uncovered(position{f, 1, 1}, "no limit_req found; if another file includes this one, import that file")
	}
	if len(t.rules) > 0 && len(n.trusted) > 0 {
		t.general.Add("nginx takes the client's address from proxies at %s (set_real_ip_from): set trusted_proxy to "+
			"these on the nodes. Edge reads X-Forwarded-For or the PROXY protocol, and nothing else.",
			strings.Join(unique(n.trusted), ", "))
	}
}

// blocks reads everything outside of servers, and everything in a file that the http block includes.
func (n *nginx) blocks(top []*directive) {
	all := newDirective(nowhere, "http")
	all.block = top
	for _, d := range all.own("http") {
		all.block = append(slices.Clip(all.block), d.block...)
	}
	for _, d := range all.own("map", "geo") {
		if last := len(d.args) - 1; d.name == "geo" && last >= 0 || last == 1 {
			n.variables[strings.Trim(d.args[last], "${}")] = d
		}
	}
	for _, d := range all.own("limit_req_zone") {
		n.addZone(d)
	}
	for _, z := range n.order {
		z.key = n.keyOf(z.args[0])
	}
	outer := n.inherit(level{indexes: []*directive{standardIndex}}, all)
	for _, d := range all.own("server") {
		n.addServer(d, outer)
	}
	// A part of a server, or the limits of a server in another file.
	loose := newDirective(nowhere, "server")
	loose.block = all.own("location")
	if len(loose.block) > 0 || len(n.servers) == 0 && len(outer.limits) > 0 {
		n.addServer(loose, outer)
	}
}

func (n *nginx) addZone(d *directive) {
	z := &zone{directive: d, rate: 1, per: time.Second} // nginx's default
	for i, arg := range d.args {
		switch name, value, ok := strings.Cut(arg, "="); {
		case ok && name == "zone":
			z.name, _, _ = strings.Cut(value, ":")
		case ok && name == "rate":
			number, unit, _ := strings.Cut(value, "r/")
			z.rate, _ = strconv.ParseUint(number, 10, 31)
			z.per = map[string]time.Duration{"s": time.Second, "m": time.Minute}[unit]
			require(z.rate > 0 && z.per > 0, d.places[i], "write rate=10r/s or rate=30r/m", "invalid rate %q", value)
		default:
			require(i == 0 || arg == "sync", d.places[i],
				"the parameters are zone, rate and sync", "unknown parameter %q of limit_req_zone", arg)
		}
	}
	require(len(d.args) > 0 && z.name != "", d,
		"write limit_req_zone KEY zone=NAME:SIZE rate=RATE", "limit_req_zone has no zone")
	if o := n.zones[z.name]; o != nil {
		fail(d, fmt.Sprintf("the other one is at %v", o.position), "the zone %q is defined twice", z.name)
	}
	n.zones[z.name], n.order = z, append(n.order, z)
}

// inherit returns the settings of a block, which inherits those of outer.
func (n *nginx) inherit(outer level, block *directive) level {
	l := outer
	const duplicate = "%s is a duplicate"
	const remove = "remove one: nginx does not load both"
	for i, d := range block.own("limit_req") {
		if i == 0 {
			l.limits = nil
		}
		u := n.newUse(d)
		again := slices.ContainsFunc(l.limits, func(o *use) bool { return o.zone == u.zone })
		require(!again, d, remove, duplicate, d.source())
		l.limits = append(l.limits, u)
	}
	for i, d := range block.own("limit_req_status") {
		require(i == 0, d, remove, duplicate, d.source())
		l.status = int(wholeNumber(d, d.name, strings.Join(d.args, " "), minStatus, maxStatus))
	}
	for i, d := range block.own("limit_req_dry_run") {
		require(i == 0, d, remove, duplicate, d.source())
		l.dry = slices.Equal(d.args, []string{"on"})
	}
	if own := block.own("error_page"); own != nil {
		l.errors = own
	}
	if own := block.own("index"); own != nil {
		l.indexes = own
	}
	l.counts = ""
	if len(l.limits) > 0 {
		l.counts = fmt.Sprint(sources(l.limits), l.status, l.dry)
	}
	return l
}

var bandwidth = regexp.MustCompile(`^\w*limit_rate(_after)?$`)

// nameOthers records limits that rules cannot express, and trusted proxies.
func (n *nginx) nameOthers(block []*directive) {
	for _, d := range block {
		switch name := d.name; {
		case name == "limit_conn":
			n.uncovered(d, "%s: edge counts requests, not connections", d.source())
		case strings.HasPrefix(name, "access_by_lua") || strings.HasPrefix(name, "rewrite_by_lua"):
			n.uncovered(d, "%s: it may limit requests, or answer them before limit_req", name)
		case bandwidth.MatchString(name):
			n.uncovered(d, "%s: edge limits requests, not bandwidth", d.source())
		case name == "merge_slashes" && slices.Equal(d.args, []string{"off"}):
			n.uncovered(d, "%s: edge compares paths after merging slashes", d.source())
		case name == "set_real_ip_from":
			n.trusted = append(n.trusted, strings.Join(d.args, " "))
		}
		n.nameOthers(d.block)
	}
}

func sources(list []*use) string {
	return strings.Join(prose.Texts(list, (*use).source), "; ")
}

func (n *nginx) newUse(d *directive) *use {
	u := &use{directive: d}
	for i, arg := range d.args {
		name, value, _ := strings.Cut(arg, "=")
		switch name {
		case "zone":
			u.zone = n.zones[value]
			require(u.zone != nil, d.places[i],
				"import the file that has the http block", "no limit_req_zone defines the zone %q", value)
			u.zone.used = true
		case "burst":
			u.burst = wholeNumber(d.places[i], name, value, 0, math.MaxInt32)
		case "nodelay", "delay":
			u.queue = arg
		default:
			fail(d.places[i], "the parameters are zone, burst, nodelay and delay", "unknown parameter %q of limit_req", arg)
		}
	}
	require(u.zone != nil, d, "write limit_req zone=NAME", "limit_req has no zone")
	return u
}
