package rule

import "slices"

// Forms returns the forms in which origins with the syntax s may read the path of r.
func (r *Request) Forms(s PathSyntax) (forms []string) {
	r.target.find(s, false, func(form string) bool {
		if !slices.Contains(forms, form) {
			forms = append(forms, form)
		}
		return false
	})
	return forms
}

// Read reads the forms of the path of r in all ways.
func (r *Request) Read(s PathSyntax) {
	r.target.find(s, false, func(string) bool { return false })
}

// FormsMade returns how many forms of the path of r were made, for all syntaxes together.
func (r *Request) FormsMade() (n int) {
	for i := range r.target.forms {
		for _, end := range r.target.forms[i].end[1:] {
			if end > 0 {
				n++
			}
		}
	}
	return n
}

// Pairs returns how many cookies or parameters with a name are read in a text.
func Pairs(text, name string, cookies bool) int {
	l := list{most: MaxKeys}
	l.appendPairs(nil, text, name, cookies)
	return l.pairs
}
