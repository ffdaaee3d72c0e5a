package accesslog

// WithBlocks returns o with blocks of this many bytes.
func (o Options) WithBlocks(bytes int) Options {
	o.block = bytes
	return o
}

// ClientOf returns the client of a name.
func ClientOf(name string) Client { return clientOf([]byte(name)) }
