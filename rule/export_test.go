package rule

import "slices"

// Forms returns the forms in which origins with the syntax s may read the path of r.
func (r *Request) Forms(s PathSyntax) []string {
	forms, n := r.target.read(s)
	return slices.Clone(forms[:n])
}
