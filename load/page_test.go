package load_test

import (
	"bytes"
	"encoding/xml"
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/edgelimit/edge/load"
	"github.com/edgelimit/edge/load/judge"
)

// The page reports the faults of a limiter, too.
func TestPage(t *testing.T) {
	l := &limiter{quotas: []*quota{ten(5 * time.Second)}, deaf: 2}
	log := l.attack(t, load.Options{Source: trafficSource(t), Duration: 20 * time.Second})
	r := log.Report()
	var err error
	if r.Score, err = log.Score(load.JudgeOptions{Rules: l.rules(t), Lag: 20 * time.Millisecond}); err != nil {
		t.Fatal(err)
	}
	var html, text bytes.Buffer
	if err := r.Document().WriteHTML(&html); err != nil {
		t.Fatal(err)
	}
	if err := r.Document().WriteText(&text); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"node_ignores_mitigations", "node-2 lets through", "attackers"} {
		if !strings.Contains(html.String(), want) || !strings.Contains(text.String(), want) {
			t.Errorf("missing %q in the page or the text\n%s", want, text.String())
		}
	}
	d := xml.NewDecoder(&html)
	d.Strict, d.Entity = true, xml.HTMLEntity
	for {
		if _, err := d.Token(); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
	}
	var points uint64
	for _, p := range r.Timeline.Points {
		points += p.Requests
	}
	if points != r.Sending.Requests {
		t.Errorf("the timeline has %d of %d requests", points, r.Sending.Requests)
	}
}

// A run that takes less than a second does not take "0.0 s", and large numbers have separators.
func TestShortRun(t *testing.T) {
	r := load.Report{DurationS: 0.037, Sending: load.Sending{Requests: 1000, RatePerS: 27026.6}}
	var text strings.Builder
	if err := r.Document().WriteText(&text); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"1,000 requests in 37 ms to", "27,027/s in 37 ms"} {
		if !strings.Contains(text.String(), want) {
			t.Errorf("the report lacks %q:\n%s", want, &text)
		}
	}
}

// The report shows how far clients exceeded a threshold.
func TestOvershoot(t *testing.T) {
	score := judge.Score{Overshoot: judge.Spread{Keys: 3, P50: 1, P90: 1200, P99: 1_300_000, Max: 1_300_001}}
	var text strings.Builder
	if err := (&load.Report{Score: &score}).Document().WriteText(&text); err != nil {
		t.Fatal(err)
	}
	if want := "a period   3    1  1,200  1,300,000  1,300,001\n"; !strings.Contains(text.String(), want) {
		t.Errorf("the report lacks %q:\n%s", want, &text)
	}
}
