package translate

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v4"

	"github.com/edgelimit/edge/pop/rule"
)

// An ingress is an Ingress of Kubernetes, as far as ingress-nginx limits it.
type ingress struct {
	yamlFile
	node        *yaml.Node
	name        string
	annotations map[string]*yaml.Node
	sites       []site
}

// A site is a host of an Ingress with its paths.
type site struct {
	host  string // empty: all
	paths []string
	logs  []string
}

// annotationPrefixes are what the names of annotations begin with.
var annotationPrefixes = []string{"nginx.ingress.kubernetes.io/", "ingress.kubernetes.io/"}

// otherLimits are annotations that limit something else than requests.
var otherLimits = map[string]string{
	"limit-connections": "edge counts requests, not connections",
	"limit-rate":        "edge limits no bandwidth",
	"limit-rate-after":  "edge limits no bandwidth",
}

// limitAnnotations are the annotations of ingress-nginx about limits.
var limitAnnotations = []string{
	"limit-rps", "limit-rpm", "limit-burst-multiplier", "limit-whitelist", "limit-allowlist", "limit-connections", "limit-rate", "limit-rate-after",
	"global-rate-limit", "global-rate-limit-window", "global-rate-limit-key", "global-rate-limit-ignored-cidrs",
}

func translateIngress(t *Translation, files []File) error {
	var all []*ingress
	status, globalStatus := 503, 429
	for _, each := range files {
		f := newYAMLFile(each)
		roots, err := f.documents()
		if err != nil {
			return err
		}
		for i := 0; i < len(roots); i++ {
			root := roots[i]
			switch kind := text(child(root, "kind")); {
			case strings.HasSuffix(kind, "List"):
				roots = append(roots, elements(child(root, "items"))...)
			case kind == "Ingress":
				all = append(all, newIngress(f, root))
			case kind == "ConfigMap":
				for _, kv := range pairs(child(root, "data")) {
					into := map[string]*int{"limit-req-status-code": &status, "global-rate-limit-status-code": &globalStatus}[kv[0].Value]
					if into == nil {
						continue
					}
					if *into, err = strconv.Atoi(text(kv[1])); err != nil || *into < rule.MinStatus || *into > rule.MaxStatus {
						return f.fail(kv[1], "write a status from 400 to 599", "invalid %s %q", kv[0].Value, text(kv[1]))
					}
				}
			}
		}
	}
	if len(all) == 0 {
		return failAt(position{file: files[0].Name}, nil, "import the manifests, the output of helm template, or of kubectl get ingress -A -o yaml", "the file has no Ingress")
	}
	for _, in := range all {
		if err := in.limits(t, all, status, globalStatus); err != nil {
			return err
		}
	}
	if len(t.rules) > 0 {
		t.commonDifferences()
	} else if len(t.missing) == 0 {
		t.uncovered(position{files[0].Name, 1, 1}, "no Ingress has limit-rps, limit-rpm or global-rate-limit")
	}
	return nil
}

func newIngress(f yamlFile, root *yaml.Node) *ingress {
	in := &ingress{yamlFile: f, node: root, annotations: map[string]*yaml.Node{}}
	in.name = text(child(root, "metadata", "name"))
	if namespace := text(child(root, "metadata", "namespace")); namespace != "" {
		in.name = namespace + "-" + in.name
	}
	for _, kv := range pairs(child(root, "metadata", "annotations")) {
		for _, prefix := range annotationPrefixes {
			if name, ok := strings.CutPrefix(kv[0].Value, prefix); ok {
				in.annotations[name] = kv[1]
			}
		}
	}
	regex := text(in.annotations["use-regex"]) == "true" || strings.Contains(text(in.annotations["rewrite-target"]), "$")
	for _, r := range elements(child(root, "spec", "rules")) {
		s := site{host: strings.ToLower(text(child(r, "host")))}
		if s.host == "*" {
			s.host = ""
		}
		for _, p := range elements(child(r, "http", "paths")) {
			s.addPath(text(child(p, "path")), text(child(p, "pathType")), regex)
		}
		in.sites = append(in.sites, s)
	}
	for alias := range strings.FieldsFuncSeq(text(in.annotations["server-alias"]), func(r rune) bool { return r == ',' || r == ' ' }) {
		if len(in.sites) > 0 && expressible("hosts", alias) {
			in.sites = append(in.sites, site{strings.ToLower(alias), in.sites[0].paths, in.sites[0].logs})
		}
	}
	return in
}

