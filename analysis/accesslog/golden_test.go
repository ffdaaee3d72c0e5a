package accesslog_test

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/edgelimit/edge/analysis/accesslog"
	"github.com/edgelimit/edge/internal/golden"
)

// dump returns everything that l returns, as text.
func dump(t *testing.T, l *accesslog.Log) string {
	t.Helper()
	var text strings.Builder
	if err := l.Entries(t.Context(), func(e *accesslog.Entry) error {
		fmt.Fprintf(&text, "%s %q", time.UnixMicro(e.Time).UTC().Format("2006-01-02T15:04:05.999999Z"), e.Client)
		if e.Addr.IsValid() {
			fmt.Fprintf(&text, " = %s", e.Addr)
		}
		fmt.Fprintf(&text, "\n\t%q %q %q %q %d", e.Method, e.Host, e.Path, e.Query, e.Status)
		for _, f := range e.Header {
			fmt.Fprintf(&text, "\n\t%s: %q", f.Name, f.Value)
		}
		if e.Attack {
			text.WriteString("\n\tattack")
		}
		text.WriteByte('\n')
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	s := l.Stats()
	fmt.Fprintf(&text, "\n%s: %d entries in %d lines, %d malformed\n", s.Files[0].Format, s.Entries, s.Lines, s.Malformed)
	for _, sample := range s.Samples {
		fmt.Fprintf(&text, "line %d: %s: %.60q\n", sample.Line, sample.Reason, sample.Text)
	}
	return text.String()
}

// Every format returns the fields that its documentation describes. The lines are made up: read the diff before committing.
func TestFormatFields(t *testing.T) {
	logs, err := filepath.Glob(filepath.Join("testdata", "formats", "*.log"))
	if err != nil || len(logs) == 0 {
		t.Fatal(logs, err)
	}
	for _, f := range accesslog.Formats() {
		if name := filepath.Join("testdata", "formats", f.Name+".log"); !slices.Contains(logs, name) {
			t.Errorf("add lines of the format %s to %s, and run this test with -update", f.Name, name)
		}
	}
	for _, name := range logs {
		t.Run(filepath.Base(name), func(t *testing.T) {
			l, err := accesslog.Open([]string{name}, nil, accesslog.Options{})
			if err != nil {
				t.Fatal(err)
			}
			golden.Check(t, strings.TrimSuffix(name, ".log")+".golden", []byte(dump(t, l)))
		})
	}
}

// Every example in the help is detected as its format, and has a client.
func TestExamples(t *testing.T) {
	// Fields that a format does not have.
	methods := map[string]string{"bunny": ""}
	statuses := map[string]int{"ssl_request_log": 0}
	for _, f := range accesslog.Formats() {
		method, status := "GET", 200
		if m, untold := methods[f.Name]; untold {
			method = m
		}
		if s, untold := statuses[f.Name]; untold {
			status = s
		}
		t.Run(f.Name, func(t *testing.T) {
			for _, format := range []string{"", f.Name} {
				l, err := accesslog.Open([]string{"-"}, strings.NewReader(examples[f.Name]), accesslog.Options{Format: format})
				if err != nil {
					t.Fatal(err)
				}
				var clients []string
				if err := l.Entries(t.Context(), func(e *accesslog.Entry) error {
					clients = append(clients, strings.Clone(e.Client))
					if f.Name != "trace" && (e.Method != method || e.Path != "/a" && e.Path != "/bucket/a" || e.Query != "b=c" || e.Status != status) {
						t.Errorf("%s %s?%s %d, want %s /a?b=c %d", e.Method, e.Path, e.Query, e.Status, method, status)
					}
					if at := time.UnixMicro(e.Time).UTC().Truncate(time.Second); at.Format(time.DateTime) != "2026-01-02 15:04:05" {
						t.Errorf("time %v", at)
					}
					return nil
				}); err != nil {
					t.Fatal(err)
				}
				if diff := cmp.Diff([]string{"203.0.113.7"}, clients); diff != "" {
					t.Errorf("clients (-want +got):\n%s", diff)
				}
				if got := l.Stats().Files[0].Format; got != f.Name {
					t.Errorf("detected as %s", got)
				}
			}
		})
	}
}
