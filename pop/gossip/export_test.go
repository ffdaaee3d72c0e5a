package gossip

import "github.com/hashicorp/memberlist"

// WithTransport returns o with another transport.
func (o Options) WithTransport(wrap func(memberlist.Transport) memberlist.Transport) Options {
	o.wrap = wrap
	return o
}

// Tuned returns o with another configuration of memberlist.
func (o Options) Tuned(tune func(*memberlist.Config)) Options {
	o.tune = tune
	return o
}

// KeepBatches is how long nodes keep batches for peers that miss them.
const KeepBatches = keepBatches
