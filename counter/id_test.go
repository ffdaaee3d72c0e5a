package counter_test

import (
	"strings"
	"testing"

	"github.com/edgelimit/edge/counter"
)

// IDs are the same on all nodes, of any version. This one was computed once, and checked with an
// independent implementation of SipHash-2-4-128.
func TestID(t *testing.T) {
	s := secret(t, "correct horse battery staple")
	key := s.Tag([]byte("what is counted apart"))
	id := s.ID(key)
	if got, want := id.String(), "9nf3-w4xd"; got != want {
		t.Errorf("ID = %s, want %s", got, want)
	}
	if other := secret(t, "another, long enough too").ID(key); other == id {
		t.Errorf("two secrets make the same ID %v", id)
	}
	if got := (counter.ID{}).String(); got != "" {
		t.Errorf("the zero ID is %q", got)
	}
	if n := testing.AllocsPerRun(1000, func() { s.ID(key) }); n != 0 {
		t.Errorf("ID allocates %v times, want 0", n)
	}
}

// 10,000 keys all have different IDs, and ParseID reads each of them.
func TestIDsDiffer(t *testing.T) {
	s, seen := secret(t, "correct horse battery staple"), map[counter.ID]bool{}
	for i := range 10_000 {
		id := s.ID(counter.Key{byte(i), byte(i >> 8)})
		if seen[id] {
			t.Errorf("%v twice", id)
		}
		seen[id] = true
		if parsed, ok := counter.ParseID(id.String()); !ok || parsed != id {
			t.Fatalf("ParseID(%s) = %v, %t", id, parsed, ok)
		}
	}
}

func TestParseID(t *testing.T) {
	for text, want := range map[string]string{
		"7kq2-m9xd": "7kq2-m9xd", "7KQ2M9XD": "7kq2-m9xd", "7k q2 m9 xd": "7kq2-m9xd",
		"oOiI-lL10": "0011-1110",
		"":          "", "7kq2-m9x": "", "7kq2-m9xd0": "", "7kq2-m9xu": "", "7kq2-m9x.": "", "7kq2-m9xä": "", strings.Repeat("0", 32): "",
	} {
		id, ok := counter.ParseID(text)
		if id.String() != want || ok != (want != "") {
			t.Errorf("ParseID(%q) = %v, %t, want %q", text, id, ok, want)
		}
	}
}

func BenchmarkID(b *testing.B) {
	s := secret(b, "correct horse battery staple")
	for b.Loop() {
		s.ID(counter.Key{})
	}
}
