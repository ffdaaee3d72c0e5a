package chart_test

import (
	"bytes"
	"encoding/json"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"math"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/edgelimit/edge/internal/chart"
	"github.com/edgelimit/edge/internal/golden"
)

// example has a block of each kind, with text wherever there can be text.
func example(text string) chart.Document {
	from := time.Date(2026, 3, 1, 22, 0, 0, 0, time.UTC)
	return chart.Document{
		Title: "Replay" + text, Lead: "What it is about" + text,
		Run:  chart.Run{Input: "access.log" + text, Command: "edge replay" + text, Version: "v1" + text, Date: from},
		Data: struct{ Requests uint64 }{1234},
		Sections: []chart.Section{{
			Title: "All kinds" + text,
			Blocks: []chart.Block{
				chart.Paragraph("What there is" + text),
				chart.Check{OK: true, Text: "passed" + text},
				chart.Check{Text: "failed" + text},
				chart.Facts{{Name: "requests" + text, Value: "1,234" + text, Note: "of 5 clients" + text}, {Name: "refused", Value: "7"}},
				chart.Area{Title: "Traffic" + text, Note: text, From: from, Step: time.Hour,
					Requests: []uint64{3600, 7200, 0, 1800}, Refused: []uint64{0, 3600, 0, 900}, Name: "requests in 1m" + text},
				chart.Lines{Title: "Curve" + text, Note: "note" + text, X: chart.Axis{Name: "threshold" + text, Scale: chart.Logarithmic}, Y: chart.Axis{Name: "clients" + text, Scale: chart.Logarithmic}, What: "period" + text,
					Cut: 9, CutName: "0.1%" + text, Lines: []chart.Line{
						{Name: "1m" + text, Points: []chart.LinePoint{{X: 5, Y: 400, Tip: "a" + text}, {X: 50, Y: 20, Knee: true}, {X: 500, Y: 3, Name: "500 in 1m" + text}, {X: 5000}}},
						{Name: "1h", Points: []chart.LinePoint{{X: 5, Y: 900}, {X: 5000, Name: "5,000 in 1h"}}},
					}},
				chart.Lines{Title: "Latency" + text, X: chart.Axis{Scale: chart.Time}, Y: chart.Axis{Name: "ms" + text}, Quiet: true, Lines: []chart.Line{
					{Name: "p99" + text, Points: []chart.LinePoint{{X: 1e9, Y: 3}, {X: 1e9 + 1, Y: 7}}},
				}},
				chart.Lines{Title: "Scatter" + text, Note: "note" + text, X: chart.Axis{Name: "bytes" + text, Scale: chart.Logarithmic}, Y: chart.Axis{Name: "wrong %" + text}, Lines: []chart.Line{
					{Name: "best" + text, Points: []chart.LinePoint{{X: 8, Y: 5.6, Name: "fixed" + text, Tip: "b" + text}, {X: 16, Y: .6, Name: "weighted"}, {X: 124, Name: "exact"}}},
					{Name: "beaten", Loose: true, Points: []chart.LinePoint{{X: 32, Y: .7, Name: "beaten"}}},
				}},
				bars(text),
				chart.Histogram{Title: "Peaks" + text, XName: "requests" + text, YName: "clients" + text, Threshold: 10, Name: "10 in 1m" + text,
					Bins: []chart.Bin{{UpTo: 1, N: 100}, {UpTo: 5, N: 20}, {UpTo: 10, N: 0}, {UpTo: 50, N: 3}}},
				chart.Strips{Title: "Clients" + text, Note: text, What: "client" + text, PassedName: "passed" + text, From: from, Step: time.Hour, Rows: []chart.Strip{
					{Name: "203.0.113.8" + text, Passed: []uint64{9, 1, 0, 0}, Refused: []uint64{0, 5, 0, 7}, Held: []bool{false, true, true, true}, Note: "part" + text},
				}},
				chart.Table{Title: "Table" + text, Columns: []chart.Column{{Name: "rule" + text, Sent: true}, {Name: "refused", Numbers: true}}, Rows: []chart.Row{
					{Cells: []string{"one" + text, "12"}, Note: "recommended" + text, Strong: true}, {Cells: []string{"two", "3"}},
				}},
				chart.Code{Title: "Code" + text, Text: "rules:\n  - id: a" + text + "\n"},
			},
		}, {Title: "Nothing" + text}},
	}
}

