package accesslog

import (
	"bytes"
	"encoding/binary"
	"math/bits"
	"net/netip"
	"strconv"

	"github.com/cespare/xxhash/v2"
	"github.com/dchest/siphash"
)

// An Entry is one request in a log. Fields that the log does not have are zero. Header is valid
// only until the next entry is read. Strings may be retained, but each keeps its block of the
// log in memory: clone those that are kept for long.
type Entry struct {
	Time   int64      // when it was logged, in microseconds since the Unix epoch
	Client string     // as in the log: usually an address
	Addr   netip.Addr // Client as an address; invalid if it is not one
	Method string
	Host   string
	Path   string // as sent, percent-encoded, without the query
	Query  string // without the question mark
	Status int
	Header []Field // fields of the request's header that the log records, such as User-Agent
	Attack bool    // whether the log marks the request as part of an attack
}

// Address returns the address of e's client. If the log identifies the client by something else, Address derives one
// in fd00::/8 from the name, so that rules that count by ip tell clients apart. A number below 2^55 fills the 55 bits
// after fd and a zero bit, lowest bit first, so that clients stay distinct even if a short prefix identifies a
// client. Any other name is hashed into the 55 bits after fd and a one bit. The upper half of the address, which
// identifies a client by default, holds all of these bits.
func (e *Entry) Address() netip.Addr {
	if e.Addr.IsValid() {
		return e.Addr
	}
	const hashed = 1 << 55 // set for a hash
	n, err := strconv.ParseUint(e.Client, 10, 64)
	if err != nil || n >= hashed || len(e.Client) > 1 && e.Client[0] == '0' { // 007 is not 7
		n = hashed | xxhash.Sum64String(e.Client)%hashed
	} else {
		n = bits.Reverse64(n) >> 9
	}
	addr := [16]byte{0: 0xfd, 15: 1}
	for i := range 7 {
		addr[7-i] = byte(n >> (8 * i))
	}
	return netip.AddrFrom16(addr)
}

// A Field is a field of a request's header.
type Field struct {
	Name  string // in canonical form, as in net/http
	Value string
}

// An Arrival is the part of an Entry that counting needs.
type Arrival struct {
	Time   int64 // as in Entry
	Client Client
}

// A Client identifies a client within a log. A name of at most 15 bytes is stored as it is, padded with zeros. Any
// other name is replaced with a 128-bit hash whose last byte is not zero.
type Client [16]byte

// ClientOf returns the client with the given name.
func ClientOf(name string) Client { return clientOf([]byte(name)) }

// Name returns the client's name. ok is false if c has only a hash of the name.
func (c *Client) Name() (name string, ok bool) {
	if c[len(c)-1] != 0 {
		return "", false
	}
	return string(bytes.TrimRight(c[:], "\x00")), true
}

// clientOf returns the Client of a name. The key of the hash is fixed, so that the same log
// always has the same clients; finding two names with the same 127 bits is infeasible.
func clientOf(name []byte) (c Client) {
	if len(name) < len(c) && bytes.IndexByte(name, 0) < 0 {
		copy(c[:], name)
		return c
	}
	lo, hi := siphash.Hash128(0x656467652e6c6f67, 0x636c69656e742d31, name)
	binary.LittleEndian.PutUint64(c[:], lo)
	binary.LittleEndian.PutUint64(c[8:], hi)
	c[15] |= 0x80
	return c
}

// Fields is a set of the fields of an Entry. Time and Client are always set.
type Fields uint8

// The fields that can be requested.
const (
	Addr Fields = 1 << iota
	Method
	Host
	Path // and Query
	Status
	Header
	All = Addr | Method | Host | Path | Status | Header
)

// A record is the result of parsing a line. Its slices point into the line, or into the
// record's own buffer for unescaped text.
type record struct {
	need   Fields
	time   int64
	client []byte  // name, without port and brackets
	values []value // by place: see use
	header []line

	clock  clock
	plain  []byte // unescaped text
	member []byte // path of a member
}