// addPath adds a path as its type says.
func (s *site) addPath(path, kind string, regex bool) {
	patterns, broader, ok := []string{path}, false, true
	switch {
	case path == "":
		patterns = []string{"/*"}
	case regex && kind != "Exact" || strings.ContainsAny(path, "()[]|?+^$"):
		patterns, broader, ok = patternsOf("^" + strings.TrimPrefix(path, "^"))
	case kind == "Exact":
	case kind == "Prefix":
		patterns = []string{strings.TrimSuffix(path, "/") + "/*"} // names the path without the slash too
	default:
		patterns = []string{path + "*"}
	}
	if !ok || !expressible("paths", patterns...) {
		s.paths = append(s.paths, "/*")
		s.logs = append(s.logs, fmt.Sprintf("rules cannot match the path %q", path))
		return
	}
	if broader {
		s.logs = append(s.logs, fmt.Sprintf("the path %q matches fewer than the rule", path))
	}
	s.paths = append(s.paths, without(patterns, s.paths)...)
}

// number returns an annotation that is a whole number, 0 if it is not there.
func (in *ingress) number(name string) (uint64, error) {
	n := in.annotations[name]
	if n == nil {
		return 0, nil
	}
	v, err := strconv.ParseUint(strings.TrimSpace(text(n)), 10, 31)
	if err != nil {
		return 0, in.fail(n, "write a whole number in quotes", "invalid %s %q", name, text(n))
	}
	return v, nil
}

// limits makes the rules of the ingress.
func (in *ingress) limits(t *Translation, all []*ingress, status, globalStatus int) error {
	var numbers [4]uint64
	for i, name := range []string{"limit-rps", "limit-rpm", "limit-burst-multiplier", "global-rate-limit"} {
		var err error
		if numbers[i], err = in.number(name); err != nil {
			return err
		}
	}
	perSecond, perMinute, multiplier, global := numbers[0], numbers[1], numbers[2], numbers[3]
	if multiplier == 0 {
		multiplier = 5 // its default
	}
	for _, name := range []string{"limit-connections", "limit-rate", "limit-rate-after"} {
		if n := in.annotations[name]; n != nil {
			t.uncovered(in.at(n), "%s: %q: %s", name, text(n), otherLimits[name])
		}
	}
	for _, kv := range pairs(child(in.node, "metadata", "annotations")) {
		prefix, name, _ := strings.Cut(kv[0].Value, "/")
		switch limits := strings.HasPrefix(name, "limit-") || strings.Contains(name, "rate-limit") || strings.Contains(name, "ratelimit"); {
		case strings.HasSuffix(name, "-snippet") && strings.Contains(text(kv[1]), "limit_req"):
			t.uncovered(in.at(kv[1]), "%s has limits: import what it says as nginx", name)
		case limits && !slices.Contains(annotationPrefixes, prefix+"/"):
			t.uncovered(in.at(kv[0]), "%s belongs to another controller than ingress-nginx", kv[0].Value)
		case limits && !slices.Contains(limitAnnotations, name):
			t.uncovered(in.at(kv[0]), "ingress-nginx has no annotation %s: it limits nothing there", name)
		}
	}
	if perSecond > 0 || perMinute > 0 {
		r := &draft{id: in.name, characteristics: []characteristic{{text: "ip"}}, status: status}
		for _, l := range []struct {
			name   string
			rate   uint64
			minute bool
			unit   string
		}{{"limit-rps", perSecond, false, "second"}, {"limit-rpm", perMinute, true, "minute"}} {
			if l.rate == 0 {
				continue
			}
			burst := l.rate * multiplier
			limits := leaky(l.rate, l.minute, burst)
			r.from = append(r.from, fmt.Sprintf("%s: %d of Ingress %s (%v)", l.name, l.rate, in.name, in.at(in.annotations[l.name])))
			r.notes = append(r.notes, fmt.Sprintf("ingress-nginx lets %d at once through (limit-burst-multiplier: %d), and then %d a %s; edge lets %s through",
				burst+1, multiplier, l.rate, l.unit, spokenLimits(limits)))
			for _, one := range limits {
				i := slices.IndexFunc(r.limits, func(o limit) bool { return o.period == one.period })
				if i < 0 {
					r.limits = append(r.limits, one)
				} else {
					r.limits[i].threshold = min(r.limits[i].threshold, one.threshold)
				}
			}
		}
		if perSecond > 0 && perMinute > 0 {
			r.notes = append(r.notes, "both limits are one rule, with the lower threshold for each period")
		}
		if err := in.exempt(t, "limit-whitelist", "limit-allowlist"); err != nil {
			return err
		}
		in.add(t, r, all)
	}
	if global > 0 {
		spelled := text(in.annotations["global-rate-limit-window"])
		window, err := time.ParseDuration(spelled)
		if err != nil || window < rule.MinPeriod || window > rule.MaxPeriod || window%time.Second != 0 {
			n := cmp.Or(in.annotations["global-rate-limit-window"], in.annotations["global-rate-limit"])
			return in.fail(n, "set it to whole seconds, minutes or hours, such as 2m", "invalid global-rate-limit-window %q", spelled)
		}
		k := (&scope{}).keyOf(cmp.Or(text(in.annotations["global-rate-limit-key"]), "$remote_addr"), 0)
		if k.unknown != "" {
			t.uncovered(in.at(in.annotations["global-rate-limit-key"]), "global-rate-limit of Ingress %s: %s", in.name, k.unknown)
		} else {
			in.add(t, &draft{
				id:              in.name + "-global",
				from:            []string{fmt.Sprintf("global-rate-limit: %d in %s of Ingress %s (%v)", global, rule.FormatDuration(window), in.name, in.at(in.annotations["global-rate-limit"]))},
				notes:           append(k.notes, "the same estimate over two windows; ingress-nginx asks memcached before each request, edge counts after it, so somewhat more may pass"),
				logs:            k.logs,
				characteristics: k.characteristics,
				limits:          []limit{{global, window}},
				status:          globalStatus,
			}, all)
		}
		return in.exempt(t, "global-rate-limit-ignored-cidrs")
	}
	return nil
}

