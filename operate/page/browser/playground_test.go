package browser

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"

	"github.com/chromedp/chromedp"
)

const root = "../../../"

var built struct {
	once sync.Once
	dir  string // has edge, and the playground in site
	err  error
}

// A playground is the page, served to a tab, with a directory of files for the page and for edge.
type playground struct {
	*tab
	dir  string
	edge string
}

// play opens the playground.
func play(t testing.TB, width int64, scheme string) *playground {
	t.Helper()
	started(t) // before anything is built in vain
	built.once.Do(func() {
		if built.dir, built.err = os.MkdirTemp("", "edge-playground-"); built.err != nil {
			return
		}
		for _, args := range [][]string{
			{"docs/playground/build", built.dir + "/site"},
			{"go", "build", "-trimpath", "-o", built.dir + "/edge", "./cmd/edge"},
		} {
			cmd := exec.Command(args[0], args[1:]...)
			cmd.Dir, cmd.Env = root, append(os.Environ(), "CGO_ENABLED=0")
			if out, err := cmd.CombinedOutput(); err != nil {
				built.err = fmt.Errorf("%v: %w: %s", args, err, out)
			}
		}
	})
	if built.err != nil {
		t.Fatal(built.err)
	}
	p := &playground{dir: t.TempDir(), edge: built.dir + "/edge"}
	files := http.NewServeMux()
	files.Handle("/", http.FileServer(http.Dir(built.dir+"/site")))
	files.Handle("/given/", http.StripPrefix("/given/", http.FileServer(http.Dir(p.dir))))
	server := httptest.NewServer(files)
	t.Cleanup(server.Close)
	p.tab = open(t, width, scheme)
	p.visit(server.URL + "/index.html")
	p.ready()
	return p
}

func (p *playground) ready() {
	p.t.Helper()
	p.until("the page has loaded the program", `document.getElementById('kind').options.length > 2`)
}

// write writes a file for the page and for edge.
func (p *playground) write(name, text string) {
	p.t.Helper()
	if err := os.WriteFile(filepath.Join(p.dir, name), []byte(text), 0o644); err != nil {
		p.t.Fatal(err)
	}
}

// run runs edge, which may fail.
func (p *playground) run(args ...string) (stdout, stderr string) {
	p.t.Helper()
	var out, errs bytes.Buffer
	cmd := exec.Command(p.edge, args...)
	cmd.Dir, cmd.Stdout, cmd.Stderr = p.dir, &out, &errs
	if err := cmd.Run(); cmd.ProcessState == nil {
		p.t.Fatal(err)
	}
	return out.String(), errs.String()
}

// drop drops files on a card of the page.
func (p *playground) drop(card string, names ...string) {
	p.t.Helper()
	eval[any](p.tab, fmt.Sprintf(`window.dropped = (async () => {
		const data = new DataTransfer();
		for (const name of %s) {
			data.items.add(new File([await (await fetch('given/' + encodeURIComponent(name))).blob()], name));
		}
		document.getElementById(%q).dispatchEvent(new DragEvent('drop', {dataTransfer: data, bubbles: true}));
		window.dropped = null;
	})(), null`, quotedList(names), card))
	p.until("the files are dropped", `window.dropped === null`)
}

func quotedList(names []string) string {
	b, _ := json.Marshal(names) // never fails for strings
	return string(b)
}

const state = `document.getElementById('state').textContent`

// replay runs what the page has, and waits for the end.
func (p *playground) replay() {
	p.t.Helper()
	p.click("#run")
	p.until("the run ends", `/^(Done|Failed)/.test(`+state+`)`)
}

func (p *playground) text(id string) string {
	p.t.Helper()
	return eval[string](p.tab, fmt.Sprintf(`document.getElementById(%q).hidden ? '' : document.getElementById(%[1]q).textContent`, id))
}

// problems returns the errors that the page shows.
func (p *playground) problems() string { p.t.Helper(); return p.text("problems") }

