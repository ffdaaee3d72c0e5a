package mix

import (
	"fmt"
	"strings"

	"go.yaml.in/yaml/v4"

	"github.com/edgelimit/edge/internal/strictyaml"
)

// Defaults for the look of requests.
var (
	anyHost   = []string{"www.example.com"}
	anyMethod = []string{"GET"}
	anyPath   = []string{"/"}
	anyAsset  = []string{"/assets/style.css", "/assets/app.js", "/assets/logo.svg", "/assets/photo.jpg", "/favicon.ico"}
	anyAgent  = []string{"Mozilla/5.0 (X11; Linux x86_64; rv:140.0) Gecko/20100101 Firefox/140.0"}
)

// lookFields are the keys of request; they read into d.
func (r *reader) lookFields(d *draft) []strictyaml.Field {
	return []strictyaml.Field{
		{Name: "hosts", Read: func(n *yaml.Node) {
			d.request.hosts = r.words(n, "hosts", "www.example.com", "letters, digits, dots, hyphens and colons", isHost)
		}},
		{Name: "methods", Read: func(n *yaml.Node) {
			d.request.methods = r.words(n, "methods", "GET", "capital letters", isMethod)
		}},
		{Name: "paths", Read: func(n *yaml.Node) {
			d.request.paths = r.words(n, "paths", "/login", "a slash and then printable characters without quotes", isPath)
		}},
		{Name: "assets", Read: func(n *yaml.Node) {
			d.assets, d.assetsAt = r.words(n, "assets", "/style.css", "a slash and then printable characters without quotes", isPath), n
		}},
		{Name: "status", Read: func(n *yaml.Node) { d.request.status = int(r.integer(n, "status", 200, 599)) }},
		{Name: "user_agents", Read: func(n *yaml.Node) {
			d.agents = r.words(n, "user_agents", "curl/8.5.0", "printable characters without quotes and backslashes", isAgent)
		}},
	}
}

// words returns a list of strings that must all be valid.
func (r *reader) words(n *yaml.Node, what, example, of string, valid func(string) bool) (list []string) {
	const most = 2000 // bytes
	for _, each := range r.Sequence(n, what, "write a list: ["+example+"]", "") {
		s, ok := r.Text(each, "an entry of "+what)
		if ok && !valid(s) {
			r.Fail(each, "they consist of "+of, "an entry of %s cannot be %s", what, strictyaml.Quote(s))
		}
		if len(s) > most {
			r.Fail(each, fmt.Sprintf("at most %d are allowed", most), "an entry of %s has %d bytes", what, len(s))
		}
		list = append(list, s)
	}
	return list
}

const letters = "abcdefghijklmnopqrstuvwxyz"

func consists(s, of string) bool { return s != "" && strings.Trim(s, of) == "" }

func isHost(s string) bool   { return consists(s, letters+"0123456789.-:") }
func isMethod(s string) bool { return consists(s, strings.ToUpper(letters)) }

func isPath(s string) bool {
	return strings.HasPrefix(s, "/") && isAgent(s) && !strings.Contains(s, " ")
}

func isAgent(s string) bool {
	return s != "" && !strings.ContainsFunc(s, func(c rune) bool { return c < ' ' || c > '~' || c == '"' || c == '\\' })
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
	or(&d.request.methods, d.word.request.methods, anyMethod)
	or(&d.request.paths, d.word.request.paths, anyPath)
	or(&d.agents, anyAgent)
	if d.request.status == 0 {
		d.request.status = max(d.word.request.status, 200)
	}
	d.looks = []look{newLook(d.request.hosts, d.request.methods, d.request.paths, d.request.status)}
	if _, views := d.kind.(*pages); views {
		or(&d.assets, anyAsset)
		d.looks = append(d.looks, newLook(d.request.hosts, anyMethod, d.assets, d.request.status))
	} else if d.assetsAt != nil {
		r.Fail(d.assetsAt, "leave assets out", "only pages have assets")
	}
}
