package deploy_test

import (
	"encoding/json"
	"io/fs"
	"net/url"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"golang.org/x/net/html"

	"github.com/edgelimit/edge/internal/harness"
)

// A sitePage holds the links of a page of the documentation site, and the sections that links may lead to.
type sitePage struct {
	ids, links []string
	current    int    // entries of the navigation that are this page
	heading    string // the first
	text       string
}

// addresses are the attributes whose values browsers load or follow.
var addresses = map[string]bool{"href": true, "src": true, "srcset": true, "action": true, "data": true}

// parsePage reads a page. It reports resources that are not files of the site.
func parsePage(t *testing.T, file string) *sitePage {
	t.Helper()
	doc, err := html.Parse(strings.NewReader(read(t, file)))
	if err != nil {
		t.Fatal(err)
	}
	p := new(sitePage)
	var text strings.Builder
	for n := range doc.Descendants() {
		if n.Type == html.TextNode {
			text.WriteString(n.Data)
		}
		for _, a := range n.Attr {
			switch {
			case a.Key == "id":
				if slices.Contains(p.ids, a.Val) {
					t.Errorf("%s: two elements are called %s", file, a.Val)
				}
				p.ids = append(p.ids, a.Val)
			case a.Key == "aria-current":
				p.current++
			case addresses[a.Key] && n.Data == "a":
				p.links = append(p.links, a.Val)
			case addresses[a.Key] && a.Val != "data:,":
				if strings.Contains(a.Val, ":") || strings.HasPrefix(a.Val, "/") {
					t.Errorf("%s: %s loads %s", file, n.Data, a.Val)
				}
				p.links = append(p.links, a.Val)
			}
		}
		if n.Data == "h1" && p.heading == "" && n.FirstChild != nil {
			p.heading = n.FirstChild.Data
		}
	}
	p.text = text.String()
	return p
}

// The site builds. Its links lead to pages, sections of them, files of the repository, or other sites. It loads only its
// own files, by relative names, so that it can be read from a file system.
func TestSite(t *testing.T) {
	t.Parallel()
	statAllFiles(t)
	harness.Installed(t, "hugo")
	dir := t.TempDir()
	if out, err := exec.Command("../docs/site/build", dir).CombinedOutput(); err != nil {
		t.Fatalf("docs/site/build: %v\n%s", err, out)
	}
	pages := map[string]*sitePage{}
	err := fs.WalkDir(os.DirFS(dir), ".", func(name string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() && name == "playground" {
			return fs.SkipDir // tested by itself
		}
		if err == nil && path.Ext(name) == ".html" {
			pages[name] = parsePage(t, filepath.Join(dir, name))
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	docs, err := filepath.Glob("../docs/*.md")
	if err != nil || len(docs) < 30 {
		t.Fatalf("%d pages in docs, %v", len(docs), err)
	}
	for _, file := range docs {
		if pages[strings.TrimSuffix(filepath.Base(file), ".md")+".html"] == nil {
			t.Errorf("%s is not on the site", file)
		}
	}

	// lead reports whether a link leads somewhere.
	lead := func(from, link string) bool {
		u, err := url.Parse(link)
		if err != nil {
			return false
		}
		if file, ok := strings.CutPrefix(link, "https://github.com/edgelimit/edge/blob/main/"); ok {
			file, _, _ = strings.Cut(file, "#")
			_, err := os.Stat(filepath.Join("..", file))
			return err == nil
		}
		if u.Scheme != "" {
			return true
		}
		if u.Path == "" {
			u.Path = from
		}
		to := pages[u.Path]
		if to == nil {
			_, err := os.Stat(filepath.Join(dir, u.Path))
			return err == nil && u.Fragment == ""
		}
		return u.Fragment == "" || slices.Contains(to.ids, u.Fragment)
	}
	for name, p := range pages {
		if p.current != 1 {
			t.Errorf("%s is %d times in the navigation, want once", name, p.current)
		}
		if p.heading == "" {
			t.Errorf("%s has no heading", name)
		}
		for _, link := range p.links {
			if !lead(name, link) {
				t.Errorf("%s: %s leads nowhere", name, link)
			}
		}
	}
	for _, style := range []string{"site.css", "site.js"} {
		if found := regexp.MustCompile(`https?://|url\(|@import`).FindString(read(t, filepath.Join(dir, style))); found != "" {
			t.Errorf("%s has %s", style, found)
		}
	}

	// The README is not on the site, but on GitHub its links lead to the same sections.
	for _, m := range regexp.MustCompile(`\]\((docs/)?([\w-]+)\.md#([\w-]+)\)`).FindAllStringSubmatch(read(t, "../README.md"), -1) {
		if !lead("", m[2]+".html#"+m[3]) {
			t.Errorf("README.md: %s leads nowhere", m[0])
		}
	}

	readme := read(t, "../README.md")
	_, demo, _ := strings.Cut(readme, "pop --demo\n```\n\n```\n")
	if demo, _, _ = strings.Cut(demo, "```"); len(demo) < 1000 || !strings.Contains(pages["index.html"].text, strings.TrimSpace(demo)) {
		t.Error("the first page does not show the README's demo")
	}

	// The search has every section.
	var found []struct{ Page, Head, URL, Text string }
	index := strings.TrimSuffix(strings.TrimSpace(strings.TrimPrefix(read(t, filepath.Join(dir, "pages.js")), "window.pages = ")), ";")
	if err := json.Unmarshal([]byte(index), &found); err != nil {
		t.Fatal(err)
	}
	for _, s := range found {
		if s.Page == "" || s.Head == "" || !lead("", s.URL) {
			t.Errorf("the search has %+.200v", s)
		}
	}
	if len(found) < 300 {
		t.Errorf("the search has %d sections", len(found))
	}

	harness.Installed(t, "chromium")
	for word, want := range map[string]string{"queue-size": `settings.html#queue_size"`, "edge_queue_depth": `metrics.html#edge_queue_depth"`, "untrusted_proxy": `problems.html#untrusted_proxy"`} {
		out, err := exec.Command("chromium", "--headless", "--no-sandbox", "--disable-gpu", "--user-data-dir="+t.TempDir(), "--virtual-time-budget=10000", "--dump-dom",
			"file://"+filepath.Join(dir, "index.html?q="+word)).Output()
		_, results, _ := strings.Cut(string(out), `<ol id="results"><li><a href="`)
		if err != nil || !strings.HasPrefix(results, want) {
			t.Errorf("a search for %s from the file system finds %.100q, %v; want %s", word, results, err, want)
		}
	}
}
