package accesslog

// An output passes sorted arrivals or entries to the caller. Entries are also sorted as arrivals, whose client refers
// to a record. The output holds the records of a block until all of them are passed on.
type output struct {
	arrivals func([]Arrival) error
	entries  func(*Entry) error // if not nil, instead of arrivals
	entry    Entry

	held   map[uint64]*records
	last   *records // of number
	number uint64
}

// records are the records of a block.
type records struct {
	text string
	left int // number not yet passed on
}

// take stores the records of a block. It must be called before the block's arrivals are passed on.
func (o *output) take(number uint64, text string, arrivals int) {
	if o.entries != nil {
		o.held[number] = &records{text, arrivals}
	}
}

// batch passes on the arrivals as, or their entries.
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

// record returns the record that a client refers to. It must be called exactly once for each record.
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
