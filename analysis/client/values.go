package client

import "github.com/edgelimit/edge/analysis/accesslog"

// Values are a table with the same number of values for each client. They do not move when the table grows.
type Values[V any] struct {
	Table
	each   int // number of values per client
	blocks [][]V
}

const clientsInBlock = 1 << 8

// NewValues returns an empty table with this number of values per client.
func NewValues[V any](perClient int) *Values[V] {
	return &Values[V]{Table: *NewTable(), each: perClient}
}

// Of returns the values of a client, which are initially zero.
func (v *Values[V]) Of(hash uint64, client *accesslog.Client) []V {
	number := v.Table.At(hash, client)
	if int(number) == clientsInBlock*len(v.blocks) {
		v.blocks = append(v.blocks, Make[V](clientsInBlock*v.each))
	}
	return v.Numbered(number)
}

// Numbered returns the values of the client with this number.
func (v *Values[V]) Numbered(number uint32) []V {
	return v.blocks[number/clientsInBlock][int(number%clientsInBlock)*v.each:][:v.each]
}
