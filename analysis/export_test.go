package analysis

// Places returns for how many clients s has windows, in use or free.
func (s *Sweep) Places() (n int) {
	for _, g := range s.grids {
		n += len(g.blocks) * keysInBlock
	}
	return n
}
