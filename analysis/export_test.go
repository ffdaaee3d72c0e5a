package analysis

// Places returns the number of clients for which s has windows, in use or free.
func (s *Sweep) Places() (n int) {
	for _, p := range s.parts {
		for _, g := range p.grids {
			n += len(g.blocks) * keysInBlock
		}
	}
	return n
}
