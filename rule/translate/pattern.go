package translate

// Regular expressions that a rule's paths can express.

import (
	"regexp/syntax"
	"slices"
	"strings"
)

const (
	maxPatterns = 64 // alternatives of an expression
	maxLetters  = 10 // of a character class that stands for alternatives
)

// patternsOf returns the texts that expr matches. A text that anything may follow ends in *. If expr matches the end of
// a segment alone, they begin with *. broader reports whether they match more than expr does. ok is false if expr
// cannot be expressed.
func patternsOf(expr string) (patterns []string, broader, ok bool) {
	re, err := syntax.Parse(expr, syntax.Perl)
	if err != nil {
		return nil, false, false
	}
	r := reading{heads: []head{{}}}
	if !r.extend(re) || !r.anchored {
		r = reading{heads: []head{{text: "*"}}, anchored: true}
		if !r.extend(re) {
			return nil, false, false
		}
	}
	for _, h := range r.heads {
		segment := strings.HasPrefix(h.text, "*")
		if h.text == "" || segment && (len(h.text) == 1 || !h.closed || strings.Contains(h.text, "/")) {
			return nil, false, false
		}
		if !h.closed {
			h.text += "*"
		}
		if !slices.Contains(patterns, h.text) {
			patterns = append(patterns, h.text)
		}
	}
	return patterns, r.broader, true
}

// A head is a possible beginning of a match.
type head struct {
	text   string
	open   bool // something follows that cannot be expressed
	closed bool // nothing follows
}

// A reading describes the part of an expression that has been read.
type reading struct {
	heads             []head
	anchored, broader bool
}

// extend reads re, and reports whether a rule can express what it matches.
func (r *reading) extend(re *syntax.Regexp) bool {
	switch re.Op {
	case syntax.OpBeginText, syntax.OpBeginLine:
		again := r.anchored
		r.anchored = true
		return !again
	case syntax.OpEmptyMatch:
		return true
	case syntax.OpCapture, syntax.OpConcat:
		return !slices.ContainsFunc(re.Sub, func(sub *syntax.Regexp) bool { return !r.extend(sub) })
	case syntax.OpAlternate:
		return r.either(re.Sub...)
	}
	if !r.anchored {
		return false
	}
	free := false // it matches everything
	switch re.Op {
	case syntax.OpQuest:
		return r.either(&syntax.Regexp{Op: syntax.OpEmptyMatch}, re.Sub[0])
	case syntax.OpLiteral:
		for i, h := range r.heads {
			if h.closed {
				return false
			}
			if h.open {
				r.broader = true // what follows is ignored
			} else if slices.Contains(re.Rune, '*') {
				return false // it would stand for other characters
			} else {
				r.heads[i].text += string(re.Rune)
			}
		}
		return true
	case syntax.OpEndText, syntax.OpEndLine:
		for i, h := range r.heads { // after something like .*, which extends up to the end, the end does not matter
			r.heads[i].closed = !h.open
		}
		return true
	case syntax.OpCharClass:
		var letters []*syntax.Regexp
		for i := 0; i < len(re.Rune) && len(letters) <= maxLetters; i += 2 {
			for c := re.Rune[i]; c <= re.Rune[i+1] && len(letters) <= maxLetters; c++ {
				letters = append(letters, &syntax.Regexp{Op: syntax.OpLiteral, Rune: []rune{c}})
			}
		}
		if n := len(letters); 0 < n && n <= maxLetters && n*len(r.heads) <= maxPatterns {
			return r.either(letters...)
		}
	case syntax.OpStar:
		free = re.Sub[0].Op == syntax.OpAnyChar || re.Sub[0].Op == syntax.OpAnyCharNotNL
	case syntax.OpPlus, syntax.OpAnyChar, syntax.OpAnyCharNotNL, syntax.OpRepeat:
	default:
		return false
	}
	for i, h := range r.heads {
		if h.closed && re.Op != syntax.OpStar {
			return false
		}
		r.heads[i].open = !h.closed
	}
	r.broader = r.broader || !free
	return true
}

// either is extend for alternatives.
func (r *reading) either(alternatives ...*syntax.Regexp) bool {
	var longer []head
	all := true
	for _, sub := range alternatives {
		branch := reading{slices.Clone(r.heads), r.anchored, r.broader}
		if !branch.extend(sub) || len(longer)+len(branch.heads) > maxPatterns {
			return false
		}
		longer, all, r.broader = append(longer, branch.heads...), all && branch.anchored, branch.broader
	}
	r.heads, r.anchored = longer, all
	return all
}

// overlaps reports whether a path may match both patterns, although neither includes the other: one ends a segment.
func overlaps(pattern, other string) bool {
	ends := func(a, b string) bool {
		return strings.HasPrefix(a, "*") && strings.HasPrefix(b, "/") && strings.HasSuffix(b, "*")
	}
	return ends(pattern, other) || ends(other, pattern)
}

// includes reports whether pattern, a path in a rule, matches everything that other matches.
func includes(pattern, other string) bool {
	if suffix, segment := strings.CutPrefix(pattern, "*"); segment {
		return strings.HasSuffix(other, suffix)
	}
	prefix, open := strings.CutSuffix(pattern, "*")
	return pattern == other || open && strings.HasPrefix(strings.TrimSuffix(other, "*"), prefix)
}
