package translate

// nginx's servers and locations: which of them handles a request, and whether limit_req counts it there.

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/edgelimit/edge/internal/prose"
	"github.com/edgelimit/edge/rule"
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
}

// A socket is an address at which servers listen.
type socket struct {
	first *server             // it handles hosts that no server names
	names map[string]*server  // by host
	under map[string][]string // hosts by each wildcard that matches them, such as *.example.org; all by *

	servers []*server
}

func (n *nginx) addServer(d *directive, outer level) {
	s := &server{directive: d, byPath: map[string]*location{}}
	s.root = &location{directive: d, path: "/", patterns: []string{"/*"}, ok: true}
	n.addLocation(s, s.root, outer)
	n.readNames(s)
	if slash := s.byPath["/"]; slash != nil {
		s.root.level, s.root.patterns, s.root.covered = slash.level, nil, true
	} else {
		s.byPath["/"] = s.root
	}
	s.redirects()
	s.indexes()
	s.divide()
	layout := slices.Clone(s.logs)
	for _, l := range s.locations {
		r := &l.rule
		layout.AddIf(l.level.counts != "" && !l.covered,
			"%q %q %t %q %s", r.match, r.except, r.anyCase, r.logs, l.level.counts)
	}
	s.layout = strings.Join(layout, "\n")
	n.servers = append(n.servers, s)
	n.listen(s)
}

// redirects finds the requests that nginx counts in another location than that of their path, or nowhere.
func (s *server) redirects() {
	for _, from := range slices.Concat(s.locations, s.named) {
		block := slices.Concat(from.block, from.level.errors, from.level.indexes)
		elsewhere := func(l *location) bool { return l.level.counts != from.level.counts }
		for i := 0; i < len(block); i++ {
			d, args := block[i], append(slices.Clip(block[i].args), "", "", "") // empty if missing
			uri, flag, last := args[1], args[2], args[max(0, len(block[i].args)-1)]
			switch d.name {
			case "if":
				block = append(block, d.block...)
			case "return":
				s.leaves(from, d)
			case "rewrite":
				s.rewrites(from, d)
				switch {
				case flag == "redirect" || flag == "permanent" || strings.HasPrefix(uri, "http") ||
					strings.HasPrefix(uri, "$scheme"),
					from == s.root && slices.ContainsFunc(s.locations, elsewhere):
					s.leaves(from, d)
				case from != s.root && flag != "break":
					s.redirect(from, d, uri)
				}
			case "try_files", "error_page", "auth_request", "mirror", "post_action", "index":
				if strings.HasPrefix(last, "/") || strings.HasPrefix(last, "$") {
					s.redirect(from, d, last)
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

// rewrites records that d changes the $uri of requests before limit_req counts by it.
func (s *server) rewrites(from *location, d *directive) {
	for _, l := range s.locations {
		byURI := slices.ContainsFunc(l.level.limits, func(u *use) bool { return u.zone.key.readsPaths() })
		l.logs.AddIf(byURI && (l == from || from == s.root), "nginx counts by $uri, which %v changes", d)
	}
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
		to.logs.AddIf(passes && to.level.counts != "" && !to.broader,
			"nginx also counts the requests that %v passes on to %v", d, to)
	}
}

// reached returns the locations that may handle a URI, which may contain variables.
func (s *server) reached(uri string) []*location {
	uri, _, _ = strings.Cut(uri, "?")
	if l := s.byPath["="+uri]; l != nil {
		return []*location{l}
	}
	start, _, open := strings.Cut(uri, "$")
	found := s.longest(start)
	list := []*location{found}
	for _, l := range s.locations {
		expression := l.isRegex() && !found.isClosed() && (open || !l.ok || l.includes(uri))
		below := func(p string) bool { return strings.HasPrefix(p, start) }
		if expression || open && slices.ContainsFunc(l.patterns, below) {
			list = append(list, l)
		}
	}
	return list
}

// always reports whether nginx counts all requests for which u is in force.
func (u *use) always() bool {
	k := u.zone.key
	return k.unknown == "" && !k.isPartial() && len(k.logs) == 0 &&
		!slices.ContainsFunc(k.characteristics, func(c rule.Characteristic) bool { return c.Skip })
}

var handler = regexp.MustCompile(`_pass$|^content_by_lua|^(js_content|empty_gif|stub_status)$`)

// indexes finds the index files of directories that have their own locations.
func (s *server) indexes() {
	for _, l := range s.locations {
		if l.isRegex() {
			continue
		}
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
	for _, d := range s.own("server_name") {
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
	for _, d := range s.own("listen") {
		if len(d.args) == 0 {
			continue
		}
		k := n.bind(s, d.args[0])
		if slices.Contains(d.args, "default_server") {
			if o := n.defaults[d.args[0]]; o != nil {
				fail(d, fmt.Sprintf("the other one is at %v", o.position), "a duplicate default server for %s", d.args[0])
			}
			k.first, n.defaults[d.args[0]] = s, s
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