// needs reports whether values of kind k are needed.
func (r *record) needs(k kind) bool { return (r.need|always)&meanings[k].needs != 0 }

// A line is a field of a request's header.
type line struct {
	name  string
	value []byte
}

// reset clears r for the next line, but keeps its buffers.
func (r *record) reset() {
	r.time, r.client = 0, nil
	r.header, r.plain = r.header[:0], r.plain[:0]
}

// clear clears r's values, and makes room for those of f.
func (r *record) clear(f *fields) {
	places := int(kinds) + len(f.headers)
	if cap(r.values) < places {
		r.values = make([]value, places)
	}
	values := r.values[:places]
	for i := range values {
		if v := &values[i]; v.text != nil { // most are nil, and writing pointers is slow during garbage collection
			*v = value{}
		}
	}
	r.values = values
}

// text returns the text of kind k, or nil if field f is not needed.
func (r *record) text(f Fields, k kind) []byte {
	if r.need&f == 0 {
		return nil
	}
	return r.values[k].text
}

// read completes the method, host, target and query. The request line takes precedence over a logged path, which the
// server may have rewritten.
func (r *record) read() {
	v := r.values
	v[query].text = bytes.TrimPrefix(v[query].text, []byte("?"))
	logged := v[target].text
	v[target].text = nil
	r.request(v[request].text)
	if len(v[target].text) == 0 {
		r.target(logged)
	}
}

// append appends r, without its time, to b, in the encoding that restore reads.
func (r *record) append(b []byte) []byte {
	if b = appendText(b, r.client); r.need == 0 {
		return b
	}
	var address [64]byte
	var binaryAddress []byte
	if r.need&Addr != 0 {
		binaryAddress, _ = addressOf(r.client).AppendBinary(address[:0]) // never fails
	}
	b = appendText(b, binaryAddress)
	b = appendText(b, r.text(Method, method))
	b = appendText(b, r.text(Host, host))
	b = appendText(b, r.text(Path, target))
	b = appendText(b, r.text(Path, query))
	code, ok := number(r.text(Status, status))
	if !ok || code >= 1000 {
		code = 0
	}
	if mark := string(r.values[attack].text); mark == "true" || mark == "1" {
		code |= attackBit
	}
	b = binary.AppendUvarint(b, uint64(code))
	b = binary.AppendUvarint(b, uint64(len(r.header)))
	for _, h := range r.header {
		b = appendText(b, h.name)
		b = appendText(b, h.value)
	}
	return b
}

// attackBit is set in an encoded status if the request is part of an attack.
const attackBit = 1 << 10

func appendText[T string | []byte](b []byte, text T) []byte {
	return append(binary.AppendUvarint(b, uint64(len(text))), text...)
}

// restore sets e, except for e.Time, from s, the result of append.
func (e *Entry) restore(s string) {
	*e = Entry{Time: e.Time, Header: e.Header[:0]}
	if e.Client, s = cutText(s); s == "" {
		return
	}
	address, s := cutText(s)
	e.Method, s = cutText(s)
	e.Host, s = cutText(s)
	e.Path, s = cutText(s)
	e.Query, s = cutText(s)
	_ = e.Addr.UnmarshalBinary([]byte(address)) // never fails
	status, s := cutNumber(s)
	e.Status, e.Attack = int(status&^attackBit), status&attackBit != 0
	n, s := cutNumber(s)
	for range n {
		var f Field
		f.Name, s = cutText(s)
		f.Value, s = cutText(s)
		e.Header = append(e.Header, f)
	}
}

func cutText(s string) (text, rest string) {
	n, s := cutNumber(s)
	return s[:n], s[n:]
}

func cutNumber(s string) (n uint64, rest string) {
	for i := 0; i < len(s); i++ {
		n |= uint64(s[i]&0x7f) << (7 * i)
		if s[i] < 0x80 {
			return n, s[i+1:]
		}
	}
	panic("accesslog: truncated record")
}

