package translate

// Regular expressions that say no more than a rule's paths can.

import (
	"regexp/syntax"
	"slices"
	"strings"
)

// mostPatterns bounds how many alternatives one expression may have.
const mostPatterns = 64

// patternsOf returns what expr matches, as texts that end in * where anything may follow. broader
// says that they match more than expr does. ok is false if a text before the match is free, or
// expr cannot be expressed.
func patternsOf(expr string) (patterns []string, broader, ok bool) {
	re, err := syntax.Parse(expr, syntax.Perl)
	if err != nil {
		return nil, false, false
	}
	heads, anchored := []head{{}}, false
	heads, anchored, broader, ok = extend(heads, re, false)
	if !ok || !anchored {
		return nil, false, false
	}
	for _, h := range heads {
		if h.text == "" {
			return nil, false, false
		}
		if !h.closed {
			h.text += "*"
		}
		if !slices.Contains(patterns, h.text) {
			patterns = append(patterns, h.text)
		}
	}
	// /a/* stands for /a, too.
	patterns = slices.DeleteFunc(patterns, func(p string) bool { return slices.Contains(patterns, p+"/*") })
	return patterns, broader, true
}

// A head is how a match may begin.
type head struct {
	text   string
	open   bool // anything follows that was not read
	closed bool // nothing follows
}

// extend extends heads by what re matches.
func extend(heads []head, re *syntax.Regexp, anchored bool) (longer []head, now, broader, ok bool) {
	switch re.Op {
	case syntax.OpBeginText, syntax.OpBeginLine:
		return heads, true, false, !anchored
	case syntax.OpEmptyMatch:
		return heads, anchored, false, true
	case syntax.OpCapture:
		return extend(heads, re.Sub[0], anchored)
	case syntax.OpConcat:
		for _, sub := range re.Sub {
			var more bool
			if heads, anchored, more, ok = extend(heads, sub, anchored); !ok {
				return nil, false, false, false
			}
			broader = broader || more
		}
		return heads, anchored, broader, true
	}
	if !anchored && re.Op != syntax.OpAlternate {
		return nil, false, false, false
	}
	switch re.Op {
	case syntax.OpAlternate:
		all := true
		for _, sub := range re.Sub {
			part, begins, more, ok := extend(slices.Clone(heads), sub, anchored)
			if !ok || len(longer)+len(part) > mostPatterns {
				return nil, false, false, false
			}
			longer, all, broader = append(longer, part...), all && begins, broader || more
		}
		return longer, all, broader, all
	case syntax.OpQuest:
		part, _, more, ok := extend(slices.Clone(heads), re.Sub[0], anchored)
		return append(heads, part...), true, more, ok && 2*len(heads) <= mostPatterns
	case syntax.OpLiteral:
		for i, h := range heads {
			if h.closed {
				return nil, false, false, false
			}
			if h.open {
				broader = true // what follows is not looked at
			} else {
				heads[i].text += string(re.Rune)
			}
		}
		return heads, true, broader, true
	case syntax.OpCharClass:
		if letters := runes(re); len(letters) > 0 && len(letters)*len(heads) <= mostPatterns {
			for _, letter := range letters {
				part, _, more, ok := extend(slices.Clone(heads), &syntax.Regexp{Op: syntax.OpLiteral, Rune: []rune{letter}}, true)
				if !ok {
					return nil, false, false, false
				}
				longer, broader = append(longer, part...), broader || more
			}
			return longer, true, broader, true
		}
	case syntax.OpEndText, syntax.OpEndLine:
		for i, h := range heads {
			// After something free, the end is no bound: .* goes up to it.
			heads[i].closed = !h.open
		}
		return heads, true, false, true
	}
	switch re.Op {
	case syntax.OpStar, syntax.OpPlus, syntax.OpCharClass, syntax.OpAnyChar, syntax.OpAnyCharNotNL, syntax.OpRepeat:
		free := (re.Op == syntax.OpStar || re.Op == syntax.OpPlus) && (re.Sub[0].Op == syntax.OpAnyChar || re.Sub[0].Op == syntax.OpAnyCharNotNL)
		for i := range heads {
			if heads[i].closed && re.Op != syntax.OpStar {
				return nil, false, false, false
			}
			heads[i].open = !heads[i].closed
		}
		return heads, true, !free || re.Op == syntax.OpPlus, true
	}
	return nil, false, false, false
}

// runes returns the letters of a short class that does not fold case.
func runes(class *syntax.Regexp) (letters []rune) {
	const most = 10
	for i := 0; i+1 < len(class.Rune); i += 2 {
		for r := class.Rune[i]; r <= class.Rune[i+1]; r++ {
			if len(letters) == most {
				return nil
			}
			letters = append(letters, r)
		}
	}
	return letters
}

// samePattern reports whether pattern, as rules write paths, stands for everything that other does.
func samePattern(pattern, other string) bool {
	prefix, open := strings.CutSuffix(pattern, "*")
	return pattern == other || open && strings.HasPrefix(strings.TrimSuffix(other, "*"), prefix)
}
