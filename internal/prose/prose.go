// Package prose puts lists, quotes, guesses, durations and text from outside into the sentences of errors and
// descriptions.
package prose

import (
	"cmp"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"
)

// Texts returns the result of text for each element of list.
func Texts[T any](list []T, text func(T) string) []string {
	all := make([]string, len(list))
	for i, element := range list {
		all[i] = text(element)
	}
	return all
}

// Enumerate joins list as prose does: a, b or c. It shortens long lists: a, b and 7 more.
func Enumerate(list []string, conjunction string) string {
	const most = 10
	if n := len(list); n > most {
		shown := most - 3
		list = append(list[:shown:shown], fmt.Sprintf("%d more", n-shown))
		conjunction = "and"
	}
	return EnumerateAll(list, conjunction)
}

// EnumerateAll is like Enumerate, but does not shorten the list.
func EnumerateAll(list []string, conjunction string) string {
	last := len(list) - 1
	if last < 1 {
		return strings.Join(list, "")
	}
	return strings.Join(list[:last], ", ") + " " + conjunction + " " + list[last]
}

// FirstThree joins names, and abbreviates long lists.
func FirstThree(names []string) string {
	if more := len(names) - 3; more > 0 {
		return fmt.Sprintf("%s and %d more", strings.Join(names[:3], ", "), more)
	}
	return strings.Join(names, ", ")
}

// packages matches the package of this module with which an error begins: users do not need it. inner matches system
// calls that package os names, and packages inside an error except those whose names are also words of settings.
var (
	packages = regexp.MustCompile(`^(accesslog|accuracy|analysis|async|cases|count|counter|gossip|http1|limit|load|` +
		`mitigation|mix|operate|pop|proxy|ring|rule|shard|translate): `)
	inner = regexp.MustCompile(`(^|: )(?:(?:(?:accesslog|accuracy|analysis|async|counter|http1|mitigation|operate|pop|` +
		`proxy|translate): )+|(?:l?stat|open|read) (\S+: ))`)
)

// Message returns the text of err as users see it, without packages and system calls.
func Message(err error) string {
	return inner.ReplaceAllString(packages.ReplaceAllLiteralString(err.Error(), ""), "$1$2")
}

// Summary returns the message of the first error that err joins, and says how many others there are.
func Summary(err error) string {
	all := SingleErrors(err)
	if more := len(all) - 1; more > 0 {
		return fmt.Sprintf("%s (and %d more)", Message(all[0]), more)
	}
	return Message(all[0])
}

// Hint returns the hint of err, which says what to do about it, or "".
func Hint(err error) string {
	var hinted interface{ Hint() string }
	if errors.As(err, &hinted) {
		return hinted.Hint()
	}
	return ""
}

// SingleErrors returns the errors that err joins, including nested ones, or nil if err is nil. Of errors with the same
// text, such as those of all nodes of a pop.Local, it returns the first.
func SingleErrors(err error) (all []error) {
	if err == nil {
		return nil
	}
	many, ok := err.(interface{ Unwrap() []error })
	if !ok {
		return []error{err}
	}
	for _, joined := range many.Unwrap() {
		for _, e := range SingleErrors(joined) {
			if !slices.ContainsFunc(all, func(o error) bool { return o.Error() == e.Error() }) {
				all = append(all, e)
			}
		}
	}
	return all
}

// Quote quotes s, and shortens it if it is long.
func Quote(s string) string {
	const most = 60
	if letters := []rune(s); len(letters) > most {
		return fmt.Sprintf("%q…", string(letters[:most]))
	}
	return fmt.Sprintf("%q", s)
}

// Guess returns the word in words that s probably means, or "".
func Guess(s string, words []string) string {
	best, least := "", 3
	for _, w := range words {
		if n := distance(strings.ToLower(s), w); n < least && n <= len(w)/3 {
			best, least = w, n
		}
	}
	return best
}

// Meant returns a hint that names the word in words that s probably means, or "".
func Meant(s string, words []string) string {
	if best := Guess(s, words); best != "" {
		return fmt.Sprintf("did you mean %s?", best)
	}
	return ""
}

// Suggest returns a hint that names the word in words that s probably means, or else enumerates words.
func Suggest(s string, words []string) string {
	return cmp.Or(Meant(s, words), "choose from "+Enumerate(words, "and"))
}

// distance returns how many bytes must be inserted, deleted, replaced or swapped with their neighbor to
// turn a into b. If there are more than two, it may return any number above two.
func distance(a, b string) int {
	if n := max(len(a)-len(b), len(b)-len(a)); n > 2 || len(a) > 32 {
		return max(n, 3)
	}
	rows := make([][]int, len(a)+1)
	for i := range rows {
		rows[i] = make([]int, len(b)+1)
		rows[i][0] = i
	}
	for j := range rows[0] {
		rows[0][j] = j
	}
	for i := 1; i <= len(a); i++ {
		for j := 1; j <= len(b); j++ {
			change := 1
			if a[i-1] == b[j-1] {
				change = 0
			}
			rows[i][j] = min(rows[i-1][j]+1, rows[i][j-1]+1, rows[i-1][j-1]+change)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				rows[i][j] = min(rows[i][j], rows[i-2][j-2]+1)
			}
		}
	}
	return rows[len(a)][len(b)]
}

// Printable returns text from outside with each character that would not be seen, or that a terminal would obey, as
// JSON writes it: \u202e. These are control characters, format characters such as those that change the writing
// direction, and spaces other than the ordinary one. A byte that is not UTF-8 becomes \xff. Characters in kept stay,
// such as the newlines between lines.
func Printable(text string, kept ...rune) string {
	hidden := func(r rune) bool { return !unicode.IsPrint(r) && !slices.Contains(kept, r) }
	if utf8.ValidString(text) && !strings.ContainsFunc(text, hidden) {
		return text
	}
	var b []byte
	for len(text) > 0 {
		r, n := utf8.DecodeRuneInString(text)
		switch {
		case r == utf8.RuneError && n == 1:
			b = fmt.Appendf(b, `\x%02x`, text[0])
		case hidden(r):
			for _, unit := range utf16.Encode([]rune{r}) {
				b = fmt.Appendf(b, `\u%04x`, unit)
			}
		default:
			b = append(b, text[:n]...)
		}
		text = text[n:]
	}
	return string(b)
}

// Wrapped returns text in lines of at most width characters, except for longer words.
func Wrapped(text string, width int) (lines []string) {
	line := ""
	for _, word := range strings.Fields(text) {
		if line != "" && utf8.RuneCountInString(line)+1+utf8.RuneCountInString(word) > width {
			lines, line = append(lines, line), ""
		}
		line = strings.TrimLeft(line+" "+word, " ")
	}
	return append(lines, line)
}

// Paragraph returns text in lines of at most width characters, except for longer words, each after prefix.
func Paragraph(text string, width int, prefix string) string {
	return prefix + strings.Join(Wrapped(text, width), "\n"+prefix)
}
