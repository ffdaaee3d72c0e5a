package shard

import "time"

// An update is what a storage command asks of the store.
type update struct {
	mode     mode
	key      []byte
	flags    uint32
	deadline int64
	cas      uint64 // of the item that may be replaced, or 0
}

type mode byte

const (
	modeSet mode = iota
	modeAdd
	modeReplace
	modeCAS
)

// outcome is the outcome of an update, as the reply to a storage command.
type outcome string

const (
	stored    outcome = "STORED"
	notStored outcome = "NOT_STORED"
	exists    outcome = "EXISTS"
	notFound  outcome = "NOT_FOUND"
)

// update answers set, add, replace and cas.
func (c *conn) update(m mode, now time.Time) {
	c.noreplyMaybe()
	key := c.tokens[1]
	flags, flagsOK := parseUint(c.tokens[2], 32)
	exptime, exptimeOK := parseInt(c.tokens[3])
	valueLen, lenOK := parseUint(c.tokens[4], 30) // the item limit is far below
	cas, casOK := uint64(0), true
	if m == modeCAS {
		cas, casOK = parseUint(c.tokens[5], 64)
	}
	if len(key) > maxKey || !flagsOK || !exptimeOK || !lenOK || !casOK {
		c.reply(badFormat)
		return
	}
	u := update{mode: m, key: key, flags: uint32(flags), deadline: c.store.deadline(exptime, now), cas: cas}

	clock := c.store.clock(now)
	if !c.store.fits(len(u.key), u.flags, int(valueLen)) {
		c.reply("SERVER_ERROR object too large for cache")
		if m == modeSet {
			// The old value must not be served as if it were the new one.
			c.store.drop(u.key, clock)
		}
		c.swallow(int(valueLen) + len("\r\n"))
		return
	}
	u.key = append(c.key[:0], u.key...) // reading the value overwrites the line
	value, ok := c.readValue(int(valueLen))
	switch {
	case c.closed:
	case !ok:
		c.store.countSet(u.key, clock)
		c.reply("CLIENT_ERROR bad data chunk")
	default:
		c.reply(string(c.store.update(u, value, clock)))
	}
}

// update executes u with value and returns the outcome.
func (st *store) update(u update, value []byte, now int64) outcome {
	s, h := st.lock(u.key)
	defer s.mu.Unlock()
	s.counts[cmdSet]++
	i := s.find(h, u.key, now)
	switch {
	case i == 0 && u.mode == modeCAS:
		s.counts[casMisses]++
		return notFound
	case i == 0 && u.mode == modeReplace:
		return notStored
	case i != 0 && u.mode == modeAdd:
		s.use(i)
		return notStored
	case u.mode == modeCAS && u.cas != s.at(i).u64(fieldCAS):
		s.counts[casBadval]++
		return exists
	case u.mode == modeCAS:
		s.counts[casHits]++
	}
	st.put(s, h, i, u, value, now)
	return stored
}

// put stores value as the item of u, in place of item i unless i is 0.
func (st *store) put(s *stripe, h uint64, i uint32, u update, value []byte, now int64) {
	if i == 0 {
		i = s.insert(h, u.key, len(value), now)
	} else {
		s.resize(i, len(value), now)
		s.use(i)
	}
	s.write(i, len(u.key), value)
	b := s.at(i)
	b.put32(fieldFlags, u.flags)
	b.put64(fieldDeadline, uint64(u.deadline))
	s.counts[totalItems]++
	st.newCAS(b)
}

// newCAS sets the CAS unique of b to the next one.
func (st *store) newCAS(b *block) { b.put64(fieldCAS, st.lastCAS.Add(1)) }

// countSet counts a storage command whose value was malformed.
func (st *store) countSet(key []byte, now int64) {
	s, _ := st.lock(key)
	defer s.mu.Unlock()
	s.counts[cmdSet]++
}

// drop removes the item of key, if there is one, without counting a delete.
func (st *store) drop(key []byte, now int64) {
	s, h := st.lock(key)
	defer s.mu.Unlock()
	if i := s.find(h, key, now); i != 0 {
		s.remove(h, i)
	}
}
