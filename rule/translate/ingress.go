package translate

import (
	"cmp"
	"fmt"
	"math"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/edgelimit/edge/rule"
)

// A controller makes the configuration of nginx that ingress-nginx makes of its Ingresses.
type controller struct {
	*nginx
	statuses map[string]int        // by their names in the ConfigMap
	servers  map[string]*directive // by host; that of "" has all other hosts
	hosts    []string              // the keys of servers
	taken    map[string]*directive // locations, by their hosts and arguments
}

// An ingress has the annotations of an Ingress, by their names without the prefix.
type ingress struct {
	name        string
	annotations map[string]value
	class       string // its controller, if it is known not to be ingress-nginx
}

// annotation returns the name of an annotation of ingress-nginx without its prefix.
func annotation(name string) (short string, ok bool) {
	return strings.CutPrefix(strings.TrimPrefix(name, "nginx."), "ingress.kubernetes.io/")
}

// Keys of other limits, and keys whose values may name or contain such limits.
var (
	limiting = regexp.MustCompile(
		`(?i)rate[-_]?limit|throttl|in-?flight-?req|^limit([-_]|$)|[/_]limit[-_]|limit-(req|conn|count)`)
	naming   = regexp.MustCompile(`(?i)plugin|middleware|filter|policy|snippet`)
	foreign  = regexp.MustCompile(`traefik|kong|haproxy|alb|gce|istio|contour|cilium|apisix|ambassador`)
	imported = regexp.MustCompile(
		`^(limit-(rps|rpm|burst-multiplier|whitelist|allowlist|req-status-code)|global-rate-limit(-.*)?)$`)
)

// nameOthers records limits in a manifest that are not those of ingress-nginx, or that rules cannot express.
func (t *Translation) nameOthers(v value) {
	for _, element := range v.elements() {
		t.nameOthers(element)
	}
	for _, kv := range v.pairs() {
		name := kv[0].Value
		short, _ := annotation(name)
		switch {
		case imported.MatchString(short):
		case limiting.MatchString(short) || limiting.MatchString(kv[1].text()) && naming.MatchString(name):
			t.uncovered(kv[0], "%s: a limit on connections or bandwidth, in a snippet, or of another controller", name)
		default:
			t.nameOthers(kv[1])
		}
	}
}

func translateIngress(t *Translation, files []File) {
	c := &controller{nginx: newNginx(t), servers: map[string]*directive{}, taken: map[string]*directive{},
		statuses: map[string]int{"limit-req-status-code": 503, "global-rate-limit-status-code": 429}}
	var all []value
	for _, f := range files {
		roots := documents(f.Text, position{file: &f})
		for i := 0; i < len(roots); i++ {
			root := roots[i]
			if root.child("items").Node == nil {
				t.nameOthers(root)
			}
			switch kind := root.text("kind"); {
			case strings.HasSuffix(kind, "List"):
				roots = append(roots, root.child("items").elements()...)
			case kind == "Ingress":
				all = append(all, root)
			case kind == "ConfigMap":
				c.readStatuses(root)
			}
		}
	}
	require(len(all) > 0, position{file: &files[0]},
		"import the manifests, or the output of helm template or kubectl get ingress -A -o yaml", "the file has no Ingress")
	c.server("", all[0])
	for _, root := range all {
		c.addIngress(root)
	}
	for _, host := range c.hosts {
		s := c.servers[host] // its locations are in the order that ingress-nginx gives them
		slices.SortStableFunc(s.block[1:], func(a, b *directive) int { return len(b.source()) - len(a.source()) })
		c.addServer(s, level{})
	}
	c.makeRules()
	for _, r := range t.rules {
		for _, host := range r.match[byHost] {
			if strings.HasPrefix(host, "*.") {
				t.general.Add("%s matches one level of subdomains in Kubernetes, and any number of levels in edge.", host)
			}
		}
	}
	if len(t.rules)+len(t.missing) == 0 {
		t.uncovered(position{&files[0], 1, 1}, "no Ingress has limit-rps, limit-rpm or global-rate-limit")
	}
}

func (c *controller) readStatuses(configMap value) {
	for _, kv := range configMap.child("data").pairs() {
		if name := kv[0].Value; c.statuses[name] != 0 {
			c.statuses[name] = int(wholeNumber(kv[1], name, kv[1].text(), minStatus, maxStatus))
		}
	}
}

func (c *controller) server(host string, where place) *directive {
	if c.servers[host] == nil {
		c.hosts, c.servers[host] = append(c.hosts, host), newDirective(where, "server")
		c.servers[host].block = []*directive{newDirective(where, "server_name", host)}
	}
	return c.servers[host]
}

