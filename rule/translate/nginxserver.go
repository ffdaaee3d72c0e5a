package translate

// nginx's servers and locations: which of them handles a request, and whether limit_req counts it there.

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/edgelimit/edge/internal/prose"
)

// A server has a root, which stands for location /, or for the requests that no location takes.
type server struct {
	*directive
	hosts     []string // empty means all
	strange   []string // hosts that rules cannot match
	logs      prose.Phrases
	sockets   []*socket
	returns   bool        // it answers all requests before limit_req
	layout    string      // equal for servers that count alike
	root      *location   // also the first of locations
	locations []*location // except named ones
	named     []*location
	byPath    map[string]*location // by prefix or, after a =, by exact path
	regexes   []*location
}

// A socket is an address at which servers listen.
type socket struct {
	first *server             // it handles hosts that no server names
	names map[string]*server  // by host
	under map[string][]string // hosts by each wildcard that matches them, such as *.example.org; all by *

	servers []*server
}

type location struct {
	*directive
	kind     string // "", =, ^~, ~, ~* or @
	path     string // for a regular expression that of the location around it
	patterns []string
	broader  bool // patterns match more than the location does
	ok       bool // patterns are valid
	regex    *regexp.Regexp
	level    level
	outer    *location   // the block around it
	around   *location   // the location that has its requests without it
	children []*location // those that it is around, except regular expressions
	logs     prose.Phrases
}

func (l *location) isRegex() bool { return strings.HasPrefix(l.kind, "~") }

func (n *nginx) addServer(d *directive, outer level) {
	s := &server{directive: d, byPath: map[string]*location{}}
	s.root = &location{directive: d, patterns: []string{"/*"}, ok: true}
	n.addLocation(s, s.root, outer)
	n.readNames(s)
	for _, l := range s.locations[1:] {
		shorter := l.path
		if l.kind == "" || l.kind == "^~" {
			shorter = l.path[:len(l.path)-1]
		}
		l.around = s.longest(shorter)
		if !l.isRegex() {
			l.around.children = append(l.around.children, l)
		}
	}
	if slash := s.byPath["/"]; slash != nil {
		s.root.level, s.root.kind = slash.level, slash.kind
	}
	s.redirects()
	s.indexes()
	for _, l := range s.locations {
		if l == s.root || l.level.counts != l.around.level.counts || len(l.logs) > 0 {
			s.layout += fmt.Sprintf("%s %s %q %s\n", l.kind, l.path, l.patterns, l.level.counts)
		}
	}
	n.servers, n.layouts[s.layout] = append(n.servers, s), true
	n.listen(s)
}

// addLocation adds l, whose settings are those of its block, and the locations within it.
func (n *nginx) addLocation(s *server, l *location, outer level) {
	l.level = n.inherit(outer, l.block)
	has := func(names ...string) int {
		return slices.IndexFunc(l.block, func(d *directive) bool { return slices.Contains(names, d.name) })
	}
	first := has("return", "rewrite", "if", "break")
	returns := first >= 0 && l.block[first].name == "return"
	s.returns = s.returns || returns && l == s.root
	if hidden := l.kind == "@" || has("internal") >= 0; hidden || returns || s.returns {
		if hidden && l.level.counts != "" && l.level.counts != outer.counts {
			n.uncovered(l, "the limits of %s, which only internal redirects reach: %s", l.source(), sources(l.level.limits))
		}
		l.level.limits, l.level.counts = nil, ""
	}
	if l.kind == "@" {
		s.named = append(s.named, l)
	} else {
		s.locations = append(s.locations, l)
	}
	for _, d := range l.block {
		if d.name == "location" && d.body {
			n.addLocation(s, s.newLocation(d, l), l.level)
		}
	}
}

var locationArgs = regexp.MustCompile(`(?s)^(=|\^~|~\*|~|@|` + segments + `|) ?(.+)$`)

// segments is the kind of locations that an Ingress has for whole segments: /a/ has also the path /a.
const segments = "Prefix"