// same compares reports of the page with those of edge for the same files.
func (p *playground) same(rules string, logs ...string) {
	p.t.Helper()
	for i, args := range [][]string{{"replay", "rules", rules}, {"replay", "sweep"}, {"replay"}} {
		args = append(append(args, "--json", "--html", "page.html"), logs...)
		stdout, stderr := p.run(args...)
		if i == 0 {
			equal(p.t, fmt.Sprint(logs, ", complaints"), p.problems(), stderr)
		}
		frame := fmt.Sprintf(`document.getElementById('%s')`, []string{"enforcement", "sweep", "overview"}[i])
		if there := eval[bool](p.tab, frame+` !== null`); !there || stdout == "" {
			if there || stdout != "" {
				p.t.Errorf("%v: the page has a report: %v; edge writes %q", args, there, stdout)
			}
			continue
		}
		equal(p.t, fmt.Sprint(args, " in JSON"), numbers(p.t, eval[string](p.tab, frame+`.dataset.json`)), numbers(p.t, stdout))
		page, err := os.ReadFile(filepath.Join(p.dir, "page.html"))
		if err != nil {
			p.t.Fatal(err)
		}
		equal(p.t, fmt.Sprint(args, " as a page"), plots(eval[string](p.tab, frame+`.srcdoc`)), plots(string(page)))
	}
}

// equal reports the first line in which what the page shows differs from what edge writes.
func equal(t testing.TB, name, page, edge string) {
	t.Helper()
	if page == edge {
		return
	}
	got, want := strings.Split(page, "\n"), strings.Split(edge, "\n")
	for i := range min(len(got), len(want)) {
		if got[i] != want[i] {
			t.Errorf("%s: the page shows\n%s\nedge writes\n%s", name, got[i], want[i])
			return
		}
	}
	t.Errorf("%s: the page shows %d lines, edge writes %d", name, len(got), len(want))
}

// numbers returns JSON without what differs between two runs, and without suggestions for a shell.
func numbers(t testing.TB, text string) string {
	t.Helper()
	var all map[string]any
	if err := json.Unmarshal([]byte(text), &all); err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	for _, name := range []string{"command", "version", "date", "next"} {
		delete(all, name)
	}
	b, _ := json.MarshalIndent(all, "", " ") // it was JSON
	return string(b)
}

var aboutRun = regexp.MustCompile(`(?s)<p class="run">.*?</p>\n|<section>\n<h2>What to try next</h2>.*?</section>\n`)

func plots(page string) string { return aboutRun.ReplaceAllString(page, "") }

const limits = `rules:
  - {id: minute, characteristics: [ip], limits: [{threshold: 20, period: 1m}]}
  - {id: login, match: {methods: [POST]}, characteristics: [ip, path], limits: [{threshold: 5, period: 10s}], mitigation_timeout: 1m}
  - {id: agents, characteristics: ["header:user-agent"], limits: [{threshold: 50, period: 1h}], action: log}
`

// The page shows the same results as edge check, edge import and edge replay.
func TestPlaygroundEqualsCommands(t *testing.T) {
	p := play(t, 1400, "light")
	p.write("rules.yaml", limits)
	p.drop("rules-card", "rules.yaml")
	p.until("the page has the rules", `document.getElementById('config').value.includes('agents')`)

	log, _ := p.run("replay", "generate", "attack", "--requests", "20000", "--output-format", "combined")
	lines := strings.SplitAfter(log, "\n")
	p.write("access.log", log)
	p.write("mixed.log", strings.Join(lines[:50], "")+"this is no request\nnor is this\n"+strings.Join(lines[50:90], ""))
	p.write("errors.log", "one line\nanother line\n"+lines[0])
	p.write("empty.log", "")
	p.write("binary.log", "\x7fELF\x02\x01\x01\x00\x00\xff\xfe\xfd\x00\x00")
	p.write("late.log", strings.Join(lines[10000:10500], "")+strings.Join(lines[:500], ""))
	var packed bytes.Buffer
	z := gzip.NewWriter(&packed)
	z.Write([]byte(log))
	z.Close()
	p.write("access.log.gz", packed.String())
	p.write("cut.log.gz", packed.String()[:packed.Len()/2])
	for _, logs := range [][]string{{"errors.log"}, {"empty.log"}, {"access.log"}, {"access.log.gz"}, {"cut.log.gz"}, {"mixed.log"}, {"binary.log"}, {"late.log"}, {"late.log", "access.log"}} {
		p.drop("log-card", logs...)
		p.replay()
		p.same("rules.yaml", logs...)
	}
	text, _ := p.run("check", "rules.yaml")
	equal(t, "check", p.text("text"), text)
	checked, _ := p.run("check", "--json", "rules.yaml")
	equal(t, "check --json", numbers(t, eval[string](p.tab, `document.getElementById('rules').dataset.json`)), numbers(t, checked))

	for kind, file := range map[string]string{"nginx": "docs/playground/examples/nginx.conf", "ingress-nginx": "rule/translate/testdata/ingress-nginx-shop.yaml", "envoy-ratelimit": "rule/translate/testdata/envoy-ratelimit-shop.yaml"} {
		text, err := os.ReadFile(root + file)
		if err != nil {
			t.Fatal(err)
		}
		name := map[string]string{"nginx": "nginx.conf", "ingress-nginx": "ingress.yaml", "envoy-ratelimit": "ratelimit.yaml"}[kind]
		p.write(name, string(text))
		p.drop("rules-card", name)
		p.until("the page has the configuration", `document.getElementById('kind').value === '`+kind+`'`)
		p.drop("log-card", "access.log")
		p.replay()
		imported, _ := p.run("import", kind, name)
		equal(t, "import "+kind, p.text("imported-text"), imported)
		p.write("imported.yaml", imported)
		p.same("imported.yaml", "access.log")
	}
}

