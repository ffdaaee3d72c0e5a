package shard

import (
	"strconv"
	"time"
)

// metaSet answers ms.
func (c *conn) metaSet(n int, now time.Time) {
	if !c.metaWords(n, tooManyOptions) {
		return
	}
	if n == 2 {
		c.reply(badFormat)
		return
	}
	valueLen, ok := parseInt32(c.tokens[2])
	if !ok || valueLen < 0 || valueLen > maxValueLen {
		c.reply(badFormat)
		return
	}
	r := &c.meta
	problem := r.parse(c.store, c.tokens[1], c.tokens[3:n], now)
	if problem == "" && r.longOpaque {
		problem = opaqueTooLong
	}
	u := update{key: r.key, flags: r.clientFlags, deadline: r.deadline, cas: r.cas}
	if r.binaryKey {
		u.state = stateBinaryKey
	}
	if problem == "" || problem == opaqueTooLong {
		if u.mode, ok = metaMode(r.mode); !ok {
			problem = "CLIENT_ERROR invalid mode for ms M token"
		}
	}
	if r.hasCAS && (u.mode == modeSet || u.mode == modeReplace) {
		u.mode = modeCAS
		u.stale = r.invalidate
	}
	clock := c.store.clock(now)
	if problem == "" && !c.store.fits(len(u.key), u.flags, int(valueLen)) {
		problem = "SERVER_ERROR object too large for cache"
		c.store.drop(u.key, clock)
	}
	if problem != "" {
		c.reply(problem)
		c.swallow(int(valueLen) + len("\r\n"))
		return
	}

	value, ok := c.readValue(int(valueLen))
	switch {
	case c.state != connOpen:
	case !ok:
		c.store.countSet(u.key, clock)
		c.reply("CLIENT_ERROR bad data chunk")
	default:
		o, cas := c.store.update(u, value, clock)
		if o == stored && r.noreply {
			return
		}
		c.out = append(c.out, [...]string{"HD", "NS", "EX", "NF"}[o]...)
		for _, letter := range r.letters {
			if letter == 'c' {
				c.out = strconv.AppendUint(append(c.out, " c"...), cas, 10)
			} else {
				c.out = r.appendEcho(c.out, letter)
			}
		}
		c.out = append(c.out, "\r\n"...)
	}
}

func metaMode(m byte) (mode, bool) {
	switch m {
	case 0, 'S':
		return modeSet, true
	case 'E':
		return modeAdd, true
	case 'A':
		return modeAppend, true
	case 'P':
		return modePrepend, true
	case 'R':
		return modeReplace, true
	}
	return 0, false
}
