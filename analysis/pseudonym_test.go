package analysis_test

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"github.com/edgelimit/edge/analysis"
)

// Names of clients appear in no output unless they have passed through the Namer.
func TestPseudonyms(t *testing.T) {
	name := analysis.Pseudonyms([]byte("a key"))
	if a, b := name("192.0.2.1"), name("192.0.2.2"); a == b || a != name("192.0.2.1") || a != analysis.Pseudonyms([]byte("a key"))("192.0.2.1") {
		t.Errorf("pseudonyms %s and %s are equal or not stable", a, b)
	}
	if got, want := name("192.0.2.1"), "client-72ec07d2e3abea38"; got != want {
		t.Errorf("pseudonym %s, want %s, which openssl computed", got, want)
	}
	if a, b := analysis.Pseudonyms(nil)("x"), analysis.Pseudonyms(nil)("x"); a == b {
		t.Error("two runs without a key have the same pseudonyms")
	}
	report := sweep(t, office(), analysis.SweepOptions{ReportOptions: analysis.ReportOptions{Name: name}})
	asJSON, err := json.Marshal(report)
	if err != nil {
		t.Fatal(err)
	}
	var text bytes.Buffer
	if err := report.Document().WriteText(&text); err != nil {
		t.Fatal(err)
	}
	for format, out := range map[string]string{"JSON": string(asJSON), "text": text.String()} {
		if strings.Contains(out, "203.0.113.") || !strings.Contains(out, name("203.0.113.3")) {
			t.Errorf("the %s contains an address, or lacks a pseudonym:\n%s", format, out)
		}
	}
}