// addressOf returns name as an address, or the zero Addr if it is not one.
func addressOf(name []byte) (a netip.Addr) {
	if v4, ok := parseIPv4(name); ok {
		return netip.AddrFrom4(v4)
	}
	if len(name) > 1 && len(name) < 64 && bytes.IndexByte(name, ':') >= 0 {
		a, _ = netip.ParseAddr(string(name))
	}
	return a.WithZone("").Unmap()
}

// parseIPv4 is netip.ParseAddr for the most common case, without allocating a string.
func parseIPv4(s []byte) (a [4]byte, ok bool) {
	n, digits, dots := 0, 0, 0
	for _, c := range s {
		switch {
		case c == '.' && digits > 0 && dots < 3:
			a[dots] = byte(n)
			n, digits = 0, 0
			dots++
		case c < '0' || c > '9' || n == 0 && digits > 0: // a leading zero
			return a, false
		default:
			digits++
			if n = 10*n + int(c-'0'); n > 255 {
				return a, false
			}
		}
	}
	a[3] = byte(n)
	return a, dots == 3 && digits > 0
}

// request parses a request line, or as much of an invalid one as possible.
func (r *record) request(s []byte) {
	if r.need&(Method|Path|Host) == 0 {
		return
	}
	end := bytes.IndexByte(s, ' ')
	if end <= 0 || end > 32 || !letters(s[:end]) {
		if len(s) > 0 && s[0] == '/' { // the target alone
			r.target(s)
		}
		return
	}
	verb, sent := s[:end], trimSpaces(s[end+1:])
	complete := false
	i := bytes.LastIndexByte(sent, ' ')
	if i >= 0 && !bytes.HasPrefix(sent[i:], []byte(" HTTP/")) {
		i = bytes.LastIndex(sent, []byte(" HTTP/"))
	}
	if i >= 0 {
		sent, complete = bytes.TrimRight(sent[:i], " "), true
	}
	if len(sent) == 0 || !complete && sent[0] != '/' && sent[0] != '*' && !bytes.Contains(sent, []byte("://")) {
		return
	}
	r.values[method].text = verb
	r.target(sent)
}

// letters reports whether s begins with a letter and consists of letters, - and _, as every
// method in use does.
func letters(s []byte) bool {
	for i, c := range s {
		if (c|0x20 < 'a' || c|0x20 > 'z') && (i == 0 || c != '-' && c != '_') {
			return false
		}
	}
	return len(s) > 0
}

// target parses a request target: a path with an optional query, a URL, or for CONNECT a host.
func (r *record) target(s []byte) {
	v := r.values
	if len(s) > 0 && s[0] != '/' {
		if i := bytes.Index(s, []byte("://")); i > 0 && i < 12 && letters(s[:i]) {
			scheme, rest := s[:i], s[i+3:]
			end := bytes.IndexAny(rest, "/?#")
			if end < 0 {
				end = len(rest)
			}
			name := rest[:end]
			name = name[bytes.LastIndexByte(name, '@')+1:] // without user and password
			v[host].text = bytes.TrimSuffix(name, []byte(defaultPorts[string(scheme)]))
			if s = rest[end:]; len(s) == 0 || s[0] != '/' {
				v[target].text = []byte("/")
				if s = bytes.TrimPrefix(s, []byte("?")); len(s) > 0 {
					v[query].text = s
				}
				return
			}
		} else if string(v[method].text) == "CONNECT" {
			v[host].text = s
			return
		} else if s[0] != '*' && bytes.IndexByte(s, ':') >= 0 {
			return // the name of an error in Squid's log, such as error:invalid-request
		}
	}
	path, after, _ := bytes.Cut(s, []byte{'?'})
	if v[target].text = path; len(after) > 0 {
		v[query].text = after
	}
}

var defaultPorts = map[string]string{"http": ":80", "https": ":443"}
