package spop

import (
	"net/netip"
	"strconv"
	"strings"
)

// A Message is a message from HAProxy about a stream. It is valid until the handler returns.
type Message struct {
	Name []byte
	Args []Arg
}

// An Arg is an argument of a message. Its name is empty if HAProxy's configuration gives none.
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
		m.Name, m.Args = r.bytes(), m.Args[:0]
		for range r.byte() {
			m.Args = append(m.Args, Arg{r.bytes(), r.value()})
		}
		if r.err == nil {
			handle(m)
		}
	}
	return r.err
}

// Headers calls yield for each field of bin, a value of HAProxy's req.hdrs_bin, which ends with an empty field. Names
// are in lower case.
func Headers(bin []byte, yield func(name, value []byte)) {
	for r := (&reader{rest: bin}); ; {
		name, value := r.bytes(), r.bytes()
		if r.err != nil || len(name) == 0 && len(value) == 0 {
			return
		}
		yield(name, value)
	}
}

// Actions are the variables of a stream's transaction that the agent asks HAProxy to set.
type Actions struct {
	buf     []byte
	from    int // index in buf of the first action
	maxSize int // of buf, in bytes
}

// NewActions returns Actions of at most size bytes.
func NewActions(size int) *Actions { return &Actions{maxSize: size} }

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

// set appends an action that sets a variable. fill appends the variable's name and value. Variables that do not fit in
// the frame are left out, so callers set the most important ones first.
func (a *Actions) set(fill func([]byte) []byte) {
	before := len(a.buf)
	if a.buf = fill(append(a.buf, actionSetVar, 3, scopeTxn)); len(a.buf) > a.maxSize {
		a.buf = a.buf[:before]
	}
}

// SetString sets a variable to a string.
func (a *Actions) SetString(name, value string) {
	a.set(func(b []byte) []byte { return appendText(b, name, value) })
}

// SetUint sets a variable to a number.
func (a *Actions) SetUint(name string, value uint32) {
	a.set(func(b []byte) []byte { return appendUint(b, name, value) })
}

// SetTrue sets a variable to true.
func (a *Actions) SetTrue(name string) {
	a.set(func(b []byte) []byte { return append(appendString(b, name), byte(Bool)|flagTrue) })
}
