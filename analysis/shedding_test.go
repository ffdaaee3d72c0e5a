package analysis

import (
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"testing"

	"pgregory.net/rapid"

	"github.com/edgelimit/edge/analysis/accesslog"
	"github.com/edgelimit/edge/rule"
)

// For rules whose keys are shared by clients, an instantPoP decides like a node.
func TestInstantPoPWithSharedKeys(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "labels.txt"), []byte("10.0.0.0/15 one\n10.1.0.0/17 two\n2001:db8::/33 one\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	shed, blocked := 0, 0
	rapid.Check(t, func(t *rapid.T) {
		text := []byte("labels: {provider: {file: labels.txt}}\nrules:\n")
		for i := range rapid.IntRange(1, 5).Draw(t, "rules") {
			characteristics := rapid.SampledFrom([]string{
				"[ip]", "[{first: ['header:x-key', ip]}]", "[network:24/48]", "[network:16/32]", "[network:24/48, host]", "[network:8/16, path]", "['label:provider']", "[host]",
			}).Draw(t, "characteristics")
			action := rapid.SampledFrom([]string{"block", "log", "close"}).Draw(t, "action")
			more := rapid.SampledFrom([]string{"", "", ", count_while_mitigated: true", ", count: {cost: 2}", ", match: {paths: [/login]}"}).Draw(t, "more")
			if i == 0 || characteristics != "[ip]" && characteristics[1] != '{' {
				if i == 0 {
					characteristics = "[network:16/32]"
				}
				action = rapid.SampledFrom([]string{"shed", "shed", "block", "log"}).Draw(t, "action of a shared key")
				more += rapid.SampledFrom([]string{"", ", min_clients: 3", ", min_clients: 5"}).Draw(t, "clients")
			}
			text = fmt.Appendf(text, "- {id: r%d, characteristics: %s, limits: %s, mitigation_timeout: %s, action: %s%s}\n", i, characteristics,
				rapid.SampledFrom([]string{"[{threshold: 3, period: 2s}]", "[{threshold: 5, period: 10s}]", "[{threshold: 2, period: 1s}, {threshold: 8, period: 5s}]", "[{threshold: 4, period: 4s, estimate: fixed}]"}).Draw(t, "limits"),
				rapid.SampledFrom([]string{"0s", "1s", "20s"}).Draw(t, "timeout"), action, more)
		}
		if err := os.WriteFile(filepath.Join(dir, "rules.yaml"), text, 0o600); err != nil {
			t.Fatal(err)
		}
		decide := likeNode(t, filepath.Join(dir, "rules.yaml"))
		now := int64(1e15)
		steps := rapid.SampledFrom([]*rapid.Generator[int64]{
			rapid.Int64Range(-100e3, 400e3), rapid.Int64Range(-600e3, 700e3), rapid.SampledFrom([]int64{0, 0, 500e3, 1e6, 11e6, 700e6}),
		}).Draw(t, "steps")
		for _, step := range rapid.SliceOfN(steps, 1, 200).Draw(t, "microseconds between requests") {
			now += max(0, step)
			e := accesslog.Entry{Time: now, Method: "GET", Status: 200,
				Host: rapid.SampledFrom([]string{"a.example", "a.example", "b.example"}).Draw(t, "host"), Path: rapid.SampledFrom([]string{"/", "/login"}).Draw(t, "path"),
				Addr: netip.AddrFrom4([4]byte{10, rapid.ByteRange(0, 1).Draw(t, "network"), 0, rapid.ByteRange(0, 20).Draw(t, "client")}),
			}
			if rapid.IntRange(0, 3).Draw(t, "header") == 0 {
				e.Header = []accesslog.Field{{Name: "X-Key", Value: rapid.SampledFrom([]string{"a", "b"}).Draw(t, "key")}}
			}
			e.Client = e.Addr.String()
			switch got := decide(&e); {
			case got.level() != refused:
			case got.rule.Action == rule.Shed:
				shed++
			default:
				blocked++
			}
		}
	})
	if !testing.Short() && (shed == 0 || blocked == 0) {
		t.Errorf("%d requests were shed and %d blocked, want some of each", shed, blocked)
	}
}

// A mitigation is extended if that adds at least half of the time left, but not if it adds a microsecond less.
func TestExtendedByHalfOfTimeLeft(t *testing.T) {
	file := filepath.Join(t.TempDir(), "rules.yaml")
	text := "rules: [{id: r, characteristics: ['network:16/32'], limits: [{threshold: 4, period: 4s}], mitigation_timeout: 0s, action: shed}]\n"
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	// Five requests start a mitigation of 4.8 s. One more after `last` extends it to 5.333334 s, if half of the time
	// left is no more than 0.533334 s.
	for last, want := range map[int64]int64{3_733_330: 4_800_000, 3_733_331: 4_800_000, 3_733_332: 5_333_334, 3_733_333: 5_333_334} {
		decide := likeNode(t, file)
		request := func(after int64, client byte) ruling {
			return decide(&accesslog.Entry{Time: 1e15 + after, Addr: netip.AddrFrom4([4]byte{10, 0, 0, client})})
		}
		for range 5 {
			request(0, 1)
		}
		request(last, 1)
		got := ruling{}
		for client := byte(2); client < 60 && got.rule == nil; client++ {
			got = request(last+1, client)
		}
		if got.rule == nil || got.until != 1e15+want {
			t.Errorf("one more request after %d µs: %+v, want shed until %d µs", last, got, want)
		}
	}
}
