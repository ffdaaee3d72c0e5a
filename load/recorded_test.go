package load_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/edgelimit/edge/analysis/accesslog"
	"github.com/edgelimit/edge/load"
	"github.com/edgelimit/edge/load/mix"
)

// record returns a source of the requests of a log.
func record(t *testing.T, name, text string, speed float64) *load.Recorded {
	t.Helper()
	file := filepath.Join(t.TempDir(), name)
	write(t, file, text)
	log, err := accesslog.Open([]string{file}, nil, accesslog.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return load.NewRecorded(t.Context(), log, speed)
}

// Requests that the log marks as an attack are a separate component, which the judge knows to be an attack.
func TestRecordedAttack(t *testing.T) {
	const text = `{"time":1767366245,"remote_addr":"203.0.113.7","uri":"/","status":200}
{"time":1767366246,"remote_addr":"203.0.113.8","uri":"/","status":200%s}
`
	for mark, want := range map[string][]mix.Component{
		"":                 {{Name: "log"}},
		`,"attack":"true"`: {{Name: "log"}, {Name: "attack", Attack: true}},
	} {
		s := record(t, "access.log", fmt.Sprintf(text, mark), 1)
		var components []int
		for r := (load.Request{}); s.Next(&r); {
			components = append(components, r.Look.Component)
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
		if diff := cmp.Diff(want, s.Components()); diff != "" {
			t.Errorf("components, mark %q (-want +got):\n%s", mark, diff)
		}
		if diff := cmp.Diff([]int{0, len(want) - 1}, components); diff != "" {
			t.Errorf("components of the requests, mark %q (-want +got):\n%s", mark, diff)
		}
	}
}

// A log is sent with its timing, here ten times as fast, with each second's requests spread over it.
func TestRecorded(t *testing.T) {
	const text = `203.0.113.7 - - [02/Jan/2026:15:04:05 +0000] "GET /a?b=c HTTP/1.1" 200 512 "-" "curl/8.5.0"
203.0.113.8 - - [02/Jan/2026:15:04:05 +0000] "POST /login HTTP/1.1" 401 512 "-" "-"
203.0.113.7 - - [02/Jan/2026:15:04:07 +0000] "\x16\x03\x01" 400 0 "-" "-"
2001:db8::5 - - [02/Jan/2026:15:04:08 +0000] "GET / HTTP/1.1" 200 512 "-" "curl/8.5.0"
`
	var saw seen
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		saw.add("%s %s %s by %q", r.Header.Get("X-Forwarded-For"), r.Method, r.RequestURI, r.UserAgent())
	}))
	defer server.Close()
	s := record(t, "access.log", text, 10)
	var due []time.Duration
	for r := (load.Request{}); s.Next(&r); {
		due = append(due, r.Due)
	}
	if diff := cmp.Diff([]time.Duration{0, 50 * time.Millisecond, 200 * time.Millisecond, 300 * time.Millisecond}, due); diff != "" {
		t.Errorf("due times (-want +got):\n%s", diff)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	s = record(t, "access.log", text, 10)
	run(t, load.Options{Targets: []load.Target{target(t, server.URL)}, Source: s, Identity: load.Identity{Forwarded: true}})
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	want := map[string]int{
		`203.0.113.7 GET /a?b=c by "curl/8.5.0"`: 1, `203.0.113.8 POST /login by ""`: 1, `203.0.113.7 GET / by ""`: 1, `2001:db8::5 GET / by "curl/8.5.0"`: 1,
	}
	if diff := cmp.Diff(want, saw.lines); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// The requests of a second are spread over it only if all times are whole seconds.
func TestRecordedTimes(t *testing.T) {
	for _, test := range []struct {
		name, trace string
		want        []time.Duration
	}{
		{"whole seconds", "7 a\n7 b\n8 a\n8 b\n8 c\n8 d\n", []time.Duration{0, 500, 1000, 1250, 1500, 1750}},
		{"milliseconds", "7.000 a\n7.000 b\n7.001 a\n7.002 a\n8.000 a\n8.000 b\n8.001 a\n", []time.Duration{0, 0, 1, 2, 1000, 1000, 1001}},
		{"starting at 0", "0 a\n1 a\n1 b\n", []time.Duration{0, 1000, 1500}},
	} {
		t.Run(test.name, func(t *testing.T) {
			s := record(t, "trace.tsv", strings.ReplaceAll(test.trace, " ", "\t"), 1)
			defer s.Close()
			var due []time.Duration
			for r := (load.Request{}); s.Next(&r); {
				due = append(due, r.Due/time.Millisecond)
			}
			if diff := cmp.Diff(test.want, due); diff != "" {
				t.Errorf("due in ms (-want +got):\n%s", diff)
			}
		})
	}
}

// A source can be closed before its end.
func TestRecordedClosedEarly(t *testing.T) {
	s := record(t, "trace.tsv", strings.Repeat("1700000000\t1\n1700000001\t2\n", 100_000), 1)
	var r load.Request
	if !s.Next(&r) || !r.Addr.Is6() {
		t.Errorf("first request %+v", r)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}