func (s *server) newLocation(d *directive, outer *location) *location {
	m := locationArgs.FindStringSubmatch(strings.Join(d.args, " "))
	require(m != nil && len(d.args) <= 2, d,
		"write location [= | ~ | ~* | ^~] URI", "location has %d arguments", len(d.args))
	l := &location{directive: d, kind: m[1], path: m[2], outer: outer, ok: true}
	id, star := l.path, "*"
	switch l.kind {
	case "~", "~*":
		l.path = outer.path
		l.patterns, l.broader, l.ok = patternsOf(m[2])
		l.ok = l.ok && expressible(byPath, l.patterns...)
		s.regexes = append(s.regexes, l)
		l.regex, _ = regexp.Compile(strings.Repeat("(?i)", len(l.kind)-1) + m[2])
		return l
	case "@":
		return l
	case "=":
		id, star = "="+l.path, ""
	}
	l.patterns = []string{l.path + star}
	if l.kind == segments {
		l.kind, l.patterns = "", append(l.patterns, strings.TrimSuffix(l.path, "/"))
	}
	l.ok = !strings.Contains(l.path, "*") && expressible(byPath, l.patterns...)
	if o := s.byPath[id]; o != nil && o.outer == outer {
		fail(d, fmt.Sprintf("the other one is at %v", o.position), "%s is a duplicate", d.source())
	}
	s.byPath[id] = l
	return l
}

// longest returns the location with the longest prefix of path.
func (s *server) longest(path string) *location {
	for i := len(path); i > 0; i-- {
		if l := s.byPath[path[:i]]; l != nil {
			return l
		}
	}
	return s.root
}

// reached returns the locations that may handle a URI, which may contain variables.
func (s *server) reached(uri string) (list []*location) {
	uri, _, _ = strings.Cut(uri, "?")
	start, _, open := strings.Cut(uri, "$")
	if l := s.byPath["="+uri]; l != nil {
		return []*location{l}
	}
	found := s.longest(start)
	among := s.regexes
	if open {
		among = s.locations
	}
	for _, l := range among {
		if l.isRegex() && found.kind != "^~" && (open || l.regex == nil || l.regex.MatchString(uri)) ||
			open && slices.ContainsFunc(l.patterns, func(p string) bool { return strings.HasPrefix(p, start) }) {
			list = append(list, l)
		}
	}
	return append(list, found)
}

// redirects finds the requests that nginx counts in another location than that of their path, or nowhere.
func (s *server) redirects() {
	for _, from := range slices.Concat(s.locations, s.named) {
		block := slices.Concat(from.block, from.level.errors, from.level.indexes)
		elsewhere := func(l *location) bool { return l.level.counts != from.level.counts }
		for i := 0; i < len(block); i++ {
			d, args := block[i], block[i].args
			switch d.name {
			case "if":
				block = append(block, d.block...)
			case "return":
				s.leaves(from, d)
			case "rewrite":
				args = append(args, "", "", "") // missing ones
				switch uri, flag := args[1], args[2]; {
				case flag == "redirect" || flag == "permanent" || strings.HasPrefix(uri, "http") ||
					strings.HasPrefix(uri, "$scheme"):
					s.leaves(from, d)
				case from != s.root && flag != "break":
					s.redirect(from, d, uri)
				case from == s.root && slices.ContainsFunc(s.locations, elsewhere):
					s.leaves(from, d)
				}
			case "try_files", "error_page", "auth_request", "mirror", "post_action", "index":
				if uri := append([]string{""}, args...)[len(args)]; strings.HasPrefix(uri, "/") || strings.HasPrefix(uri, "$") {
					s.redirect(from, d, uri)
				}
			}
		}
	}
}

// leaves records that d takes requests away from l before limit_req counts them there.
func (s *server) leaves(l *location, d *directive) {
	logs := &l.logs
	if l == s.root {
		logs = &s.logs
	}
	logs.AddIf(l == s.root || l.level.counts != "",
		"nginx does not count the requests that %v takes away before limit_req", d)
}

