package translate

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/edgelimit/edge/rule"
)

type ingress struct {
	name        string
	annotations map[string]value
	sites       []site
	class       string // its controller, if it is known not to be ingress-nginx
	regex       bool   // paths are regular expressions
}

// A site is a host of an Ingress with its paths.
type site struct {
	host  string // empty means all
	paths []string
	logs  remarks
}

// annotation returns the name of an annotation of ingress-nginx without its prefix.
func annotation(name string) (short string, ok bool) {
	return strings.CutPrefix(strings.TrimPrefix(name, "nginx."), "ingress.kubernetes.io/")
}

// Keys of other limits, and keys whose values may name or contain such limits.
var (
	limiting = regexp.MustCompile(`(?i)rate[-_]?limit|throttl|in-?flight-?req|^limit([-_]|$)|[/_]limit[-_]|limit-(req|conn|count)`)
	naming   = regexp.MustCompile(`(?i)plugin|middleware|filter|policy|snippet`)
	foreign  = regexp.MustCompile(`traefik|kong|haproxy|alb|gce|istio|contour|cilium|apisix|ambassador`)
	imported = regexp.MustCompile(`^(limit-(rps|rpm|burst-multiplier|whitelist|allowlist|req-status-code)|global-rate-limit(-.*)?)$`)
)

// nameOthers records limits in a manifest that are not those of ingress-nginx, or that rules cannot express.
func (t *Translation) nameOthers(v value) {
	for _, each := range v.elements() {
		t.nameOthers(each)
	}
	for _, kv := range v.pairs() {
		name := kv[0].Value
		short, _ := annotation(name)
		switch {
		case imported.MatchString(short):
		case limiting.MatchString(short) || limiting.MatchString(kv[1].text()) && naming.MatchString(name):
			t.uncovered(kv[0], "%s: a limit of connections or bandwidth, of a snippet, or of another controller", name)
		default:
			t.nameOthers(kv[1])
		}
	}
}

func translateIngress(t *Translation, files []*File) {
	var all []*ingress
	statuses := map[string]int{"limit-req-status-code": 503, "global-rate-limit-status-code": 429}
	for _, each := range files {
		roots := documents(each.Text, position{file: each})
		for i := 0; i < len(roots); i++ {
			root := roots[i]
			if root.child("items").Node == nil {
				t.nameOthers(root)
			}
			switch kind := root.text("kind"); {
			case strings.HasSuffix(kind, "List"):
				roots = append(roots, root.child("items").elements()...)
			case kind == "Ingress":
				all = append(all, newIngress(root))
			case kind == "ConfigMap":
				for _, kv := range root.child("data").pairs() {
					name := kv[0].Value
					if statuses[name] == 0 {
						continue
					}
					status, err := strconv.Atoi(kv[1].text())
					require(err == nil && status >= rule.MinStatus && status <= rule.MaxStatus,
						kv[1], "write a status from 400 to 599", "invalid %s %q", name, kv[1].text())
					statuses[name] = status
				}
			}
		}
	}
	require(len(all) > 0, position{file: files[0]},
		"import the manifests, or the output of helm template or kubectl get ingress -A -o yaml", "the file has no Ingress")
	for _, in := range all {
		in.localLimit(t, all, statuses["limit-req-status-code"])
		in.globalLimit(t, all, statuses["global-rate-limit-status-code"])
	}
	t.commonDifferences()
	if len(t.rules)+len(t.missing) == 0 {
		t.uncovered(position{files[0], 1, 1}, "no Ingress has limit-rps, limit-rpm or global-rate-limit")
	}
}

