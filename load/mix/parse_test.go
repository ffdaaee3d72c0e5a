package mix_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"

	"github.com/edgelimit/edge/internal/strictyaml"
	"github.com/edgelimit/edge/load/mix"
)

// head begins a file with a component without a kind.
const head = "duration: 1m\ncomponents:\n- name: a\n  "

// Files are rejected with all of their errors. go test -run TestParseInvalid -rewrite rewrites these: read the diff
// before committing it.
func TestParseInvalid(t *testing.T) {
	datadriven.RunTest(t, "testdata/invalid", func(t *testing.T, d *datadriven.TestData) string {
		text := d.Input
		if d.Cmd == "quoted" {
			text, _ = strconv.Unquote(text)
		}
		m, err := mix.Parse("m.yaml", []byte(text))
		if errs := (strictyaml.Errors)(nil); m != nil || !errors.As(err, &errs) {
			t.Errorf("%s: Parse = %v, %v", d.Pos, m, err)
		}
		return fmt.Sprintln(err)
	})
}

func TestExcerpt(t *testing.T) {
	for _, test := range []struct{ name, text, want string }{
		{"in a line", head + "steady: {clients: 1, rate: 7}\n", "  steady: {clients: 1, rate: 7}\n                             ^"},
		{"whole file", "", ""},
		{"long line", "duration: x # " + strings.Repeat("z", 1000), "duration: x # " + strings.Repeat("z", 145) + "…\n          ^"},
		{"control character", "duration: \"\\u0007\" # é\n", "duration: \"\\u0007\" # é\n          ^"},
	} {
		_, err := mix.Parse("m.yaml", []byte(test.text))
		var one *strictyaml.Error
		if !errors.As(err, &one) {
			t.Fatalf("%s: %v", test.name, err)
		}
		errs := err.(strictyaml.Errors)
		if got := errs[len(errs)-1].Excerpt(); got != test.want {
			t.Errorf("%s: excerpt\n%s\nwant\n%s", test.name, got, test.want)
		}
	}
}

func TestManyErrors(t *testing.T) {
	_, err := mix.Parse("m.yaml", []byte("duration: 1m\ncomponents:\n"+strings.Repeat("- {nme: a}\n", 10_000)))
	errs := err.(strictyaml.Errors)
	if last := errs[len(errs)-1].Error(); len(errs) != 21 || last != "m.yaml: too many errors; the rest are not shown" {
		t.Errorf("%d errors, the last one %s", len(errs), last)
	}
}

// Any file is rejected with positions, or generates requests in order without a panic.
func FuzzParse(f *testing.F) {
	invalid, err := os.ReadFile("testdata/invalid")
	if err != nil {
		f.Fatal(err)
	}
	for _, test := range strings.Split(string(invalid), "\nparse\n")[1:] {
		text, _, _ := strings.Cut(test, "\n----\n")
		f.Add([]byte(text))
	}
	bundled, err := filepath.Glob("mixes/*.yaml")
	if err != nil || len(bundled) == 0 {
		f.Fatalf("no bundled mixes: %v", err)
	}
	for _, file := range append(bundled, "testdata/all.yaml") {
		text, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		m, err := mix.Parse("m.yaml", text)
		if err != nil {
			errs, ok := err.(strictyaml.Errors)
			if m != nil || !ok || len(errs) == 0 {
				t.Fatalf("Parse = %v, %#v", m, err)
			}
			for _, e := range errs {
				e.Excerpt()
			}
			return
		}
		for _, c := range m.Components() {
			if c.Clients > 100_000 && c.Kind != "random_keys" {
				return // too many requests
			}
		}
		m.Requests = 1000
		var r mix.Request
		before := m.Start().UnixMicro()
		for s := m.Source(); s.Next(&r); before = r.Time {
			if r.Time < before || !m.Addr(r.Client).IsValid() || r.Path == "" || r.Host == "" {
				t.Fatalf("%+v after %d", r, before)
			}
		}
	})
}