func bars(text string) chart.Table {
	b := chart.Bars("Sources"+text, "client"+text, chart.Key{Name: "allowed" + text, Color: chart.Red}, chart.Key{Name: "limited", Color: chart.Blue})
	b.Note = "note" + text
	r := b.Add("203.0.113.7"+text, 70, 30, "90%"+text)
	r.Bar, r.Note = []uint64{70, 30}, "since"+text
	b.Add(strings.Repeat("long/", 20), 10, 0, "").Bar = []uint64{10, 0}
	return b
}

func write(t fataler, d chart.Document) []byte {
	var b bytes.Buffer
	if err := d.WriteHTML(&b); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// A fataler is a *testing.T or a *rapid.T.
type fataler interface {
	Fatal(...any)
	Fatalf(string, ...any)
}

func TestGolden(t *testing.T) {
	d := example("")
	var text, markdown bytes.Buffer
	if err := errors.Join(d.WriteText(&text), d.WriteMarkdown(&markdown)); err != nil {
		t.Fatal(err)
	}
	asJSON, err := json.MarshalIndent(d, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	html := write(t, d)
	_, body, _ := bytes.Cut(html, []byte("</style>\n"))
	for name, got := range map[string][]byte{"page.html": body, "page.txt": text.Bytes(), "page.md": markdown.Bytes(), "page.json": asJSON} {
		golden.Check(t, filepath.Join("testdata", name), got)
	}
	check(t, html)
}

// A document is a parsed page.
type document struct {
	elements map[string]int
	text     string // of all elements
}

// check parses a page as XML. It fails if the page uses the network or a script, or draws outside of its plots.
func check(t fataler, html []byte) document {
	d := xml.NewDecoder(bytes.NewReader(html))
	d.Entity = map[string]string{}
	doc := document{elements: map[string]int{}}
	var width, height float64 // of the box of paths
	var text strings.Builder
	for {
		token, err := d.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatalf("not well-formed: %v", err)
		}
		switch token := token.(type) {
		case xml.CharData:
			text.Write(token)
		case xml.StartElement:
			doc.elements[token.Name.Local]++
			percent := map[string]float64{}
			for _, a := range token.Attr {
				name := a.Name.Local
				if strings.HasPrefix(name, "on") || name == "src" || name == "href" || name == "style" {
					t.Fatalf("<%s> has the attribute %s=%q", token.Name.Local, name, a.Value)
				}
				if share, ok := strings.CutSuffix(a.Value, "%"); ok && token.Name.Local != "meta" {
					if percent[name], err = strconv.ParseFloat(share, 64); err != nil {
						t.Fatalf("%s=%q: %v", name, a.Value, err)
					}
				}
				switch {
				case name == "viewBox":
					fmt.Sscanf(a.Value, "0 0 %f %f", &width, &height)
				case name == "d" && class(token) != "leader":
					checkPath(t, a.Value, width, height)
				}
			}
			for of, size := range map[string]string{"x": "width", "cx": "", "y": "height", "cy": ""} {
				if at, end := percent[of], percent[of]+percent[size]; !(at >= -.1 && end >= at && end <= 100.1) {
					t.Fatalf("a %s is at %s = %v%%, and ends at %v%%", token.Name.Local, of, at, end)
				}
			}
		}
	}
	doc.text = text.String()
	for _, outside := range []string{"url(", "@import", "<link", "<img", "<iframe", "fetch(", "XMLHttpRequest", "import("} {
		if bytes.Contains(html, []byte(outside)) {
			t.Fatalf("the page has %q", outside)
		}
	}
	if doc.elements["script"] != 0 || doc.elements["style"] != 1 {
		t.Fatalf("%d scripts and %d styles, want one style", doc.elements["script"], doc.elements["style"])
	}
	return doc
}

func class(e xml.StartElement) string {
	for _, a := range e.Attr {
		if a.Name.Local == "class" {
			return a.Value
		}
	}
	return ""
}

// checkPath fails if a path leaves its box.
func checkPath(t fataler, data string, width, height float64) {
	var x, y float64
	for _, step := range regexp.MustCompile(`[A-Za-z][^A-Za-z]*`).FindAllString(data, -1) {
		var err error
		switch step[0] {
		case 'M', 'L':
			_, err = fmt.Sscan(step[1:], &x, &y)
		case 'h', 'v':
			var by float64
			_, err = fmt.Sscan(step[1:], &by)
			if step[0] == 'h' {
				x += by
			} else {
				y += by
			}
		}
		const over = .05 // a line that is marked ends above its plot
		if err != nil || !(x >= -over*width && x <= (1+over)*width && y >= -over*height && y <= (1+over)*height) {
			t.Fatalf("path %q: %q is at %v %v of %v by %v (%v)", data, step, x, y, width, height, err)
		}
	}
}

// Text from a log does not change the structure of the page, and is shown as it is.
func TestHostileText(t *testing.T) {
	elements := func(text string) (document, map[string]int) {
		doc := check(t, write(t, example(text)))
		for _, name := range []string{"svg", "text", "path"} { // a label may not fit
			delete(doc.elements, name)
		}
		return doc, doc.elements
	}
	_, want := elements("?")
	for _, text := range []string{
		`</script><script>alert(1)</script>`,
		`"><img src=x onerror=alert(1)>`,
		`' onmouseover='alert(1)`,
		`</title></style></svg><svg onload=alert(1)>`,
		`]]> <![CDATA[ <!-- --> &amp; &lt; {{.Title}} \u003cscript`,
		`javascript:alert(1)`,
		"é 漢字 \U0001F600",
	} {
		doc, got := elements(text)
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%q changes the structure (-want +got):\n%s", text, diff)
		}
		for _, whole := range []string{"Replay", "access.log", "All kinds", "What there is", "1,234", "Traffic", "a", "b", "203.0.113.7", "203.0.113.8", "one", "  - id: a", "recommended", "edge replay"} {
			if !strings.Contains(doc.text, whole+text) {
				t.Errorf("the page lacks the text %q", whole+text)
			}
		}
	}
}

