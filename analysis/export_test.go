package analysis

// WithWaiting returns o with another maximum number of pending counts of a node.
func (o PoPOptions) WithWaiting(n int) PoPOptions {
	o.waiting = n
	return o
}
