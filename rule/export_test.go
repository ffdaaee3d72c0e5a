package rule

import "slices"

// Forms returns the forms in which origins with the syntax s may read the path of r.
func (r *Request) Forms(s PathSyntax) []string {
	forms, n := r.target.read(s)
	return slices.Clone(forms[:n])
}

// Pairs returns how many cookies or parameters with a name are read in a text.
func Pairs(text, name string, cookies bool) int {
	var l list
	l.appendPairs(nil, text, name, cookies)
	return l.pairs
}
