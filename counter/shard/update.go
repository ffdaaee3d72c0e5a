package shard

import "time"

// An update is what a storage command asks of the store.
type update struct {
	mode     mode
	key      []byte
	flags    uint32
	deadline int64
	cas      uint64 // of the item that may be replaced, or 0
	stale    bool   // store a stale item if cas is older than the item's
	state    byte   // of the item that is stored
}

type mode byte

const (
	modeSet mode = iota
	modeAdd
	modeReplace
	modeAppend
	modePrepend
	modeCAS
)

// outcome is what became of an update. An update that is stored also has a new
// cas unique.
type outcome byte

const (
	stored outcome = iota
	notStored
	exists
	notFound
)

// String returns the outcome as the answer to a storage command.
func (o outcome) String() string {
	return [...]string{"STORED", "NOT_STORED", "EXISTS", "NOT_FOUND"}[o]
}

// maxValueLen is the greatest length of a value that a command line may
// announce, a 32-bit number with room for the end of the line. The item limit
// is far below, but a value beyond that is swallowed before the next command.
const maxValueLen = 1<<31 - 1 - 2

// update answers set, add, replace, append, prepend and cas.
func (c *conn) update(n int, m mode, now time.Time) {
	words := 5
	if m == modeCAS {
		words = 6
	}
	if !c.want(n, words, words+1) {
		return
	}
	c.noreplyMaybe()
	key := c.tokens[1]
	flags, flagsOK := parseUint32(c.tokens[2])
	exptime, exptimeOK := parseInt32(c.tokens[3])
	valueLen, lenOK := parseInt32(c.tokens[4])
	cas, casOK := uint64(0), true
	if m == modeCAS {
		cas, casOK = parseUint64(c.tokens[5])
	}
	if len(key) > maxKey || !flagsOK || !exptimeOK || !lenOK || !casOK || valueLen < 0 || valueLen > maxValueLen {
		c.reply(badFormat)
		return
	}
	u := update{mode: m, key: key, flags: flags, deadline: c.store.deadline(exptime, now), cas: cas}

	clock := c.store.clock(now)
	if !c.store.fits(len(u.key), u.flags, int(valueLen)) {
		c.reply("SERVER_ERROR object too large for cache")
		if m == modeSet {
			// What the client meant to replace must not be served as if it
			// were what the client has now.
			c.store.drop(u.key, clock)
		}
		c.swallow(int(valueLen) + len("\r\n"))
		return
	}
	u.key = append(c.key[:0], u.key...) // the line goes as the value is read
	value, ok := c.readValue(int(valueLen))
	switch {
	case c.state != connOpen:
	case !ok:
		c.store.countSet(u.key, clock)
		c.reply("CLIENT_ERROR bad data chunk")
	default:
		o, _ := c.store.update(u, value, clock)
		c.reply(o.String())
	}
}

// update carries out u with value. It returns what became of it and, if that
// is stored, the item's new cas unique.
func (st *store) update(u update, value []byte, now int64) (outcome, uint64) {
	s, h := st.lock(u.key, now)
	defer s.mu.Unlock()
	s.counts[cmdSet]++
	i := s.find(h, u.key, now)
	if i == 0 {
		switch u.mode {
		case modeSet, modeAdd:
			return stored, st.put(s, h, i, u, value, now)
		case modeCAS:
			s.counts[casMisses]++
			return notFound, 0
		default:
			return notStored, 0
		}
	}

	b := s.at(i)
	cas := b.u64(fieldCAS)
	switch u.mode {
	case modeAdd:
		s.use(i, now)
		return notStored, 0
	case modeCAS:
		switch {
		case u.cas == cas:
		case u.stale && u.cas != 0 && u.cas < cas:
			u.deadline = int64(b.u64(fieldDeadline))
			u.state |= stateStale | b[fieldState]&stateTokenSent
		default:
			s.counts[casBadval]++
			return exists, 0
		}
		s.counts[casHits]++
	case modeAppend, modePrepend:
		if u.cas != 0 && u.cas != cas {
			return exists, 0
		}
		return st.extend(s, h, i, u, value, now)
	}
	return stored, st.put(s, h, i, u, value, now)
}

// put stores value as a new item of u, in place of item i unless i is 0, and
// returns its cas unique.
func (st *store) put(s *stripe, h uint64, i uint32, u update, value []byte, now int64) uint64 {
	if i == 0 {
		i = s.insert(h, u.key, len(value), now)
	} else {
		s.resize(i, len(value), now)
		s.use(i, now)
	}
	s.write(i, len(u.key), value)
	b := s.at(i)
	b.put32(fieldFlags, u.flags)
	b.put64(fieldDeadline, uint64(u.deadline))
	b[fieldState] = u.state
	s.counts[totalItems]++
	return st.newCAS(b)
}

// newCAS gives b the next cas unique and returns it.
func (st *store) newCAS(b *block) uint64 {
	cas := st.lastCAS.Add(1)
	b.put64(fieldCAS, cas)
	return cas
}

// extend puts value behind or before the value of item i, which keeps its flags
// and its deadline.
func (st *store) extend(s *stripe, h uint64, i uint32, u update, value []byte, now int64) (outcome, uint64) {
	b := s.at(i)
	u.flags, u.deadline, u.state = b.u32(fieldFlags), int64(b.u64(fieldDeadline)), 0
	if !st.fits(len(u.key), u.flags, b.valueLen()+len(value)) {
		return notStored, 0
	}
	var whole []byte
	if u.mode == modeAppend {
		whole = append(s.appendValue(s.scratch[:0], i), value...)
	} else {
		whole = s.appendValue(append(s.scratch[:0], value...), i)
	}
	cas := st.put(s, h, i, u, whole, now)
	s.keepScratch(whole)
	return stored, cas
}

// countSet counts a storage command whose value was malformed.
func (st *store) countSet(key []byte, now int64) {
	s, _ := st.lock(key, now)
	s.counts[cmdSet]++
	s.mu.Unlock()
}

// drop removes the item under key, if there is one, without counting it as
// deleted.
func (st *store) drop(key []byte, now int64) {
	s, h := st.lock(key, now)
	if i := s.find(h, key, now); i != 0 {
		s.remove(h, i)
	}
	s.mu.Unlock()
}
