package analysis

// WithWaiting returns o with another maximum number of pending counts of a node.
func (o PoPOptions) WithWaiting(n int) PoPOptions {
	o.waiting = n
	return o
}

// WithSeed returns o with other nodes for requests.
func (o PoPOptions) WithSeed(seed uint64) PoPOptions { o.seed = seed; return o }
