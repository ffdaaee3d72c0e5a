package file_test

import (
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/edgelimit/edge/internal/strictyaml"
	rulefile "github.com/edgelimit/edge/rule/file"
)

// checkErrors checks that err is of type Errors, in order and with places in text.
func checkErrors(t *testing.T, text string, err error) {
	t.Helper()
	var errs rulefile.Errors
	if !errors.As(err, &errs) || len(errs) == 0 {
		t.Fatalf("Parse(%q) = %#v, want Errors", text, err)
	}
	lines := 1 + strings.Count(text, "\n")
	before := &rulefile.Error{}
	for i, e := range errs {
		if e.Message == "" || e.File != "r.yaml" {
			t.Errorf("Parse(%q): error %d is %#v, want file and message", text, i, e)
		}
		if e.Line == 0 && (e.Column != 0 || e.Source != "" || e.Excerpt() != "") {
			t.Errorf("Parse(%q): error %d of the whole file is %#v, want no column and no source", text, i, e)
		}
		if e.Line < 0 || e.Line > lines || e.Line > 0 && (e.Column < 1 || e.Source != "" && e.Column > utf8.RuneCountInString(e.Source)+1) {
			t.Errorf("Parse(%q): error %d is at %d:%d in %q, not in the file of %d lines", text, i, e.Line, e.Column, e.Source, lines)
		}
		tooMany := i == strictyaml.MaxErrors && e.Message == "too many errors; the rest are not shown"
		if !tooMany && (e.Line < before.Line || e.Line == before.Line && e.Column < before.Column) {
			t.Errorf("Parse(%q): error %d is at %d:%d, before the one at %d:%d", text, i, e.Line, e.Column, before.Line, before.Column)
		}
		before = e
	}
	if len(errs) > strictyaml.MaxErrors+1 {
		t.Errorf("Parse(%q) = %d errors, want at most %d", text, len(errs), strictyaml.MaxErrors+1)
	}
}

// Errors show nothing of a line that may be a secret, in a file that has no rules.
func TestSecretLines(t *testing.T) {
	const secret = "wJalrXUtnFEMIK7MDENG"
	for _, text := range []string{
		secret, "*" + secret, "'" + secret, "%TAG " + secret, "password = " + secret + "\n", "-----BEGIN KEY-----\n" + secret + "\n",
		"token: " + secret, "token: *" + secret, "a: b\ntoken: " + secret + ": x", "{\n  \"token\": \"" + secret + "\"\n}",
		"{token: " + secret + "}", "token:\n  rules: " + secret + "\n", "a: [\n" + secret, "- " + secret, "rules: []\ntoken: " + secret,
	} {
		_, err := rulefile.Parse("r.yaml", []byte(text))
		errs, ok := err.(rulefile.Errors)
		if !ok {
			t.Fatalf("Parse(%q) = %#v, want Errors", text, err)
		}
		for _, e := range errs {
			if shown := e.Error() + e.Excerpt(); strings.Contains(shown, secret[:8]) {
				t.Errorf("the error in %q shows it: %s", text, shown)
			}
		}
	}
}

