package prose_test

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"unicode"

	"pgregory.net/rapid"

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

// A message names neither packages of this module nor system calls.
func TestMessage(t *testing.T) {
	for text, want := range map[string]string{
		"pop: reading the gossip keys: open keys: no such file": "reading the gossip keys: keys: no such file",
		"rule: pop: proxy: a":                            "a",
		"operate: a: operate: b":                         "a: b",
		"--secret-file: stat /a/b: permission denied":    "--secret-file: /a/b: permission denied",
		"stat a: no such file":                           "a: no such file",
		"read tcp 192.0.2.1:5->192.0.2.2:6: reset":       "read tcp 192.0.2.1:5->192.0.2.2:6: reset",
		"cannot open a: rule: shard: limit: must be set": "cannot open a: rule: shard: limit: must be set",
	} {
		if got := prose.Message(errors.New(text)); got != want {
			t.Errorf("Message(%q) = %q, want %q", text, got, want)
		}
	}
	all := errors.Join(errors.New("pop: a"), errors.Join(errors.New("b"), errors.New("c")))
	if got, want := prose.Summary(all), "a (and 2 more)"; got != want {
		t.Errorf("Summary(%q) = %q, want %q", all, got, want)
	}
}

// Text from outside cannot move the cursor, change the writing direction or hide characters, and a JSON text keeps its
// meaning.
func TestPrintable(t *testing.T) {
	for _, tt := range []struct{ name, text, want string }{
		{"ordinary text", "Grüße, 世界: é 🦊 \ufffd", "Grüße, 世界: é 🦊 \ufffd"},
		{"a terminal's escape sequence", "\x1b[2J\x07", `\u001b[2J\u0007`},
		{"C1 controls and DEL", "\u009b31m\x7f", `\u009b31m\u007f`},
		{"writing direction", "a\u202eb\u2066c\u200fd\u061c", `a\u202eb\u2066c\u200fd\u061c`},
		{"invisible characters", "\u200b\u00ad\ufeff\u2060\U000e0041", `\u200b\u00ad\ufeff\u2060\udb40\udc41`},
		{"other spaces and lines", "a\u00a0b\u3000c\u2028\r\n\t", `a\u00a0b\u3000c\u2028\u000d` + "\n" + `\u0009`},
		{"not UTF-8", "a\xff\xc3(\xed\xa0\x80", `a\xff\xc3(\xed\xa0\x80`},
	} {
		if got := prose.Printable(tt.text, '\n'); got != tt.want {
			t.Errorf("%s: %q, want %q", tt.name, got, tt.want)
		}
	}
	rapid.Check(t, func(rt *rapid.T) {
		text := rapid.String().Draw(rt, "text")
		document, err := json.Marshal(text)
		if err != nil {
			rt.Fatal(err)
		}
		shown := prose.Printable(string(document))
		var again string
		if err := json.Unmarshal([]byte(shown), &again); err != nil || again != text {
			rt.Fatalf("%s is shown as %s: %q, %v", document, shown, again, err)
		}
		if strings.ContainsFunc(shown, func(r rune) bool { return !unicode.IsPrint(r) }) {
			rt.Fatalf("%q is shown as %q", text, shown)
		}
	})
}
