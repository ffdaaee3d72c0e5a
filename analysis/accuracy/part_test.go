package accuracy_test

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/edgelimit/edge/analysis/accesslog"
	"github.com/edgelimit/edge/analysis/accuracy"
	"github.com/edgelimit/edge/analysis/figure"
)

// inParts measures one share of the clients after another, and returns the parts as they are read from files.
func inParts(t fataler, arrivals []accesslog.Arrival, o accuracy.Options, of uint32) (parts []*accuracy.Part) {
	for n := range of {
		o.Share = accuracy.Share{N: n + 1, Of: of}
		a, err := accuracy.New(o)
		if err == nil {
			err = a.Add(arrivals)
		}
		if err != nil {
			t.Fatal(err)
		}
		text, err := json.Marshal(a.Part())
		if err != nil {
			t.Fatal(err)
		}
		p := new(accuracy.Part)
		if err := json.Unmarshal(text, p); err != nil {
			t.Fatal(err)
		}
		parts = append(parts, p)
	}
	return parts
}

// written returns a report as JSON and text.
func written(t fataler, r *accuracy.Report) string {
	d := r.Document(figure.Timeline{})
	text, err := json.Marshal(d)
	b := bytes.NewBuffer(text)
	if err == nil {
		err = d.WriteText(b)
	}
	if err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// Merged parts are the report of one run, byte for byte.
func TestPartsMerge(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		arrivals := drawArrivals(t, rapid.Bool().Draw(t, "fine"))
		for i := range arrivals {
			arrivals[i].Client = client(rapid.StringMatching("[a-t]").Draw(t, "client"))
		}
		o := accuracy.Options{
			Limits:  []accuracy.Limit{{rapid.Uint64Range(1, 9).Draw(t, "threshold"), 60e6}, {3, 7e6}, {5, 60e6 * 10}},
			Phases:  rapid.IntRange(1, 3).Draw(t, "phases"),
			Spread:  rapid.Bool().Draw(t, "spread"),
			Workers: rapid.IntRange(1, 3).Draw(t, "workers"),
		}
		if rapid.Bool().Draw(t, "few") {
			o.Estimators = []string{"weighted", "gcra", "exact", "packed_auto"}
		}
		want := written(t, measure(t, arrivals, o))
		for _, of := range []uint32{1, 3, 16} {
			parts := inParts(t, arrivals, o, of)
			merged, err := accuracy.Merge(rapid.Permutation(parts).Draw(t, "order"))
			if err != nil {
				t.Fatal(err)
			}
			if got := written(t, merged); got != want {
				t.Errorf("%d parts:\n%s\nwant\n%s", of, got, want)
			}
		}
	})
}

func TestPartsThatCannotMerge(t *testing.T) {
	arrivals := []accesslog.Arrival{{Time: 1e6, Client: client("a")}, {Time: 2e6, Client: client("b")}, {Time: 2e6, Client: client("c")}}
	minute := accuracy.Options{Limits: []accuracy.Limit{{1, 60e6}}}
	several, phases := minute, minute
	several.Limits, phases.Phases = append(several.Limits, accuracy.Limit{2, 60e6}), 2
	parts := inParts(t, arrivals, minute, 3)
	damaged := *parts[1]
	damaged.Sums = nil
	for _, tt := range []struct {
		name  string
		parts []*accuracy.Part
		want  string
	}{
		{"none", nil, "no part"},
		{"two are missing", parts[1:2], "missing parts: 1/3, 3/3"},
		{"one is given twice", append(parts, parts[1]), "part 2/3 is given twice"},
		{"one of four", append(parts[:2:2], inParts(t, arrivals, minute, 4)[3]), "parts 1/3 and 4/4 do not belong together"},
		{"one of another log", append(parts[:2:2], inParts(t, arrivals[:2], minute, 3)[2]), "parts 1/3 and 3/3 come from different logs"},
		{"one with other limits", append(parts[:2:2], inParts(t, arrivals, several, 3)[2]), "parts 1/3 and 3/3 have different settings"},
		{"one with other phases", append(parts[:2:2], inParts(t, arrivals, phases, 3)[2]), "parts 1/3 and 3/3 have different settings"},
		{"one is damaged", []*accuracy.Part{parts[0], &damaged, parts[2]}, "part 2/3 is damaged"},
	} {
		if _, err := accuracy.Merge(tt.parts); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: error %v, want one with %q", tt.name, err, tt.want)
		}
	}
}

func TestParseShare(t *testing.T) {
	for text, want := range map[string]string{
		"1/1": "", "3/16": "", "16/16": "", "65536/65536": "",
		"0/16": "must be 1/16 to 16/16", "17/16": "must be 1/16 to 16/16",
		"1/0": "the number of parts", "1/65537": "the number of parts",
		"": "such as 3/16", "3": "such as 3/16", "3/16/2": "such as 3/16", "03/16": "such as 3/16", "-1/16": "such as 3/16", "3 /16": "such as 3/16",
	} {
		s, err := accuracy.ParseShare(text)
		switch {
		case want == "" && (err != nil || s.String() != text):
			t.Errorf("%q is parsed as %v, %v", text, s, err)
		case want != "" && (err == nil || !strings.Contains(err.Error(), want)):
			t.Errorf("%q: error %v, want one with %q", text, err, want)
		}
	}
}
