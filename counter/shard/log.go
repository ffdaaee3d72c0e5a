package shard

// A log is a ring of bytes that holds items in the order in which they were stored. It has no pointers, so the garbage
// collector skips it. Only the oldest item can be removed. It is approximately the least recently used one, since an
// item that is used while it is old is stored again.
type log struct {
	bytes []byte // grows up to max
	max   int
	head  int // where the next item goes
	tail  int // where the oldest item is
	end   int // end of the last item in bytes, if head < tail
}

// at returns n bytes at an offset.
func (l *log) at(offset, n int) item { return item(l.bytes[offset:][:n]) }

// item returns the item at an offset.
func (l *log) item(offset int) item {
	return l.at(offset, header+len(item(l.bytes[offset:]).value()))
}

// take adds n bytes at the head to the log, and returns their offset. ok is false if there is no room.
func (l *log) take(n int) (offset int, ok bool) {
	if l.head >= l.tail && l.head+n > l.max { // continue at the start
		if n >= l.tail {
			return 0, false
		}
		l.end, l.head = l.head, 0
	}
	if l.head < l.tail && l.head+n >= l.tail { // head == tail means empty
		return 0, false
	}
	if l.head+n > len(l.bytes) {
		larger := make([]byte, min(l.max, max(2*len(l.bytes), l.head+n)))
		copy(larger, l.bytes)
		l.bytes = larger
	}
	offset, l.head = l.head, l.head+n
	return offset, true
}

// drop removes n bytes, which are the oldest item but not the only one: none takes more than a quarter of the log.
func (l *log) drop(n int) {
	l.tail += n
	if l.head < l.tail && l.tail == l.end {
		l.tail = 0
	}
}

// used returns how many bytes hold items.
func (l *log) used() int {
	if l.head < l.tail {
		return l.end - l.tail + l.head
	}
	return l.head - l.tail
}

// old reports whether storing another quarter of the log would evict the item at an offset.
func (l *log) old(offset int) bool {
	before := offset - l.tail // bytes that are evicted earlier
	if before < 0 {
		before += l.end
	}
	return l.max-l.used()+before < l.max/4
}
