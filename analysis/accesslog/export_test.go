package accesslog

// WithBlocks returns o with blocks of this many bytes.
func (o Options) WithBlocks(bytes int) Options {
	o.block = bytes
	return o
}