// Bytes that are not characters, or control a terminal or the direction of text, are replaced.
func TestControlCharacters(t *testing.T) {
	html := write(t, example("\x00\x1b[2J\u202e\xff\u2028"))
	check(t, html)
	if bytes.ContainsAny(html, "\x00\x1b\u202e\u2028") || !bytes.Contains(html, []byte("Replay\ufffd\ufffd[2J\ufffd\ufffd\ufffd")) {
		t.Error("the page has unprintable characters")
	}
}

// Plots of any numbers stay within their bounds.
func TestPlotBounds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		count := rapid.OneOf(rapid.Uint64Range(0, 20), rapid.Uint64Range(0, 1<<53))
		counts := rapid.SliceOfN(count, 1, 20).Draw(t, "counts")
		positive := rapid.Float64Range(.001, 1e9)
		name := rapid.StringMatching(`[ -~]{0,30}`)
		from, step := time.Unix(rapid.Int64Range(0, 2e9).Draw(t, "from"), 0), time.Duration(1<<rapid.IntRange(0, 24).Draw(t, "step"))*time.Second
		var l, loose chart.Line
		var h chart.Histogram
		b := chart.Bars("", "", chart.Key{}, chart.Key{})
		var r chart.Strips
		for i, n := range counts {
			y := positive.Draw(t, "y")
			if n < 3 {
				y = 0
			}
			loose.Points = append(loose.Points, chart.LinePoint{X: positive.Draw(t, "x"), Y: y, Name: name.Draw(t, "name")})
			l.Points = append(l.Points, chart.LinePoint{X: math.Exp2(float64(i)), Y: float64(n), Name: name.Draw(t, "name")})
			h.Bins = append(h.Bins, chart.Bin{UpTo: math.Exp2(float64(i)), N: n})
			b.Add(name.Draw(t, "name"), n/4, n/3, "12.3%").Bar = []uint64{n / 4, n / 3}
			r.Rows = append(r.Rows, chart.Strip{Name: name.Draw(t, "name"), Passed: counts, Refused: counts})
		}
		h.Threshold, h.Name, r.From, r.Step = h.Bins[len(h.Bins)/2].UpTo, name.Draw(t, "cut"), from, step
		loose.Loose = true
		c := chart.Lines{Lines: []chart.Line{l, loose}, Cut: float64(count.Draw(t, "budget")), CutName: "budget"}
		c.X.Scale, c.Y.Scale = chart.Scale(rapid.IntRange(0, 2).Draw(t, "x scale")), chart.Scale(rapid.IntRange(0, 1).Draw(t, "y scale"))
		a := chart.Area{From: from, Step: step, Requests: counts, Refused: counts}
		check(t, write(t, chart.Document{Sections: []chart.Section{{Blocks: []chart.Block{c, b, a, h, r}}}}))
	})
}

