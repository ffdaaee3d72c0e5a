package mix

import (
	"fmt"
	"math/bits"
	"regexp"

	"go.yaml.in/yaml/v4"

	"github.com/edgelimit/edge/internal/prose"
	"github.com/edgelimit/edge/internal/strictyaml"
)

// A look describes the requests of a component. Each has one of the hosts, methods and paths, at random.
type look struct {
	hosts, methods, paths []string
	status                int
}

// Defaults for the look of requests.
var (
	anyHost   = []string{"www.example.com"}
	anyMethod = []string{"GET"}
	anyPath   = []string{"/"}
	anyAsset  = []string{"/assets/style.css", "/assets/app.js", "/assets/logo.svg", "/assets/photo.jpg", "/favicon.ico"}
	anyAgent  = []string{"Mozilla/5.0 (X11; Linux x86_64; rv:140.0) Gecko/20100101 Firefox/140.0"}
)

// lookFields returns the keys of request; they read into d.
func (r *reader) lookFields(d *draft) []strictyaml.Field {
	const path, paths = "a slash followed by printable characters other than quotes", `^/[!#-\[\]-~]*$`
	return d.noted([]strictyaml.Field{
		r.words("hosts", &d.request.hosts, "www.example.com", "letters, digits, dots, hyphens and colons", `^[a-z\d.:-]+$`),
		r.words("methods", &d.request.methods, "GET", "capital letters", `^[A-Z]+$`),
		r.words("paths", &d.request.paths, "/login", path, paths),
		r.words("assets", &d.assets, "/style.css", path, paths),
		integer(r, "status", "", &d.request.status, 200, 599),
		r.words("user_agents", &d.agents, "curl/8.5.0", "printable characters other than quotes and backslashes",
			`^[ !#-\[\]-~]+$`),
	})
}

// words returns the key of a list of strings that must all match a pattern. allowed describes it.
func (r *reader) words(name string, to *[]string, example, allowed, pattern string) strictyaml.Field {
	const most = 2000 // bytes
	valid := regexp.MustCompile(pattern)
	return strictyaml.Field{Name: name, Read: func(n *yaml.Node) {
		for _, item := range r.Sequence(n, name, "write a list: ["+example+"]", "") {
			s, ok := r.Text(item, "an entry of "+name)
			if ok && !valid.MatchString(s) {
				r.Fail(item, "must consist of "+allowed, "an entry of %s cannot be %s", name, prose.Quote(s))
			}
			if len(s) > most {
				r.Fail(item, fmt.Sprintf("at most %d are allowed", most), "an entry of %s has %d bytes", name, len(s))
			}
			*to = append(*to, s)
		}
	}}
}

// completeLooks sets the defaults for the look of a component's requests.
func (r *reader) completeLooks(d *draft) {
	or := func(list *[]string, words ...[]string) {
		for _, w := range words {
			if len(*list) == 0 {
				*list = w
			}
		}
	}
	or(&d.request.hosts, anyHost)
	or(&d.request.methods, d.kind.request.methods, anyMethod)
	or(&d.request.paths, d.kind.request.paths, anyPath)
	or(&d.agents, anyAgent)
	if d.request.status == 0 {
		d.request.status = max(d.kind.request.status, 200)
	}
	d.looks = []look{d.request}
	if d.kind.name == pages {
		or(&d.assets, anyAsset)
		d.request.methods, d.request.paths = anyMethod, d.assets
		d.looks = append(d.looks, d.request)
	} else if n := d.nodes["assets"]; n != nil {
		r.Fail(n, "leave assets out", "only pages have assets")
	}
}

// request sets r to the flow's next request.
func (l *flow) request(r *Request) {
	r.Time, r.Client, r.Component = l.time, l.of.First+l.head.client, l.index
	k := &l.of.looks[l.head.look]
	var path, method, host int
	if len(k.paths)+len(k.methods)+len(k.hosts) > 3 {
		random := l.random.next()
		path, random = split(random, len(k.paths))
		method, random = split(random, len(k.methods))
		host, _ = split(random, len(k.hosts))
	}
	agent, _ := split(Scramble(l.of.key^l.head.client), len(l.of.agents))
	r.Method, r.Host, r.Path, r.Status = k.methods[method], k.hosts[host], k.paths[path], k.status
	r.Agent = l.of.agents[agent]
}

// split returns a number in [0, n), and the remaining random bits.
func split(random uint64, n int) (int, uint64) {
	hi, lo := bits.Mul64(random, uint64(n))
	return int(hi), lo
}
