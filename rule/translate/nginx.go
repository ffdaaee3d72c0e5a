package translate

import (
	"cmp"
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// An nginx translates an nginx configuration.
type nginx struct {
	*Translation
	scope
	zones   map[string]*zone
	order   []*zone
	servers []*server
	uses    []*use
	trusted []string // set_real_ip_from
}

// A zone is defined by limit_req_zone.
type zone struct {
	*directive
	name      string
	key       key
	rate      uint64
	perMinute bool
	used      bool
}

// A level has the settings that a block inherits or sets.
type level struct {
	limits []*directive // limit_req
	status int
	dry    bool
}

type server struct {
	*directive
	level     level
	hosts     []string // empty means all
	strange   []string // hosts that rules cannot match
	logs      []string
	locations []*location
}

type location struct {
	*directive
	kind     string // "", =, ^~, ~, ~* or @
	patterns []string
	broader  bool // patterns match more than the location does
	ok       bool // patterns are valid
	level    level
	own      bool // it has its own limits
	parents  []*location
}

// A use is a limit_req, with the match of its rule.
type use struct {
	*directive
	draft
	zone   *zone
	burst  uint64
	queue  string // delay=N, nodelay, or empty
	dry    bool
	places []string
}

func translateNginx(t *Translation, files []*File) error {
	f := files[0]
	r := &nginxReader{directory: filepath.Dir(f.Name)}
	top, err := r.parse(f)
	if err != nil {
		return err
	}
	n := &nginx{Translation: t, zones: map[string]*zone{}, scope: scope{map[string]*directive{}, map[string]*directive{}, map[string]*key{}}}
	if err := n.blocks(top); err != nil {
		return err
	}
	if err := n.rules(); err != nil {
		return err
	}
	for _, name := range r.absent {
		t.uncovered(position{f, 1, 1}, "the included file %s does not exist", name)
	}
	if len(t.rules)+len(t.missing) == 0 {
		t.uncovered(position{f, 1, 1}, "no limit_req found; if another file includes this one, import that file")
	}
	n.differences()
	return nil
}

// blocks reads everything outside of servers, and everything in a file that the http block includes.
func (n *nginx) blocks(top []*directive) error {
	all := top
	for _, d := range top {
		if d.name() == "http" && d.body {
			all = append(slices.Clip(all), d.block...)
		}
	}
	for _, d := range all {
		switch {
		case d.name() == "map" && d.body && len(d.words) == 3:
			n.maps[strings.Trim(d.words[2].text, "${}")] = d
		case d.name() == "geo" && d.body && len(d.words) >= 2:
			n.geos[strings.Trim(d.words[len(d.words)-1].text, "${}")] = d
		case d.name() == "limit_req_zone":
			if err := n.addZone(d); err != nil {
				return err
			}
		}
	}
	for _, z := range n.order {
		z.key = n.keyOf(z.words[1].text, 0)
	}
	outer, err := n.inherit(level{}, all)
	if err != nil {
		return err
	}
	loose := &directive{position: position{file: new(File)}, words: []token{{text: "server"}}, body: true}
	for _, d := range all {
		n.nameOthers(d)
		switch {
		case d.name() == "server" && d.body:
			if err := n.addServer(d, outer); err != nil {
				return err
			}
		case d.name() == "location" && d.body:
			loose.block = append(loose.block, d)
		}
	}
	// A part of a server, or the limits of a server in another file.
	if len(loose.block) > 0 || len(n.servers) == 0 && len(outer.limits) > 0 {
		return n.addServer(loose, outer)
	}
	return nil
}

var rates = regexp.MustCompile(`^([0-9]{1,9})r/([sm])$`)

func (n *nginx) addZone(d *directive) error {
	z := &zone{directive: d}
	for i, arg := range d.args() {
		value := func(name string) (string, bool) { return strings.CutPrefix(arg, name) }
		if text, ok := value("zone="); ok {
			z.name, _, _ = strings.Cut(text, ":")
		} else if text, ok := value("rate="); ok {
			m := rates.FindStringSubmatch(text)
			if m == nil || m[1] == "0" {
				return d.words[i+1].fail("write rate=10r/s or rate=30r/m", "invalid rate %q", text)
			}
			z.rate, _ = strconv.ParseUint(m[1], 10, 64)
			z.perMinute = m[2] == "m"
		} else if i > 0 && arg != "sync" {
			return d.words[i+1].fail("the parameters are zone, rate and sync", "unknown parameter %q of limit_req_zone", arg)
		}
	}
	switch {
	case len(d.words) < 2 || z.name == "":
		return d.fail("write limit_req_zone KEY zone=NAME:SIZE rate=RATE", "limit_req_zone has no zone")
	case n.zones[z.name] != nil:
		return d.fail(fmt.Sprintf("the other one is at %v", n.zones[z.name].position), "the zone %q is defined twice", z.name)
	}
	if z.rate == 0 {
		z.rate = 1 // nginx's default
	}
	n.zones[z.name], n.order = z, append(n.order, z)
	return nil
}

// inherit returns the settings of a block, which inherits those of outer.
func (n *nginx) inherit(outer level, block []*directive) (level, error) {
	l, own := outer, false
	for _, d := range block {
		switch d.name() {
		case "limit_req":
			if !own {
				l.limits, own = nil, true
			}
			l.limits = append(slices.Clip(l.limits), d)
		case "limit_req_status":
			status, err := strconv.Atoi(strings.Join(d.args(), " "))
			if err != nil || status < 400 || status > 599 {
				return l, d.fail("write a status from 400 to 599", "invalid limit_req_status")
			}
			l.status = status
		case "limit_req_dry_run":
			l.dry = slices.Equal(d.args(), []string{"on"})
		}
	}
	return l, nil
}

// nameOthers records limits that rules cannot express, and trusted proxies.
func (n *nginx) nameOthers(d *directive) {
	switch d.name() {
	case "limit_conn":
		n.uncovered(d.position, "%s: edge counts requests, not connections", d.source())
	case "set_real_ip_from":
		if text := strings.Join(d.args(), " "); !slices.Contains(n.trusted, text) {
			n.trusted = append(n.trusted, text)
		}
	}
}

func (n *nginx) addServer(d *directive, outer level) error {
	l, err := n.inherit(outer, d.block)
	if err != nil {
		return err
	}
	s := &server{directive: d, level: l}
	n.readNames(s)
	for _, each := range d.block {
		n.nameOthers(each)
		if err := n.addLocation(s, each, l, nil); err != nil {
			return err
		}
	}
	n.servers = append(n.servers, s)
	return nil
}

// readNames reads the hosts of a server.
func (n *nginx) readNames(s *server) {
	for _, d := range s.block {
		if d.name() != "server_name" {
			continue
		}
		for _, name := range d.args() {
			name = strings.ToLower(name)
			names := []string{name}
			if rest, ok := strings.CutPrefix(name, "."); ok {
				names = []string{rest, "*." + rest}
			}
			switch {
			case name == "" || name == "_" || name == "-" || name == "__" || name == "*":
			case !expressible(byHost, names...):
				s.strange = append(s.strange, name)
			default:
				s.hosts = append(s.hosts, without(names, s.hosts)...)
			}
		}
	}
	if len(s.strange) > 0 && len(s.hosts) > 0 {
		n.uncovered(s.position, "the limits of this server for hosts such as %s, which rules cannot match", strings.Join(s.strange, " "))
	} else if len(s.strange) > 0 {
		s.logs = append(s.logs, fmt.Sprintf("rules cannot match hosts such as %s, so this rule applies to all hosts", strings.Join(s.strange, " ")))
	}
}

func (n *nginx) addLocation(s *server, d *directive, outer level, parents []*location) error {
	if d.name() != "location" || !d.body {
		return nil
	}
	l := &location{directive: d, parents: parents, ok: true}
	args := d.args()
	switch {
	case len(args) == 2 && slices.Contains([]string{"=", "^~", "~", "~*"}, args[0]):
		l.kind, args = args[0], args[1:]
	case len(args) == 1:
		for _, kind := range []string{"=", "^~", "~*", "~", "@"} {
			if rest, ok := strings.CutPrefix(args[0], kind); ok {
				l.kind, args = kind, []string{rest}
				break
			}
		}
	default:
		return d.fail("write location [= | ~ | ~* | ^~] URI", "location has %d arguments", len(args))
	}
	switch path := args[0]; l.kind {
	case "=":
		l.patterns = []string{path}
	case "~", "~*":
		l.patterns, l.broader, l.ok = patternsOf(path)
	case "@":
		l.ok = false
	default:
		l.patterns = []string{path + "*"}
	}
	l.ok = l.ok && expressible(byPath, l.patterns...)
	var err error
	if l.level, err = n.inherit(outer, d.block); err != nil {
		return err
	}
	l.own = slices.ContainsFunc(d.block, func(e *directive) bool { return e.name() == "limit_req" })
	s.locations = append(s.locations, l)
	for _, each := range d.block {
		n.nameOthers(each)
		if err := n.addLocation(s, each, l.level, append(slices.Clip(parents), l)); err != nil {
			return err
		}
	}
	return nil
}

func sources(list []*directive) string {
	words := make([]string, len(list))
	for i, d := range list {
		words[i] = d.source()
	}
	return strings.Join(words, "; ")
}

func (n *nginx) newUse(d *directive, l level) (*use, error) {
	u := &use{directive: d, draft: draft{status: cmp.Or(l.status, 503)}, dry: l.dry}
	for i, arg := range d.args() {
		name, value, _ := strings.Cut(arg, "=")
		switch name {
		case "zone":
			if u.zone = n.zones[value]; u.zone == nil {
				return nil, d.words[i+1].fail("import the file that has the http block", "no limit_req_zone defines the zone %q", value)
			}
			u.zone.used = true
		case "burst", "delay":
			number, err := strconv.ParseUint(value, 10, 31)
			if err != nil {
				return nil, d.words[i+1].fail("write a whole number", "invalid %s %q", name, value)
			}
			if name == "burst" {
				u.burst = number
			} else {
				u.queue = arg
			}
		case "nodelay":
			u.queue = arg
		default:
			return nil, d.words[i+1].fail("the parameters are zone, burst, nodelay and delay", "unknown parameter %q of limit_req", arg)
		}
	}
	if u.zone == nil {
		return nil, d.fail("write limit_req zone=NAME", "limit_req has no zone")
	}
	return u, nil
}
