package counter_test

import (
	"strings"
	"testing"

	"github.com/edgelimit/edge/counter"
)

func secret(t testing.TB, text string) counter.Secret {
	t.Helper()
	s, err := counter.NewSecret(text)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// The keys are wire protocol: nodes with different keys would count separately. These were computed
// once, and checked with an independent implementation of SipHash-2-4-128.
func TestGoldenKeys(t *testing.T) {
	s := secret(t, "correct horse battery staple")
	tag := s.Tag([]byte("what is counted apart"))
	if got, want := tag.String(), "80ff84477a1ddfb426b4a3859b6401df"; got != want {
		t.Errorf("Tag = %s, want %s", got, want)
	}
	limit := plain(50, minute)
	packed := counter.Limit{Threshold: 50, Period: minute, Layout: counter.Layout{Fields: 6, Bits: 10}}
	for _, tt := range []struct{ name, got, want string }{
		{"a counter", s.CounterItem(tag, limit, 28_000_000).String(), "XqcJ2cmkvJClc0Ll"},
		{"of the next window", s.CounterItem(tag, limit, 28_000_001).String(), "FnAP67l6zLViZQlQ"},
		{"of another period", s.CounterItem(tag, plain(50, 2*minute), 28_000_000).String(), "cR8ktz2cxwtwYCGC"},
		{"of another layout", s.CounterItem(tag, packed, 28_000_000).String(), "TO2OiGZ4vKZH3EXM"},
		{"before the epoch", s.CounterItem(tag, limit, -1).String(), "TIv1vlMKbsxdtOzP"},
		{"after a lift", s.CounterItem(s.After(tag, 1), limit, 28_000_000).String(), "B_UjPzxThEkHEZsH"},
		{"the record", s.RecordItem(tag).String(), "4AeX0J-ffKJ4Dy2Q"},
	} {
		if tt.got != tt.want {
			t.Errorf("%s: key %s, want %s", tt.name, tt.got, tt.want)
		}
		if len(tt.got) != 16 || strings.Trim(tt.got, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_") != "" {
			t.Errorf("%s: key %q is not 16 characters that memcached accepts", tt.name, tt.got)
		}
	}
	if a, b := s.CounterItem(tag, limit, 1).String(), s.CounterItem(tag, plain(99, minute), 1).String(); a != b {
		t.Errorf("a different threshold makes a different counter: %s, %s; edits would lose the counts", a, b)
	}
}

func TestSecret(t *testing.T) {
	if _, err := counter.NewSecret("fifteen bytes.."); err == nil {
		t.Error("a secret of 15 bytes is accepted")
	}
	a, b := secret(t, "one secret, long enough"), secret(t, "another, long enough too")
	if x, y := a.Tag([]byte("same")), b.Tag([]byte("same")); x == y {
		t.Errorf("two secrets make the same key %v", x)
	}
}

func TestTagAllocatesNothing(t *testing.T) {
	s, what := secret(t, "correct horse battery staple"), make([]byte, 40)
	if n := testing.AllocsPerRun(1000, func() { s.Tag(what) }); n != 0 {
		t.Errorf("Tag allocates %v times, want 0", n)
	}
}

func BenchmarkTag(b *testing.B) {
	s, what := secret(b, "correct horse battery staple"), make([]byte, 40)
	b.ReportAllocs()
	for b.Loop() {
		s.Tag(what)
	}
}
