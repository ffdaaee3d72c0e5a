package spop

import (
	"net/netip"
	"strconv"
	"strings"
)

// A Message is what HAProxy sends about a stream. It is valid until the handler returns.
type Message struct {
	Name []byte
	Args []Arg
}

// An Arg is an argument of a message. HAProxy omits names that the configuration omits.
type Arg struct {
	Name  []byte
	Value Value
}

// Addr returns v as an address, or the zero Addr if v is of another kind.
func (v Value) Addr() netip.Addr {
	if v.Kind != IPv4 && v.Kind != IPv6 {
		return netip.Addr{}
	}
	addr, _ := netip.AddrFromSlice(v.Bytes)
	return addr
}

// messages calls handle for each message of a payload. m is reused.
func messages(payload []byte, m *Message, handle func(*Message)) error {
	r := &reader{rest: payload}
	for len(r.rest) > 0 {
		name, args := r.bytes(), r.byte()
		if r.err != nil {
			break
		}
		m.Name, m.Args = name, m.Args[:0]
		for range args {
			name, v := r.bytes(), r.value()
			if r.err != nil {
				return r.err
			}
			m.Args = append(m.Args, Arg{name, v})
		}
		handle(m)
	}
	return r.err
}

// Headers calls yield for the fields of a Value made by req.hdrs_bin, up to the empty one that ends them. Names are
// in lower case.
func Headers(bin []byte, yield func(name, value []byte)) {
	for r := (&reader{rest: bin}); ; {
		name, value := r.bytes(), r.bytes()
		if r.err != nil || len(name) == 0 && len(value) == 0 {
			return
		}
		yield(name, value)
	}
}

// Actions are what the agent asks HAProxy to do for a stream: to set variables of its transaction.
type Actions struct {
	buf  []byte
	from int // where the actions begin in buf
	most int // bytes of buf
}

// NewActions returns Actions of at most size bytes.
func NewActions(size int) *Actions { return &Actions{most: size} }

// String returns the variables in words: verdict="blocked" status=429.
func (a *Actions) String() string {
	var words []string
	for r := (&reader{rest: a.buf[a.from:]}); len(r.rest) > 0; {
		r.take(3)
		name, v := r.bytes(), r.value()
		text := strconv.FormatUint(v.Int, 10)
		switch v.Kind {
		case String:
			text = strconv.Quote(string(v.Bytes))
		case Bool:
			text = strconv.FormatBool(v.Int == 1)
		}
		words = append(words, string(name)+"="+text)
	}
	return strings.Join(words, " ")
}

const (
	actionSetVar = 1
	scopeTxn     = 2
)

// set appends an action. What no longer fits the frame is left out, so the most important variables
// come first.
func (a *Actions) set(name string, fill func([]byte) []byte) {
	before := len(a.buf)
	a.buf = append(a.buf, actionSetVar, 3, scopeTxn)
	if a.buf = fill(appendString(a.buf, name)); len(a.buf) > a.most {
		a.buf = a.buf[:before]
	}
}

// SetString sets a variable to a string.
func (a *Actions) SetString(name, value string) {
	a.set(name, func(b []byte) []byte { return appendString(append(b, byte(String)), value) })
}

// SetUint sets a variable to a number.
func (a *Actions) SetUint(name string, value uint32) {
	a.set(name, func(b []byte) []byte { return appendVarint(append(b, byte(Uint32)), uint64(value)) })
}

// SetBool sets a variable to true or false.
func (a *Actions) SetBool(name string, value bool) {
	kind := byte(Bool)
	if value {
		kind |= flagTrue
	}
	a.set(name, func(b []byte) []byte { return append(b, kind) })
}