func TestExcerpt(t *testing.T) {
	long := "allow: [" + strings.Repeat("192.0.2.0/33, ", 30) + "]"
	for _, test := range []struct {
		name, text string
		error      int
		want       string
	}{
		{"whole file", "", 0, ""},
		{"key", "rules: []\nruels: []\n", 0, "ruels: []\n^"},
		{"value", withKeys("action: blok"), 0, "  action: blok\n          ^"},
		{"value after tabs", "allow: [\t192.0.2.1,\tx]\n", 0, "allow: [\t192.0.2.1,\tx]\n        \t          \t^"},
		{"value after letters of several bytes", withKeys(`match: {paths: ["/é日本😀", x]}`), 0, `  match: {paths: ["/é日本😀", x]}` + "\n                           ^"},
		{"nothing at the end of a line", "rules:\n-\n", 0, "-\n ^"},
		{"line without its CR", "allow: [x]\r\ndeny: [y]\r\n", 1, "deny: [y]\n       ^"},
		{"control character", "rules: []\x1b\n", 0, "rules: []\ufffd\n         ^"},
		{"byte that is not UTF-8", "rules: [] # \xff\n", 0, "rules: [] # \ufffd\n            ^"},
		{"beginning of a long line", long, 0, long[:159] + "…\n        ^"},
		{"middle of a long line", long, 15, "…" + long[139:297] + "…\n" + strings.Repeat(" ", 80) + "^"},
	} {
		t.Run(test.name, func(t *testing.T) {
			_, err := rulefile.Parse("r.yaml", []byte(test.text))
			var errs rulefile.Errors
			if !errors.As(err, &errs) || len(errs) <= test.error {
				t.Fatalf("Parse(%q) = %v, want at least %d errors", test.text, err, test.error+1)
			}
			if got := errs[test.error].Excerpt(); got != test.want {
				t.Errorf("Excerpt of %v\ngot:\n%s\nwant:\n%s", errs[test.error], got, test.want)
			}
		})
	}
	t.Run("end of a long line", func(t *testing.T) {
		e := rulefile.Error{Line: 1, Column: 501, Source: strings.Repeat("x", 500)}
		if got, want := e.Excerpt(), "…"+strings.Repeat("x", 159)+"\n"+strings.Repeat(" ", 160)+"^"; got != want {
			t.Errorf("Excerpt\ngot:\n%s\nwant:\n%s", got, want)
		}
	})
}

// A file that is something else entirely is not read to its end.
func TestParseGivesUp(t *testing.T) {
	for name, text := range map[string]string{
		"networks": "allow: [" + strings.Repeat("x, ", 10_000) + "]\n",
		"rules":    "rules: [" + strings.Repeat("1, ", 10_000) + "]\n",
		"keys":     "{" + strings.Repeat("x: y, ", 10_000) + "}\n",
	} {
		_, err := rulefile.Parse("r.yaml", []byte(text))
		var errs rulefile.Errors
		if !errors.As(err, &errs) || len(errs) != strictyaml.MaxErrors+1 || errs[0].Column > 10 {
			t.Errorf("10,000 errors in %s are reported as %d, the first %v; want the first %d, and that there are more", name, len(errs), errs[0], strictyaml.MaxErrors)
		}
	}
}

func TestErrorsUnwrap(t *testing.T) {
	_, err := rulefile.Parse("r.yaml", []byte("allow: [x]\ndeny: [y]\n"))
	var first *rulefile.Error
	if !errors.As(err, &first) || first.Line != 1 || first.Column != 9 {
		t.Errorf("errors.As(%v) = %v, want the error at 1:9", err, first)
	}
}

func ExampleError_Excerpt() {
	_, err := rulefile.Parse("rules.yaml", []byte("rules:\n- id: login\n  characteristics: [ip]\n  limits: [{threshold: 5, period: 60}]\n"))
	for _, e := range err.(rulefile.Errors) {
		fmt.Printf("%v\n%s\n", e, e.Excerpt())
	}
	// Output:
	// rules.yaml:4:35: period cannot be 60 (write whole days, hours, minutes or seconds, such as 10s, 1m, 1h30m or 7d)
	//   limits: [{threshold: 5, period: 60}]
	//                                   ^
}

// Keys that are not known cost little more than reading them, however many there are.
func TestManyUnknownKeys(t *testing.T) {
	allocated := func(read func()) float64 {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		read()
		runtime.ReadMemStats(&after)
		return float64(after.TotalAlloc - before.TotalAlloc)
	}
	for name, text := range map[string]string{
		"of a rule": "rules:\n - id: a\n" + strings.Repeat("   treshold: 1\n", 30_000),
		"of a file": strings.Repeat("treshold: 1\n", 30_000),
	} {
		plain := allocated(func() { _, _ = strictyaml.Documents([]byte(text), 1) })
		if all := allocated(func() { _, _ = rulefile.Parse("r.yaml", []byte(text)) }); all > 2*plain {
			t.Errorf("unknown keys %s: Parse allocates %.0f bytes, %.0f of them for the YAML", name, all, plain)
		}
	}
}
