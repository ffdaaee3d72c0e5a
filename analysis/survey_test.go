package analysis

import (
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/edgelimit/edge/analysis/accesslog"
	rulefile "github.com/edgelimit/edge/rule/file"
)

// After a survey, a PoP makes the same decision about each request as without one, and the report is the same.
func TestSurvey(t *testing.T) {
	dir := t.TempDir()
	rapid.Check(t, func(t *rapid.T) {
		set, err := rulefile.Load(drawRules(t, dir))
		if err != nil {
			t.Fatal(err)
		}
		var clients []byte
		for i := range rapid.SampledFrom([]int{3, 10, 60}).Draw(t, "clients") {
			clients = append(clients, byte(i+1))
		}
		log := drawEntries(t, 240, clients)
		for i := range log {
			if i%5 == 4 {
				log[i].Method = "(" // malformed
			}
		}
		o := EnforcementOptions{Rules: set, Detail: true, PoP: PoPOptions{
			Nodes:   rapid.IntRange(1, 4).Draw(t, "nodes"),
			Shards:  rapid.IntRange(1, 2).Draw(t, "shards"),
			Lag:     rapid.SampledFrom([]time.Duration{time.Microsecond, 20 * time.Millisecond, 3 * time.Second}).Draw(t, "lag"),
			Spread:  rapid.SampledFrom([]Spread{ByConnection, ByRequest}).Draw(t, "spread"),
			waiting: rapid.SampledFrom([]int{2, 10, 100}).Draw(t, "waiting"),
		}}
		memory := rapid.SampledFrom([]int{1 << 10, 1 << 14, 1 << 18}).Draw(t, "memory of the survey")
		play := func(surveys bool) (decided []ruling, report *Enforcement) {
			f, err := NewEnforcer(o)
			if err != nil {
				t.Fatal(err)
			}
			add := f.player.done
			f.player.done = func(r *replayedRequest) {
				d := r.decided[len(f.causes)]
				if !d.verdict.Refused() && d.verdict.String() != "logged" {
					d.until = 0
				}
				decided = append(decided, d)
				add(r)
			}
			if surveys {
				f.surveyor = f.player.survey(f.instant, memory)
				for i := range log {
					f.Survey(&log[i])
				}
			}
			for i := range log {
				f.Add(&log[i])
			}
			return decided, f.Report()
		}
		want, wantReport := play(false)
		got, gotReport := play(true)
		for i := range want {
			if got[i] != want[i] {
				t.Fatalf("request %d: %+v, without a survey %+v", i+1, got[i], want[i])
			}
		}
		if diff := cmp.Diff(wantReport, gotReport); diff != "" {
			t.Errorf("-without +with a survey:\n%s", diff)
		}
	})
}

// newSurveyed returns an Enforcer of a rule with this limit for each address, on two nodes.
func newSurveyed(t *testing.T, limit string) *Enforcer {
	t.Helper()
	set, err := rulefile.Parse("rules.yaml", []byte("rules: [{id: all, characteristics: [ip], limits: ["+limit+"]}]"))
	if err != nil {
		t.Fatal(err)
	}
	f, err := NewEnforcer(EnforcementOptions{Rules: set, PoP: PoPOptions{Nodes: 2}})
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// After a survey, nodes count only requests whose keys may exceed a limit.
func TestSurveyLeavesFewRequests(t *testing.T) {
	f := newSurveyed(t, "{threshold: 5, period: 1m}")
	left := 0
	add := f.player.done
	f.player.done = func(r *replayedRequest) {
		if !r.cold {
			left++
		}
		add(r)
	}
	play := func(add func(*accesslog.Entry)) {
		for i := range int64(70) {
			e := accesslog.Entry{Time: i * 1e6, Client: "192.0.2.1"}
			if i >= 20 {
				e.Client = fmt.Sprint("198.51.100.", i) // one request each
			}
			e.Addr = netip.MustParseAddr(e.Client)
			add(&e)
		}
	}
	play(f.Survey)
	play(f.Add)
	if f.Report(); left != 20 {
		t.Errorf("nodes count %d requests, want the 20 of the client that exceeds the limit", left)
	}
}

// Requests that were surveyed but not added are not in the report.
func TestSurveyWithoutAdd(t *testing.T) {
	f := newSurveyed(t, "{threshold: 1, period: 1s}")
	if !f.Surveys() {
		t.Error("a PoP of two nodes has no use for a survey")
	}
	f.Survey(&accesslog.Entry{})
	if r := f.Report(); r.Requests != 0 || r.Rules[0].Matched != 0 {
		t.Errorf("a log that was only surveyed has the report %+v", r)
	}
}