// redirect records that d passes requests from a location to others within nginx.
func (s *server) redirect(from *location, d *directive, uri string) {
	early := d.name == "rewrite"
	passes := early || !slices.ContainsFunc(from.level.limits, (*use).always) // not counted before
	for _, to := range s.reached(uri) {
		if to.level.counts == from.level.counts {
			continue
		}
		if early {
			s.leaves(from, d)
		}
		to.logs.AddIf(passes && to.level.counts != "", "nginx also counts the requests that %v passes on to %v", d, to)
	}
}

// always reports whether nginx counts all requests for which u is in force.
func (u *use) always() bool {
	k := u.zone.key
	return k.unknown == "" && !k.never && len(k.exempt) == 0 && k.match.isEmpty() && len(k.logs) == 0 &&
		!slices.ContainsFunc(k.characteristics, func(c characteristic) bool { return c.skip })
}

var handler = regexp.MustCompile(`_pass$|^content_by_lua|^(js_content|empty_gif|stub_status)$`)

// indexes finds the index files of directories that have their own locations.
func (s *server) indexes() {
	for _, l := range s.locations {
		dir := l.path[:strings.LastIndex(l.path, "/")+1]
		from := s.longest(dir)
		if slices.ContainsFunc(from.block, func(d *directive) bool { return handler.MatchString(d.name) }) {
			continue
		}
		for _, d := range from.level.indexes {
			for _, name := range d.args {
				s.redirect(from, d, dir+name)
			}
		}
	}
}

// readNames reads the hosts of a server.
func (n *nginx) readNames(s *server) {
	for _, d := range s.block {
		if d.name != "server_name" {
			continue
		}
		for _, name := range d.args {
			name = strings.ToLower(name)
			names := []string{name}
			if rest, ok := strings.CutPrefix(name, "."); ok {
				names = []string{rest, "*." + rest}
			}
			switch {
			case slices.Contains([]string{"", "_", "-", "__", "*"}, name):
			case !expressible(byHost, names...):
				s.strange = append(s.strange, name)
			default:
				s.hosts = append(s.hosts, names...)
			}
		}
	}
	s.hosts = unique(s.hosts)
	strange := strings.Join(s.strange, " ")
	if strange != "" && len(s.hosts) > 0 {
		n.uncovered(s, "the limits of this server for hosts such as %s, which rules cannot match", strange)
	}
	s.logs.AddIf(strange != "" && len(s.hosts) == 0,
		"rules cannot match hosts such as %s, so this rule applies to all hosts", strange)
}

// listen adds a server to the sockets at which it listens.
func (n *nginx) listen(s *server) {
	for _, d := range s.block {
		if d.name == "listen" && len(d.args) > 0 {
			k := n.bind(s, d.args[0])
			if slices.Contains(d.args, "default_server") {
				if o := n.defaults[d.args[0]]; o != nil {
					fail(d, fmt.Sprintf("the other one is at %v", o.position), "a duplicate default server for %s", d.args[0])
				}
				k.first, n.defaults[d.args[0]] = s, s
			}
		}
	}
	if len(s.sockets) == 0 {
		n.bind(s, "80")
	}
}

// bind adds a server to the socket at an address.
func (n *nginx) bind(s *server, address string) *socket {
	address = strings.NewReplacer("0.0.0.0:", "*:", "[::]:", "*:").Replace(address)
	if _, err := strconv.Atoi(address); err == nil {
		address = "*:" + address
	} else if !strings.Contains(address, ":") {
		address += ":80"
	}
	k := n.sockets[address]
	if k == nil {
		k = &socket{first: s, names: map[string]*server{}, under: map[string][]string{}}
		n.sockets[address], n.bound = k, append(n.bound, k)
	}
	if slices.Contains(s.sockets, k) {
		return k
	}
	s.sockets, k.servers = append(s.sockets, k), append(k.servers, s)
	for _, host := range s.hosts {
		if k.names[host] != nil {
			continue
		}
		k.names[host], k.under["*"] = s, append(k.under["*"], host)
		for i, c := range host {
			if c == '.' {
				k.under["*"+host[i:]] = append(k.under["*"+host[i:]], host)
			}
		}
	}
	return k
}
