package rule

import "slices"

// Forms returns the forms in which origins with the syntax s may read the path of r.
func (r *Request) Forms(s PathSyntax) (forms []string) {
	for i := range r.target.ways() {
		if form, ok := r.target.read(i, s, false); ok && !slices.Contains(forms, form) {
			forms = append(forms, form)
		}
	}
	return forms
}

// Read reads the forms of the path of r in all ways.
func (r *Request) Read(s PathSyntax) {
	for i := range r.target.ways() {
		r.target.read(i, s, false)
	}
}

// Pairs returns how many cookies or parameters with a name are read in a text.
func Pairs(text, name string, cookies bool) int {
	l := list{most: MaxKeys}
	l.appendPairs(nil, text, name, cookies)
	return l.pairs
}