// exempt lists the networks of annotations.
func (in *ingress) exempt(t *Translation, names ...string) error {
	for _, name := range names {
		n := in.annotations[name]
		for each := range strings.SplitSeq(text(n), ",") {
			if each = strings.TrimSpace(each); each == "" {
				continue
			}
			prefix, ok := parseNetwork(each)
			if !ok {
				return in.fail(n, "write networks, separated by commas", "%s: %q is not a network", name, each)
			}
			list(&t.allow, prefix, fmt.Sprintf("%s of Ingress %s (%v) exempts it from that limit; allow exempts it from all rules and from deny", name, in.name, in.at(n)))
		}
	}
	return nil
}

// add adds rule r for the hosts and paths of the ingress, as one rule if they all have the same
// paths.
func (in *ingress) add(t *Translation, r *draft, all []*ingress) {
	var made []*draft
	if len(in.sites) == 0 {
		in.sites = []site{{}} // its default backend
	}
	for _, s := range in.sites {
		one := *r
		one.paths = s.paths
		if slices.Contains(s.paths, "/*") {
			one.paths = nil
		}
		if s.host != "" && expressible("hosts", s.host) {
			one.hosts = []string{s.host}
		} else if s.host != "" {
			one.logs = append(slices.Clip(one.logs), fmt.Sprintf("rules cannot match the host %q", s.host))
		}
		if strings.HasPrefix(s.host, "*.") {
			one.notes = append(slices.Clip(one.notes), fmt.Sprintf("%s is one level deep to Kubernetes, any depth to edge", s.host))
		}
		one.logs = append(slices.Clip(one.logs), s.logs...)
		for _, o := range all {
			for _, other := range o.sites {
				if o != in && other.host == s.host {
					one.except = append(one.except, without(inside(other.paths, s.paths), one.except)...)
				}
			}
		}
		i := slices.IndexFunc(made, func(o *draft) bool {
			return slices.Equal(o.paths, one.paths) && slices.Equal(o.logs, one.logs) && slices.Equal(o.except, one.except)
		})
		if i < 0 {
			made = append(made, &one)
		} else {
			made[i].hosts = union(made[i].hosts, one.hosts)
		}
	}
	if len(made) > 1 {
		for _, each := range made {
			each.notes = append(slices.Clip(each.notes), "ingress-nginx counts together for all hosts and paths of the Ingress what several rules here count apart")
		}
	}
	t.rules = append(t.rules, made...)
}

// inside returns those of paths that are among the requests that around matches, and not all of
// them.
func inside(paths, around []string) (list []string) {
	for _, p := range paths {
		for _, a := range around {
			if p != a && samePattern(a, p) && !slices.Contains(around, p) {
				list = append(list, p)
			}
		}
	}
	return list
}
