package analysis

// Places returns for how many clients s has windows, in use or free.
func (s *Sweep) Places() (n int) {
	for _, p := range s.parts {
		for _, g := range p.grids {
			n += len(g.blocks) * keysInBlock
		}
	}
	return n
}
