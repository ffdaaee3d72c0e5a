// Package exact implements the exact sliding log of a client, the reference for estimates.
package exact

// A Log holds the time of every request in the period. The zero value is an empty log. A Log is not
// safe for concurrent use.
type Log struct {
	stamps []stamp // a ring; its length is a power of two
	first  uint32  // index of the oldest stamp
	used   uint32  // number of stamps
	total  uint64  // number of requests in them
}

// A stamp is n requests at the same time.
type stamp struct {
	t int64 // microseconds
	n uint64
}

// Add counts a request at t, in microseconds, and returns the number of requests in
// (t−period, t]. From call to call, t must not decrease, and period must not change.
func (l *Log) Add(t, period int64) uint64 { return l.add(1, t, period) }

func (l *Log) add(n uint64, t, period int64) uint64 {
	l.forget(t - period)
	l.append(n, t)
	return l.total
}

// Exceeds is Add for n requests, and reports whether there are now more than threshold. It may keep older requests that
// do not affect the result.
func (l *Log) Exceeds(n, threshold uint64, t, period int64) bool {
	if l.total+n > threshold || int(l.used) == len(l.stamps) {
		return l.add(n, t, period) > threshold
	}
	l.append(n, t)
	return false
}

// Over reports whether there are more than threshold requests in (t−period, t].
func (l *Log) Over(threshold uint64, t, period int64) bool {
	if l.total <= threshold {
		return false
	}
	l.forget(t - period)
	return l.total > threshold
}

// append counts n requests at t.
func (l *Log) append(n uint64, t int64) {
	l.total += n
	if l.used > 0 {
		if last := &l.stamps[(l.first+l.used-1)&l.mask()]; last.t == t {
			last.n += n
			return
		}
	}
	if int(l.used) == len(l.stamps) {
		l.grow()
	}
	l.stamps[(l.first+l.used)&l.mask()] = stamp{t, n}
	l.used++
}

// Total returns the number of requests as of the last Add, or the last Exceeds that returned
// true.
func (l *Log) Total() uint64 { return l.total }

// Newest returns the time of the newest request, or 0 if the log is empty.
func (l *Log) Newest() int64 {
	if l.used == 0 {
		return 0
	}
	return l.stamps[(l.first+l.used-1)&l.mask()].t
}

// Clear removes all requests.
func (l *Log) Clear() { l.first, l.used, l.total = 0, 0, 0 }

// forget removes the requests at or before t.
func (l *Log) forget(t int64) {
	for l.used > 0 {
		oldest := &l.stamps[l.first]
		if oldest.t > t {
			return
		}
		l.total -= oldest.n
		l.first = (l.first + 1) & l.mask()
		l.used--
	}
	if len(l.stamps) > roomy {
		l.stamps, l.first = nil, 0 // the log of an idle client must not keep its peak size
	}
}

const roomy = 64 // stamps

func (l *Log) mask() uint32 { return uint32(len(l.stamps) - 1) }

// grow makes room, at first for one stamp: in most logs, most clients send only one request.
func (l *Log) grow() {
	stamps := make([]stamp, max(1, min(4, 4*len(l.stamps)), 2*len(l.stamps)))
	n := copy(stamps, l.stamps[l.first:])
	copy(stamps[n:], l.stamps[:l.first])
	l.stamps, l.first = stamps, 0
}

// Back returns the time at which at most threshold requests will be left in the period if no more
// come. There must be more than threshold now.
func (l *Log) Back(threshold uint64, period int64) int64 {
	left := l.total
	for i := uint32(0); ; i++ {
		oldest := l.stamps[(l.first+i)&l.mask()]
		if left -= oldest.n; left <= threshold {
			return oldest.t + period
		}
	}
}