// Empty blocks are not drawn.
func TestEmptyBlocks(t *testing.T) {
	doc := check(t, write(t, chart.Document{Sections: []chart.Section{{Title: "Nothing", Blocks: []chart.Block{
		chart.Area{}, chart.Lines{}, chart.Histogram{}, chart.Strips{}, chart.Table{}, chart.Facts{},
		chart.Table{Keys: []chart.Key{{Name: "n"}}, Columns: chart.Columns("what"), Rows: []chart.Row{{Cells: []string{"none"}, Bar: []uint64{0}}}},
	}}}}))
	if doc.elements["figure"]+doc.elements["svg"]+doc.elements["dl"]+doc.elements["table"] != 0 {
		t.Errorf("the page has %v", doc.elements)
	}
}

func TestTicks(t *testing.T) {
	at := func(text string) float64 {
		v, err := time.Parse(time.DateTime, text)
		if err != nil {
			t.Fatal(err)
		}
		return float64(v.Unix())
	}
	for _, test := range []struct {
		name, kind string
		from, to   float64
		want       string
	}{
		{"counts", "linear", 0, 17, "0 5 10 15 20"},
		{"many", "linear", 0, 11_500, "0 5k 10k 15k"},
		{"less than 1", "linear", 0, .2, "0 0.5 1"},
		{"decades", "logarithmic", 8, 500, "10 20 50 100 200 500"},
		{"many decades", "logarithmic", .002, 3e6, "0.001 0.01 0.1 1 10 100 1k 10k 100k 1M"},
		{"one value", "logarithmic", 10, 10, "10"},
		{"counts from 0", "with zero", 0, 4700, "0 1 10 100 1k"},
		{"few counts", "with zero", 0, 30, "0 1 2 5 10 20"},
		{"a moment", "time", 1e9, 1e9 + 1, "01:46:40 01:46:41"},
		{"seconds", "time", at("2026-03-01 23:59:50"), at("2026-03-02 00:00:05"), "23:59:50 23:59:52 23:59:54 23:59:56 23:59:58 2 Mar 00:00:02 00:00:04"},
		{"hours across a day", "time", at("2026-03-01 20:10:00"), at("2026-03-02 04:00:00"), "21:00 22:00 23:00 2 Mar 01:00 02:00 03:00 04:00"},
		{"two weeks", "time", at("2024-01-26 19:00:00"), at("2024-02-10 10:00:00"), "27 Jan 29 Jan 31 Jan 2 Feb 4 Feb 6 Feb 8 Feb 10 Feb"},
		{"half a year", "time", at("2026-01-15 00:00:00"), at("2026-07-15 00:00:00"), "Feb 2026 Mar 2026 Apr 2026 May 2026 Jun 2026 Jul 2026"},
		{"years", "time", at("2005-04-19 00:00:00"), at("2018-04-26 00:00:00"), "2007 2009 2011 2013 2015 2017"},
	} {
		t.Run(test.name, func(t *testing.T) {
			if got := strings.Join(chart.Ticks(test.kind, test.from, test.to), " "); got != test.want {
				t.Errorf("%s from %v to %v: %q, want %q", test.kind, test.from, test.to, got, test.want)
			}
		})
	}
}

// Whatever the length of a log, axes have labels, and not too many.
func TestTimeTicks(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		from := rapid.Int64Range(0, 4e9).Draw(t, "from")
		span := rapid.OneOf(rapid.Int64Range(2, 100), rapid.Int64Range(2, 1e6), rapid.Int64Range(2, 3e9)).Draw(t, "span")
		names := chart.Ticks("time", float64(from), float64(from+span))
		if len(names) < 1 || len(names) > 12 || slices.ContainsFunc(names, func(name string) bool { return strings.HasPrefix(name, "outside") }) {
			t.Fatalf("ticks %q", names)
		}
	})
}

// A single block is the same as in a document, and shows untrusted text as it is.
func TestHTML(t *testing.T) {
	for _, b := range example("").Sections[0].Blocks {
		part := chart.HTML(b)
		if part == "" || !bytes.Contains(write(t, example("")), []byte(part)) {
			t.Errorf("%T: %q, which the document does not have", b, part)
		}
	}
	part := chart.HTML(chart.Strips{Title: "By rule", Step: time.Second, What: "rule", PassedName: "counted", Rows: []chart.Strip{{Name: "<b>\u202e", Passed: []uint64{1, 2}, Refused: []uint64{0, 3}}}})
	for _, want := range []string{"&lt;b&gt;\ufffd", ">counted</li>", ">rule</th>", ">3</td>"} {
		if !strings.Contains(string(part), want) {
			t.Errorf("no %q in %s", want, part)
		}
	}
	if strings.Contains(string(part), "mitigated, no requests") {
		t.Error("the key names a color that no row has")
	}
}