func newIngress(root value) *ingress {
	in := &ingress{name: root.text("metadata", "name"), annotations: map[string]value{}}
	if namespace := root.text("metadata", "namespace"); namespace != "" {
		in.name = namespace + "-" + in.name
	}
	for _, kv := range root.child("metadata", "annotations").pairs() {
		if name, ok := annotation(kv[0].Value); ok {
			in.annotations[name] = kv[1]
		}
	}
	in.class = foreign.FindString(cmp.Or(root.text("spec", "ingressClassName"), root.text("metadata", "annotations", "kubernetes.io/ingress.class")))
	in.regex = in.annotations["use-regex"].text() == "true" || strings.Contains(in.annotations["rewrite-target"].text(), "$")
	for _, r := range root.child("spec", "rules").elements() {
		s := site{host: strings.ToLower(r.text("host"))}
		if s.host == "*" {
			s.host = ""
		}
		for _, p := range r.child("http", "paths").elements() {
			s.addPath(p.text("path"), p.text("pathType"), in.regex)
		}
		in.sites = append(in.sites, s)
	}
	for alias := range strings.FieldsFuncSeq(in.annotations["server-alias"].text(), func(r rune) bool { return r == ',' || r == ' ' }) {
		if len(in.sites) > 0 && expressible(byHost, alias) {
			in.sites = append(in.sites, site{strings.ToLower(alias), in.sites[0].paths, in.sites[0].logs})
		}
	}
	return in
}

func (s *site) addPath(path, kind string, regex bool) {
	patterns, broader, ok := []string{path}, false, true
	switch {
	case path == "":
		patterns = []string{"/*"}
	case regex && kind != "Exact" || strings.ContainsAny(path, "()[]|?+^$"):
		patterns, broader, ok = patternsOf("^" + strings.TrimPrefix(path, "^"))
	case kind == "Exact":
	case kind == "Prefix":
		patterns = unique([]string{"/" + strings.Trim(path, "/"), strings.TrimSuffix(path, "/") + "/*"})
	default:
		patterns = []string{path + "*"}
	}
	if !ok || !expressible(byPath, patterns...) {
		s.paths = append(s.paths, "/*")
		s.logs.add("rules cannot match the path %q", path)
		return
	}
	s.logs.addIf(broader, "the path %q matches fewer requests than the rule", path)
	s.paths = unique(append(s.paths, patterns...))
}

// number returns the value of an annotation that is a whole number, or 0 if it is missing.
func (in *ingress) number(name string) uint64 {
	n := in.annotations[name]
	v, err := strconv.ParseUint(strings.TrimSpace(n.text()), 10, 31)
	require(err == nil || n.Node == nil, n, "write a whole number in quotes", "invalid %s %q", name, n.text())
	return v
}

// localLimit makes the rules of limit-rps and limit-rpm.
func (in *ingress) localLimit(t *Translation, all []*ingress, status int) {
	multiplier := cmp.Or(in.number("limit-burst-multiplier"), 5)
	r := &draft{id: in.name, characteristics: []characteristic{{text: "ip"}}, status: status}
	for i, name := range []string{"limit-rps", "limit-rpm"} {
		rate := in.number(name)
		if rate == 0 {
			continue
		}
		b := bucket{rate, []time.Duration{time.Second, time.Minute}[i], rate * multiplier}
		r.from = append(r.from, fmt.Sprintf("%s: %d of Ingress %s (%v)", name, rate, in.name, in.annotations[name].at()))
		r.notes.add("ingress-nginx (limit-burst-multiplier: %d) %v", multiplier, b)
		for _, l := range b.limits() {
			if i := slices.IndexFunc(r.limits, func(o rule.Limit) bool { return o.Period == l.Period }); i >= 0 {
				r.limits[i].Threshold = min(r.limits[i].Threshold, l.Threshold)
			} else {
				r.limits = append(r.limits, l)
			}
		}
	}
	if r.limits == nil {
		return
	}
	r.notes.addIf(len(r.from) > 1, "both limits become one rule, with the lower threshold for each period")
	in.exempt(t, "limit-whitelist", "limit-allowlist")
	in.add(t, r, all)
}