// addIngress adds the locations of an Ingress, which have its limits, to the servers of its hosts.
func (c *controller) addIngress(root value) {
	in := &ingress{name: root.text("metadata", "name"), annotations: map[string]value{}}
	if namespace := root.text("metadata", "namespace"); namespace != "" {
		in.name = namespace + "-" + in.name
	}
	for _, kv := range root.child("metadata", "annotations").pairs() {
		if name, ok := annotation(kv[0].Value); ok {
			in.annotations[name] = kv[1]
		}
	}
	in.class = foreign.FindString(cmp.Or(root.text("spec", "ingressClassName"),
		root.text("metadata", "annotations", "kubernetes.io/ingress.class")))
	if in.annotations["canary"].text() == "true" {
		return // ingress-nginx ignores its limits, and uses those of the main Ingress for its paths
	}
	var limits []*directive // nothing is counted that the Ingress redirects
	if in.annotations["permanent-redirect"].text()+in.annotations["temporal-redirect"].text() == "" {
		limits = c.limits(in)
	}
	regex := in.annotations["use-regex"].text() == "true" || strings.Contains(in.annotations["rewrite-target"].text(), "$")
	add := func(host, path, kind string) {
		s, l := c.server(host, root), newDirective(root, "location", locationOf(path, kind, regex)...)
		id := host + " " + l.source()
		if c.taken[id] == nil {
			c.taken[id], s.block = l, append(s.block, l)
		}
		if l = c.taken[id]; l.block == nil {
			l.block = limits
		}
	}
	hosts := root.child("spec", "rules").elements()
	if len(hosts) == 0 {
		add("", "/", "Prefix") // its default backend
	}
	for i, r := range hosts {
		host := strings.ToLower(r.text("host"))
		if host == "*" {
			host = ""
		}
		paths := r.child("http", "paths").elements()
		if len(paths) == 0 {
			add(host, "/", "Prefix")
		}
		for _, p := range paths {
			add(host, p.text("path"), p.text("pathType"))
		}
		if i == 0 && host != "" {
			s := c.servers[host]
			aliases := strings.FieldsFunc(in.annotations["server-alias"].text(), isSeparator)
			s.block[0].args = append(s.block[0].args, aliases...)
		}
	}
}

func isSeparator(r rune) bool { return r == ',' || r == ' ' }

// locationOf returns the arguments of the location of a path of an Ingress.
func locationOf(path, kind string, regex bool) []string {
	expression := "^" + strings.TrimPrefix(path, "^")
	switch {
	case path == "" || path == "/" && !regex:
		return []string{"/"}
	case kind == "Exact":
		return []string{"=", path}
	case regex:
		return []string{"~*", expression}
	case strings.ContainsAny(path, "()[]|?+^$"):
		return []string{"~", expression}
	case kind == "Prefix":
		return []string{segments, "/" + strings.Trim(path, "/") + "/"}
	}
	return []string{path}
}

// number returns the value of an annotation that is a whole number, or 0 if it is missing.
func (in *ingress) number(name string) uint64 {
	if n, ok := in.annotations[name]; ok {
		return wholeNumber(n, name, n.text(), 0, math.MaxInt32)
	}
	return 0
}

// limits makes the zones of an Ingress, and returns their limit_req.
func (c *controller) limits(in *ingress) (list []*directive) {
	add := func(name, status, key string, z zone, burst uint64) {
		at := in.annotations[name]
		z.name, z.key, z.status = in.name+"-"+name, c.keyOf(key), c.statuses[status]
		title := fmt.Sprintf("%s: %d in %s of Ingress %s", name, z.rate, rule.FormatDuration(z.per), in.name)
		z.directive = newDirective(at, title)
		z.key.logs.AddIf(in.class != "", "the Ingress is for %s, which ignores the annotations of ingress-nginx", in.class)
		for c.zones[z.name] != nil {
			z.name += "-2"
		}
		c.zones[z.name], c.order = &z, append(c.order, &z)
		list = append(list, newDirective(at, "limit_req", "zone="+z.name, fmt.Sprintf("burst=%d", burst), "nodelay"))
	}
	multiplier := cmp.Or(in.number("limit-burst-multiplier"), 5)
	for i, name := range []string{"limit-rps", "limit-rpm"} {
		if rate := in.number(name); rate > 0 {
			z := zone{rate: rate, per: []time.Duration{time.Second, time.Minute}[i]}
			add(name, "limit-req-status-code", "$binary_remote_addr", z, min(rate*multiplier, math.MaxInt32))
		}
	}
	if list != nil {
		c.exempt(in, "limit-whitelist", "limit-allowlist")
	}
	if rate := in.number("global-rate-limit"); rate > 0 {
		spelled := in.annotations["global-rate-limit-window"]
		window, err := time.ParseDuration(spelled.text())
		require(err == nil && window >= rule.MinPeriod && window <= rule.MaxPeriod && window%time.Second == 0,
			cmp.Or(spelled, in.annotations["global-rate-limit"]),
			"set it to whole seconds, minutes or hours, such as 2m", "invalid global-rate-limit-window %q", spelled.text())
		key := cmp.Or(in.annotations["global-rate-limit-key"].text(), "$remote_addr")
		add("global-rate-limit", "global-rate-limit-status-code", key, zone{rate: rate, per: window, window: true}, 0)
		c.exempt(in, "global-rate-limit-ignored-cidrs")
	}
	return list
}

// exempt puts the networks of annotations on the allow list.
func (t *Translation) exempt(in *ingress, names ...string) {
	for _, name := range names {
		n := in.annotations[name]
		for text := range strings.FieldsFuncSeq(n.text(), isSeparator) {
			prefix, ok := parseNetwork(text)
			require(ok, n, "write networks, separated by commas", "%s: %q is not a network", name, text)
			list(&t.allow, prefix, fmt.Sprintf("%s of Ingress %s (%v) exempts it from that limit; "+
				"allow exempts it from all rules and from deny", name, in.name, n.at()))
		}
	}
}
