package accesslog

import "encoding/binary"

// arrivals carries arrivals.
type arrivals struct {
	hand func([]Arrival) error
	back []Arrival
}

func (c *arrivals) take(*block) {}

func (c *arrivals) batch(as []Arrival) error { return c.hand(as) }

func (c *arrivals) spill(b []byte, a Arrival) []byte { return append(b, a.Client[:]...) }

func (c *arrivals) spilled(time int64, record []byte) error {
	c.back = append(c.back, Arrival{time, Client(record)})
	if len(c.back) < batchSize {
		return nil
	}
	return c.flush()
}

func (c *arrivals) flush() error {
	if len(c.back) == 0 {
		return nil
	}
	err := c.hand(c.back)
	c.back = c.back[:0]
	return err
}

// entries carries entries. It holds the records of the blocks that are not handed out
// entirely.
type entries struct {
	hand  func(*Entry) error
	entry Entry

	held   map[uint64]*records
	last   *records // of number
	number uint64
}

// records are those of a block.
type records struct {
	text string
	left int // not handed out
}

func newEntries(hand func(*Entry) error) *entries {
	return &entries{hand: hand, held: map[uint64]*records{}}
}

func (c *entries) take(b *block) {
	c.held[b.number] = &records{b.records, len(b.arrivals)}
}

func (c *entries) batch(as []Arrival) error {
	for _, a := range as {
		c.entry.Time = a.Time
		c.entry.restore(c.text(a.Client))
		if err := c.hand(&c.entry); err != nil {
			return err
		}
	}
	return nil
}

// text returns the record that a client refers to, which is not asked for again.
func (c *entries) text(ref Client) string {
	number, from, to := ref.reference()
	if c.last == nil || number != c.number {
		c.last, c.number = c.held[number], number
	}
	if c.last.left--; c.last.left == 0 {
		delete(c.held, number)
	}
	return c.last.text[from:to]
}

func (c *entries) spill(b []byte, a Arrival) []byte {
	_, from, to := a.Client.reference()
	b = binary.AppendUvarint(b, uint64(to-from))
	return append(b, c.text(a.Client)...)
}

func (c *entries) spilled(time int64, record []byte) error {
	c.entry.Time = time
	c.entry.restore(string(record))
	return c.hand(&c.entry)
}

func (c *entries) flush() error { return nil }
