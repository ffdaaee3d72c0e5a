package analysis

// WithWaiting returns o with another maximum number of pending counts of a node.
func (o PoPOptions) WithWaiting(n int) PoPOptions {
	o.waiting = n
	return o
}

// WithSeed returns o with a seed for choosing the nodes of requests.
func (o PoPOptions) WithSeed(seed uint64) PoPOptions { o.seed = seed; return o }
