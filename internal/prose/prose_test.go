package prose_test

import (
	"testing"

	"github.com/edgelimit/edge/internal/prose"
)

func TestSuggest(t *testing.T) {
	words := []string{"listen", "origin", "rules", "id"}
	for _, test := range []struct{ name, word, want string }{
		{"letter missing", "lisen", "did you mean listen?"},
		{"extra letter", "orrigin", "did you mean origin?"},
		{"wrong letter", "rulex", "did you mean rules?"},
		{"letters swapped", "ruels", "did you mean rules?"},
		{"upper case", "ORIGIN", "did you mean origin?"},
		{"two mistakes in a long word", "lestem", "did you mean listen?"},
		{"two mistakes in a short word", "roles2", "choose from listen, origin, rules and id"},
		{"one mistake in a very short word", "ix", "choose from listen, origin, rules and id"},
		{"nothing like it", "peers", "choose from listen, origin, rules and id"},
		{"very long", "listenlistenlistenlistenlistenlisten", "choose from listen, origin, rules and id"},
		{"empty", "", "choose from listen, origin, rules and id"},
	} {
		if got := prose.Suggest(test.word, words); got != test.want {
			t.Errorf("%s: Suggest(%q) = %q, want %q", test.name, test.word, got, test.want)
		}
	}
	many := []string{"a1", "a2", "a3", "a4", "a5", "a6", "a7", "a8", "a9", "b1", "b2"}
	if got, want := prose.Suggest("zzz", many), "choose from a1, a2, a3, a4, a5, a6, a7 and 4 more"; got != want {
		t.Errorf("Suggest of %d words = %q, want %q", len(many), got, want)
	}
}