// globalLimit makes the rules of global-rate-limit.
func (in *ingress) globalLimit(t *Translation, all []*ingress, status int) {
	threshold := in.number("global-rate-limit")
	if threshold == 0 {
		return
	}
	at, key := in.annotations["global-rate-limit"], in.annotations["global-rate-limit-key"]
	spelled := in.annotations["global-rate-limit-window"]
	window, err := time.ParseDuration(spelled.text())
	require(err == nil && window >= rule.MinPeriod && window <= rule.MaxPeriod && window%time.Second == 0, cmp.Or(spelled, at),
		"set it to whole seconds, minutes or hours, such as 2m", "invalid global-rate-limit-window %q", spelled.text())
	k := (&scope{}).keyOf(cmp.Or(key.text(), "$remote_addr"), 0)
	if k.unknown != "" {
		t.uncovered(key, "global-rate-limit of Ingress %s: %s", in.name, k.unknown)
	} else {
		r := k.draft
		r.id, r.status, r.limits = in.name+"-global", status, []rule.Limit{{Threshold: threshold, Period: window}}
		r.from = []string{fmt.Sprintf("global-rate-limit: %d in %s of Ingress %s (%v)", threshold, rule.FormatDuration(window), in.name, at.at())}
		r.notes.add("ingress-nginx has the same estimate over two windows, but asks memcached before each request; edge counts after it, so slightly more may pass")
		in.add(t, &r, all)
	}
	in.exempt(t, "global-rate-limit-ignored-cidrs")
}

// exempt puts the networks of annotations on the allow list.
func (in *ingress) exempt(t *Translation, names ...string) {
	for _, name := range names {
		n := in.annotations[name]
		for each := range strings.SplitSeq(n.text(), ",") {
			if each = strings.TrimSpace(each); each == "" {
				continue
			}
			prefix, ok := parseNetwork(each)
			require(ok, n, "write networks, separated by commas", "%s: %q is not a network", name, each)
			list(&t.allow, prefix, fmt.Sprintf("%s of Ingress %s (%v) exempts it from that limit; allow exempts it from all rules and from deny", name, in.name, n.at()))
		}
	}
}

// add adds rule r for the hosts and paths of the Ingress, as one rule if all hosts have the same paths.
func (in *ingress) add(t *Translation, r *draft, all []*ingress) {
	var made []*draft
	if len(in.sites) == 0 {
		in.sites = []site{{}} // its default backend
	}
	for _, s := range in.sites {
		one := *r
		one.reading, one.anyCase, one.notes, one.logs = "resolved", in.regex, slices.Clip(r.notes), slices.Clip(r.logs)
		one.logs.addIf(in.class != "",
			"the Ingress is for %s, which ignores the annotations of ingress-nginx", in.class)
		if !slices.Contains(s.paths, "/*") {
			one.match[byPath] = s.paths
		}
		if s.host != "" && expressible(byHost, s.host) {
			one.match[byHost] = []string{s.host}
		} else if s.host != "" {
			one.logs.add("rules cannot match the host %q", s.host)
		}
		one.notes.addIf(strings.HasPrefix(s.host, "*."),
			"%s matches one level of subdomains in Kubernetes, and any number of levels in edge", s.host)
		one.logs = append(one.logs, s.logs...)
		for _, o := range all {
			for _, other := range o.sites {
				if o != in && other.host == s.host {
					one.except[byPath] = unique(append(one.except[byPath], inside(other.paths, s.paths)...))
				}
			}
		}
		i := slices.IndexFunc(made, func(o *draft) bool {
			return slices.Equal(o.match[byPath], one.match[byPath]) && slices.Equal(o.logs, one.logs) && slices.Equal(o.except[byPath], one.except[byPath])
		})
		if i < 0 {
			made = append(made, &one)
		} else {
			made[i].match[byHost] = unique(union(made[i].match[byHost], one.match[byHost]))
		}
	}
	if len(made) > 1 {
		for _, each := range made {
			each.notes.add("ingress-nginx counts all hosts and paths of the Ingress together; these rules count them separately")
		}
	}
	t.rules = append(t.rules, made...)
}

// inside returns the paths that match only some of the requests that around matches.
func inside(paths, around []string) (list []string) {
	for _, p := range paths {
		for _, a := range around {
			if p != a && includes(a, p) && !slices.Contains(around, p) {
				list = append(list, p)
			}
		}
	}
	return list
}
