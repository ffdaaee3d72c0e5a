package accesslog

// An output hands out what has been put in order, as arrivals or as entries. An entry is put in order as an Arrival
// too, which tells where its record is; the output holds the records of the blocks that are not handed out entirely.
type output struct {
	arrivals func([]Arrival) error
	entries  func(*Entry) error // if not nil, instead of arrivals
	entry    Entry

	held   map[uint64]*records
	last   *records // of number
	number uint64
}

// records are those of a block.
type records struct {
	text string
	left int // not handed out
}

// take keeps the records of a block, before its arrivals come.
func (o *output) take(number uint64, text string, arrivals int) {
	if o.entries != nil {
		o.held[number] = &records{text, arrivals}
	}
}

// batch hands out what as stands for.
func (o *output) batch(as []Arrival) error {
	if o.entries == nil {
		return o.arrivals(as)
	}
	for _, a := range as {
		o.entry.Time = a.Time
		o.entry.restore(o.record(a.Client))
		if err := o.entries(&o.entry); err != nil {
			return err
		}
	}
	return nil
}

// record returns the record that a client refers to, which is not asked for again.
func (o *output) record(ref Client) string {
	number, from, to := ref.reference()
	if o.last == nil || number != o.number {
		o.last, o.number = o.held[number], number
	}
	if o.last.left--; o.last.left == 0 {
		delete(o.held, number)
	}
	return o.last.text[from:to]
}
