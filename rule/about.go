package rule

import "strings"

// About describes to operators what r counts under a key: "192.0.2.7", "network 192.0.2.0/24, path /login". req is
// canonical, and has what is known of the key's requests; is reports whether a key is the one described. Values that
// clients choose may be secret, so only their names are shown. complete is false if a value is not shown.
func (r *Rule) About(req *Request, is func(key []byte) bool) (text string, complete bool) {
	keys, exact := r.Keys(nil, req), false
	for i := range keys.Len() {
		exact = exact || is(keys.At(i))
	}
	// Without a match, the values of req are those of the key only if req lacks just values that clients choose.
	plausible := exact || r.CountsBy(Header) || r.CountsBy(Cookie) || r.CountsBy(Query)
	var parts []string
	complete = true
	for i := range r.Characteristics {
		c := &r.Characteristics[i]
		if c.Kind == First && exact {
			_, _, c = r.appendFirst(nil, c, req)
		}
		part, ok := c.about(req)
		if !ok || !plausible {
			part, complete = c.unknown(req), false
		}
		parts = append(parts, part)
	}
	return strings.Join(parts, ", "), complete
}

// unknown describes c without its value: of several alternatives, all that may have led to the key. The address of req,
// if known, did not.
func (c *Characteristic) unknown(req *Request) string {
	var names []string
	for i := range c.First {
		if a := &c.First[i]; a.Kind.Chosen() || !req.Addr.IsValid() {
			names = append(names, a.unknown(req))
		}
	}
	switch {
	case c.Kind == First:
		return strings.Join(names, " or ")
	case c.Kind == Label:
		return c.Name
	case c.Kind.Chosen():
		return c.Kind.String() + " " + c.Name
	}
	return c.Kind.String()
}
