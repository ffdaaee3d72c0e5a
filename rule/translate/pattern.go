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

// patternsOf returns patterns for the paths that expr matches. A pattern ends with * if anything may follow. It
// begins with * if expr matches only the end of a segment. broader reports whether the patterns match more than expr
// does. ok is false if a rule cannot express expr.
func patternsOf(expr string) (patterns []string, broader, ok bool) {
	re, err := syntax.Parse(expr, syntax.Perl)
	if err != nil {
		return nil, false, false
	}
	heads := extend([]head{{}}, re)
	if !slices.ContainsFunc(heads, func(h head) bool { return h.anchored }) {
		heads = extend([]head{{text: "*", anchored: true}}, re)
	}
	for _, h := range heads {
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
		broader = broader || h.broader
	}
	return patterns, broader, len(heads) > 0
}

// A head is a possible beginning of a match.
type head struct {
	text     string
	anchored bool // text begins where the path does, or with a *
	open     bool // something follows that cannot be expressed
	closed   bool // nothing follows
	broader  bool // text stands for more than what matches
}

// extend returns heads, each followed by what re matches, or nil if a rule cannot express that.
func extend(heads []head, re *syntax.Regexp) (longer []head) {
	var alternatives []*syntax.Regexp
	switch re.Op {
	case syntax.OpEmptyMatch:
		return heads
	case syntax.OpCapture, syntax.OpConcat:
		for _, sub := range re.Sub {
			heads = extend(heads, sub)
		}
		return heads
	case syntax.OpAlternate:
		alternatives = re.Sub
	case syntax.OpQuest:
		alternatives = []*syntax.Regexp{{Op: syntax.OpEmptyMatch}, re.Sub[0]}
	case syntax.OpCharClass:
		for i := 0; i < len(re.Rune) && len(alternatives) <= maxLetters; i += 2 {
			for c := re.Rune[i]; c <= re.Rune[i+1] && len(alternatives) <= maxLetters; c++ {
				alternatives = append(alternatives, &syntax.Regexp{Op: syntax.OpLiteral, Rune: []rune{c}})
			}
		}
		if n := len(alternatives); n > maxLetters || n*len(heads) > maxPatterns {
			alternatives = nil
		}
	}
	for _, sub := range alternatives {
		more := extend(heads, sub)
		if more == nil || len(longer)+len(more) > maxPatterns {
			return nil
		}
		longer = append(longer, more...)
	}
	if len(alternatives) > 0 {
		return longer
	}
	for _, h := range heads {
		if !h.add(re) {
			return nil
		}
		longer = append(longer, h)
	}
	return longer
}

// add adds what re matches, and reports whether a rule can express that. re has no alternatives.
func (h *head) add(re *syntax.Regexp) bool {
	if begins := re.Op == syntax.OpBeginText || re.Op == syntax.OpBeginLine; begins || !h.anchored {
		again := h.anchored
		h.anchored = true
		return begins && !again
	}
	switch re.Op {
	case syntax.OpLiteral:
		if h.open {
			h.broader = true // what follows is ignored
		} else if slices.Contains(re.Rune, '*') || re.Flags&syntax.FoldCase != 0 {
			return false // a star would stand for other characters, and a text stands for one letter case
		} else {
			h.text += string(re.Rune)
		}
		return !h.closed
	case syntax.OpEndText, syntax.OpEndLine:
		h.closed = !h.open // after something like .*, which extends up to the end, the end does not matter
		return true
	case syntax.OpStar, syntax.OpPlus, syntax.OpAnyChar, syntax.OpAnyCharNotNL, syntax.OpRepeat, syntax.OpCharClass:
		everything := re.Op == syntax.OpStar && (re.Sub[0].Op == syntax.OpAnyChar || re.Sub[0].Op == syntax.OpAnyCharNotNL)
		h.open, h.broader = !h.closed, h.broader || !everything
		return h.open || re.Op == syntax.OpStar
	}
	return false
}

// overlaps reports whether a path may match both patterns although neither includes the other, because one matches
// the end of a segment.
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