// Logs of many programs give the same reports, and the same complaints.
func TestPlaygroundReadsFormats(t *testing.T) {
	const formats = root + "../shared/formats"
	if _, err := os.Stat(formats); err != nil {
		t.Skip("../shared/formats is missing")
	}
	p := play(t, 1400, "light")
	p.write("rules.yaml", limits)
	p.drop("rules-card", "rules.yaml")
	err := filepath.WalkDir(formats, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || d.Name() == "README.md" {
			return err
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		p.write(d.Name(), string(text))
		p.drop("log-card", d.Name())
		p.replay()
		p.same("rules.yaml", d.Name())
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// Errors in rules, and in a format, are those of edge, with their lines.
func TestPlaygroundReportsErrors(t *testing.T) {
	p := play(t, 1400, "light")
	for _, rules := range []string{
		"rules:\n  - id: a\n    characteristics: [ipp]\n    limits: [{threshold: 5, period: 1m}]\n",
		"rules:\n  - {id: a, limits: [{threshold: 0}]}\n  - {id: a, oops: 1}\n",
		"rules: [",
		"just text",
		"\x00\x01\x02",
	} {
		p.write("rules.yaml", rules)
		p.set("config", rules)
		p.set("kind", "edge")
		p.replay()
		_, stderr := p.run("check", "rules.yaml")
		equal(t, rules, p.problems(), stderr)
	}
	p.write("access.log", "10.0.0.1 - - [01/Jan/2026:00:00:00 +0000] \"GET / HTTP/1.1\" 200 1\n")
	p.set("config", limits)
	p.drop("log-card", "access.log")
	p.set("format", "combind")
	p.replay()
	if got := p.problems(); !strings.Contains(got, "combind") || !strings.Contains(got, "hint: did you mean") {
		t.Errorf("the page says %q about an unknown format", got)
	}
}

// A run can be stopped while it reads. The page stays alive, and runs again.
func TestPlaygroundCancels(t *testing.T) {
	p := play(t, 1400, "light")
	log, _ := p.run("replay", "generate", "attack", "--requests", "20000", "--output-format", "combined")
	p.write("long.log", strings.Repeat(log, 50))
	p.write("access.log", log)
	p.set("config", limits)
	p.drop("log-card", "long.log")
	p.click("#run")
	p.until("it reads", `document.getElementById('progress').value > 0 && `+state+`.endsWith('MB read')`)
	p.click("#cancel")
	p.until("it has stopped", state+` === 'Cancelled' && document.getElementById('cancel').hidden`)
	p.drop("log-card", "access.log")
	p.replay()
	if got := eval[int](p.tab, `document.querySelectorAll('#pages iframe').length`); got != 3 {
		t.Errorf("after it was stopped, the page has %d reports: %s", got, p.problems())
	}
}

// A link carries rules. One that is damaged, or that would fill the memory, is refused.
func TestPlaygroundLink(t *testing.T) {
	p := play(t, 1400, "light")
	p.set("config", limits)
	p.set("format", "combined")
	p.click("#link")
	p.until("the link is made", `location.hash.length > 10`)
	link := eval[string](p.tab, `location.href`)
	p.visit("about:blank")
	p.visit(link)
	p.ready()
	p.until("the rules are back", `document.getElementById('config').value === `+quoted(limits)+` && document.getElementById('format').value === 'combined'`)
	eval[any](p.tab, `location.hash = 'broken', null`)
	p.until("the page complains", `document.getElementById('problems').textContent.includes('the link is damaged')`)
	eval[any](p.tab, `navigator.clipboard.writeText = () => new Promise((done) => { window.copied = done; }), null`)
	p.set("config", strings.Repeat("a", 1<<20)+"\n")
	p.click("#link")
	p.until("the link is copied", `window.copied`)
	long := eval[string](p.tab, `(() => { let s = ''; let x = 1; while (s.length < 1e5) { x = x * 48271 % 2147483647; s += x.toString(36); } return s; })()`)
	p.set("config", long)
	p.click("#link")
	p.until("it is too long", state+`.includes('too long for a link')`)
	eval[any](p.tab, `window.copied(), null`) // the older link ends late, and must not say so
	p.until("the browser is idle", `(window.idle ??= (setTimeout(() => { window.idle = 'yes'; }, 0), 'no')) === 'yes'`)
	if got := eval[string](p.tab, state); !strings.Contains(got, "too long for a link") {
		t.Errorf("after an older link was copied, the page says %q", got)
	}
}

// Neither the page nor its workers can connect to another server.
func TestPlaygroundStaysAtHome(t *testing.T) {
	p := play(t, 1400, "light")
	p.expect("Content Security Policy")
	p.expect("Refused to connect")
	reached := make(chan string, 10)
	other := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { reached <- r.URL.Path }))
	defer other.Close()
	for _, from := range []string{"page", "worker"} {
		url := other.URL + "/" + from
		script := fmt.Sprintf(`fetch(%q, {mode: 'no-cors'}).then(() => 'reached', () => 'refused')`, url)
		if from == "worker" {
			script = fmt.Sprintf(`new Promise((done) => { new Worker(URL.createObjectURL(new Blob([%s]))).onmessage = (e) => done(e.data); })`, quoted(script+".then(postMessage)"))
		}
		eval[any](p.tab, `window.outcome = '', `+script+`.then((o) => { window.outcome = o; }), null`)
		p.until("the "+from+" has tried", `window.outcome !== ''`)
		if got := eval[string](p.tab, `window.outcome`); got != "refused" {
			t.Errorf("%s: a connection to another server is %s", from, got)
		}
	}
	select {
	case from := <-reached:
		t.Errorf("another server was asked for %s", from)
	default:
	}
}

// All files of the page, compressed, have at most 6 MB.
func TestPlaygroundSize(t *testing.T) {
	play(t, 1400, "light")
	var size int64
	err := filepath.WalkDir(built.dir+"/site", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		var packed bytes.Buffer
		z, _ := gzip.NewWriterLevel(&packed, gzip.BestCompression) // the level is valid
		z.Write(text)
		z.Close()
		size += int64(min(packed.Len(), len(text)))
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%.2f MB", float64(size)/1e6)
	if size > 6e6 {
		t.Errorf("the playground has %d bytes, compressed", size)
	}
}

// Every example runs when it is chosen, and nothing is wider than the screen. EDGE_SCREENSHOTS may name a directory for
// screenshots.
func TestPlaygroundLayout(t *testing.T) {
	dir := os.Getenv("EDGE_SCREENSHOTS")
	p := play(t, 1400, "light")
	for i := 1; i <= 4; i++ {
		eval[any](p.tab, fmt.Sprintf(`{`+state+` = ''; const e = document.getElementById('example'); e.selectedIndex = %d; e.dispatchEvent(new Event('change')); null}`, i))
		p.until("the example runs", fmt.Sprintf(`document.getElementById('example').selectedIndex === %d && `+state+`.startsWith('Done') && document.querySelectorAll('#pages iframe').length === 3`, i))
		for _, width := range []int64{1400, 800, 360} {
			for _, scheme := range []string{"light", "dark"} {
				p.resize(width, scheme)
				if got := eval[int64](p.tab, `document.documentElement.scrollWidth`); got > width {
					t.Errorf("example %d: %d pixels wide on a screen of %d", i, got, width)
				}
				if dir == "" {
					continue
				}
				picture, err := chromedp.Run(p.tab, chromedp.FullScreenshot(100))
				if err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(filepath.Join(dir, fmt.Sprintf("playground-%d-%s-%d.png", width, scheme, i)), picture, 0o644); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
}

// BenchmarkPlayground measures how long the page takes for a million lines.
func BenchmarkPlayground(b *testing.B) {
	p := play(b, 1400, "light")
	log, _ := p.run("replay", "generate", "cloudflare", "--requests", "1000000", "--output-format", "combined")
	p.write("access.log", log)
	rules, err := os.ReadFile(root + "cmd/edge/sample.yaml")
	if err != nil {
		b.Fatal(err)
	}
	p.set("config", string(rules))
	p.drop("log-card", "access.log")
	for b.Loop() {
		p.replay()
	}
	if problems := p.problems(); strings.Contains(problems, "hint") {
		b.Error(problems)
	}
}
