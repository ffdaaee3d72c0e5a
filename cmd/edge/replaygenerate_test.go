package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/edgelimit/edge/analysis"
	"github.com/edgelimit/edge/analysis/accesslog"
	"github.com/edgelimit/edge/internal/trace"
)

// Overlaying an attack leaves the trace unchanged, and the replay tells the two apart.
func TestOverlay(t *testing.T) {
	requests := trace.Arrivals(t, "xzymo")[:10_000]
	dir := t.TempDir()
	file := func(name, text string) string {
		name = filepath.Join(dir, name)
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return name
	}
	var trace strings.Builder
	for _, a := range requests {
		fmt.Fprintf(&trace, "%d\t%s\n", a.Time/1e6, strings.TrimRight(string(a.Client[:]), "\x00"))
	}
	log := file("trace.tsv", trace.String())
	rules := file("rules.yaml", "rules: [{id: address, characteristics: [ip], limits: [{threshold: 50, period: 1m}]}]")
	command := func(args ...string) []byte {
		t.Helper()
		var stdout, stderr bytes.Buffer
		if code := run(append([]string{"replay"}, args...), &stdout, &stderr); code != 0 {
			t.Fatalf("%v: exit code %d, %s", args, code, stderr.Bytes())
		}
		return stdout.Bytes()
	}
	enforced := func(log string) (e analysis.Enforcement) {
		t.Helper()
		if err := json.Unmarshal(command("rules", rules, "--json", log), &e); err != nil {
			t.Fatal(err)
		}
		return e
	}
	alone := enforced(log)
	for share, want := range map[float64]int{0: 0, 0.5: 20} {
		mix := file("mix.yaml", fmt.Sprintf("duration: 30d\ncomponents:\n- name: bots\n  from: 1d\n  spread: {clients: 3000, networks: 40, shared: %v, requests: 2, rate: 100/s}\n", share))
		laid := file("laid.json", string(command("generate", mix, "--over", log)))
		l, err := accesslog.Open([]string{laid}, nil, accesslog.Options{Need: accesslog.Addr | accesslog.Path})
		if err != nil {
			t.Fatal(err)
		}
		addrs, names := map[accesslog.Client]netip.Addr{}, map[netip.Addr]accesslog.Client{}
		networks, attackers := map[netip.Prefix]bool{}, map[netip.Prefix]int{}
		of := func(a netip.Addr) netip.Prefix { return netip.PrefixFrom(a, 24).Masked() }
		var kept, attack int
		if err := l.Entries(t.Context(), func(e *accesslog.Entry) error {
			if e.Attack {
				attack++
				attackers[of(e.Addr)]++
				return nil
			}
			want := requests[kept]
			if _, known := names[e.Addr]; !known {
				names[e.Addr] = want.Client
			}
			if _, known := addrs[want.Client]; !known {
				addrs[want.Client] = e.Addr
			}
			if e.Time != want.Time || addrs[want.Client] != e.Addr || names[e.Addr] != want.Client {
				return fmt.Errorf("request %d is at %d by %v, want %d by %s, who was %v before", kept, e.Time, e.Addr, want.Time, want.Client, addrs[want.Client])
			}
			networks[of(e.Addr)] = true
			kept++
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
		shared := 0
		for p := range attackers {
			if networks[p] {
				shared++
			}
		}
		if kept != len(requests) || attack != 6000 || len(attackers) != 40 || shared != want {
			t.Errorf("share %v: %d requests, want %d, and %d of the attack from %d networks, of which %d are shared, want 6000, 40 and %d", share, kept, len(requests), attack, len(attackers), shared, want)
		}
		got := enforced(laid)
		if tr := got.Truth; tr == nil || tr.Attack.Requests != 6000 || tr.Attack.Refused != 0 || tr.Legitimate.Requests != uint64(len(requests)) ||
			tr.Legitimate.Refused != alone.Refused || alone.Refused == 0 || tr.Legitimate.Clients != alone.Rules[0].Clients {
			t.Errorf("share %v: %+v, want %d legitimate requests of %d clients to be refused, as in the trace alone", share, got.Truth, alone.Refused, alone.Rules[0].Clients)
		}
	}
}
