package analysis

// A SlidingLog is the exact sliding log of one client: it remembers the time of every
// request as long as it is in the period. The zero value is empty. It is not safe for
// concurrent use.
type SlidingLog struct {
	stamps []stamp // a ring; its length is a power of two
	first  int
	used   int
	total  uint64
}

// A stamp is n requests at one moment.
type stamp struct {
	t int64
	n uint64
}

// Add counts a request at t, in microseconds, and returns how many there are in
// (t−period, t]. t must not fall from call to call, and period not change.
func (l *SlidingLog) Add(t, period int64) uint64 {
	l.forget(t - period)
	if l.used > 0 {
		if last := &l.stamps[(l.first+l.used-1)&(len(l.stamps)-1)]; last.t == t {
			last.n++
			l.total++
			return l.total
		}
	}
	if l.used == len(l.stamps) {
		l.grow()
	}
	l.stamps[(l.first+l.used)&(len(l.stamps)-1)] = stamp{t, 1}
	l.used++
	l.total++
	return l.total
}

// oldest returns the time of the oldest request, 0 if there is none.
func (l *SlidingLog) oldest() int64 {
	if l.used == 0 {
		return 0
	}
	return l.stamps[l.first].t
}

// forget removes the requests at and before t.
func (l *SlidingLog) forget(t int64) {
	for l.used > 0 {
		oldest := &l.stamps[l.first]
		if oldest.t > t {
			return
		}
		l.total -= oldest.n
		l.first = (l.first + 1) & (len(l.stamps) - 1)
		l.used--
	}
	if len(l.stamps) > roomy {
		l.stamps, l.first = nil, 0 // a client that went quiet does not keep the memory of its best day
	}
}

const roomy = 64 // stamps

func (l *SlidingLog) grow() {
	stamps := make([]stamp, max(4, 2*len(l.stamps)))
	n := copy(stamps, l.stamps[l.first:])
	copy(stamps[n:], l.stamps[:l.first])
	l.stamps, l.first = stamps, 0
}

// Back returns when no more than threshold requests will be left in the period, if no more
// come. There must be more now.
func (l *SlidingLog) Back(threshold uint64, period int64) int64 {
	left := l.total
	for i := 0; ; i++ {
		oldest := l.stamps[(l.first+i)&(len(l.stamps)-1)]
		if left -= oldest.n; left <= threshold {
			return oldest.t + period
		}
	}
}
