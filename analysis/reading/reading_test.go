package reading_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/edgelimit/edge/analysis/accesslog"
	"github.com/edgelimit/edge/analysis/reading"
	"github.com/edgelimit/edge/internal/prose"
)

// Requests from before 1970 are ignored and reported, whether whole entries are read or not.
func TestBefore1970(t *testing.T) {
	const early, late = "192.0.2.1 - - [31/Dec/1969:23:59:59 +0000] \"GET / HTTP/1.1\" 200 1\n", "192.0.2.1 - - [01/Jan/1970:00:00:00 +0000] \"GET / HTTP/1.1\" 200 1\n"
	for _, test := range []struct {
		name, text string
		times      []int64
		want       string
	}{
		{"one", late + early + late, []int64{0, 0}, "ignored 1 request from before 1970"},
		{"all", early + early, nil, "ignored 2 requests from before 1970"},
	} {
		t.Run(test.name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "access.log")
			if err := os.WriteFile(file, []byte(test.text), 0o600); err != nil {
				t.Fatal(err)
			}
			opened, err := accesslog.Open([]string{file}, nil, accesslog.Options{Format: "clf"})
			if err != nil {
				t.Fatal(err)
			}
			defer opened.Close()
			var reports []string
			log := reading.Log{Log: opened, Report: func(err error, _ string) {
				if prose.Hint(err) == "" {
					t.Errorf("%v: the report has no hint", err)
				}
				reports = append(reports, err.Error())
			}}
			check := func(err error, times []int64) {
				t.Helper()
				if err = log.Explain(err); (err != nil) != (times == nil) {
					t.Errorf("error %v", err)
				}
				if fmt.Sprint(times, reports) != fmt.Sprint(test.times, []string{test.want}) {
					t.Errorf("read %v, reported %q, want %v, %q", times, reports, test.times, test.want)
				}
				reports = nil
			}
			var times []int64
			err = log.Entries(context.Background(), func(e *accesslog.Entry) error { times = append(times, e.Time); return nil })
			check(err, times)
			times = nil
			err = log.Arrivals(context.Background(), func(batch []accesslog.Arrival) error {
				for _, a := range batch {
					times = append(times, a.Time)
				}
				return nil
			})
			check(err, times)
		})
	}
}
