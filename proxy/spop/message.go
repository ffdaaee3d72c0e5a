package spop

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

// Actions set variables of a stream's transaction in HAProxy. Those that do not fit in the frame are left out, so
// callers set the most important ones first.
type Actions interface {
	SetString(name, value string)
	SetUint(name string, value uint32)
	SetTrue(name string)
}

// actions encode the variables behind what buf has already.
type actions struct {
	buf     []byte
	maxSize int // of buf, in bytes
}

const (
	actionSetVar = 1
	scopeTxn     = 2
)

// set appends an action that sets a variable. fill appends the variable's name and value.
func (a *actions) set(fill func([]byte) []byte) {
	before := len(a.buf)
	if a.buf = fill(append(a.buf, actionSetVar, 3, scopeTxn)); len(a.buf) > a.maxSize {
		a.buf = a.buf[:before]
	}
}

func (a *actions) SetString(name, value string) {
	a.set(func(b []byte) []byte { return appendText(b, name, value) })
}

func (a *actions) SetUint(name string, value uint32) {
	a.set(func(b []byte) []byte { return appendUint(b, name, value) })
}

func (a *actions) SetTrue(name string) {
	a.set(func(b []byte) []byte { return append(appendString(b, name), kindBool|flagTrue) })
}
