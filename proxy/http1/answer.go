package http1

import (
	"net/http"
	"strconv"
	"strings"
)

// An Answer is the head of an answer. Its results are valid until the body is read.
type Answer struct {
	head

	Status int
	reason [2]uint32 // start and end in raw
}

func (a *Answer) reset() {
	fields, known, options := a.fields[:0], a.known[:0], a.options[:0]
	*a = Answer{} // cleared in place, without a copy on the stack
	a.fields, a.known, a.options = fields, known, options
}

// interim reports whether another answer follows.
func (a *Answer) interim() bool {
	return a.Status < http.StatusOK && a.Status != http.StatusSwitchingProtocols
}

// Values returns the values of the fields called name.
func (a *Answer) Values(name string) (values []string) {
	for f := range a.Fields {
		if strings.EqualFold(string(a.NameOf(f)), name) {
			values = append(values, string(a.ValueOf(f)))
		}
	}
	return values
}

// maxAnswerHead is the maximum size of an answer's head, in bytes.
const maxAnswerHead = 256 << 10

// scan reads the head from buf, like Request.scan. toHead says that the request was HEAD. Origins may end lines in LF;
// clients get CRLF.
func (a *Answer) scan(buf []byte, toHead bool) (done bool, err error) {
	if !a.begun {
		from, to, ok, _ := a.nextLine(buf) // the start line may end in LF
		switch {
		case ok:
			if err := a.statusLine(buf[from:to]); err != nil {
				return false, err
			}
			a.begun, a.bare = true, true
		case len(buf) > maxAnswerHead:
			return false, errHeadSize
		default:
			return false, nil
		}
	}
	if done, err = a.scanFields(buf, maxAnswerHead, maxAnswerHead); err != nil || !done {
		return false, err
	}
	return true, a.finish(toHead)
}

// statusLine reads the version, status and reason (RFC 9112, 4). The space before an empty reason may be missing.
func (a *Answer) statusLine(line []byte) error {
	const version = len("HTTP/1.1")
	if len(line) < version+4 || string(line[:7]) != "HTTP/1." || class[line[7]]&digit == 0 || line[version] != ' ' {
		return errStatusLine
	}
	a.Minor = int(line[7] - '0')
	a.Close = a.Minor == 0
	status := line[version+1 : version+4]
	if !all(status, digit) || status[0] == '0' {
		return errStatusLine
	}
	a.Status = int(status[0]-'0')*100 + int(status[1]-'0')*10 + int(status[2]-'0')
	rest := line[version+4:]
	if len(rest) > 0 && rest[0] != ' ' || len(rest) > 1 && !all(rest, text) {
		return errStatusLine
	}
	a.reason = [2]uint32{uint32(min(version+5, len(line))), uint32(len(line))}
	return nil
}

// finish determines how the body ends (RFC 9112, 6.3).
func (a *Answer) finish(toHead bool) error {
	if err := a.frame(); err != nil {
		return err
	}
	for _, i := range a.known {
		switch f := &a.fields[i]; f.Name {
		case Upgrade:
			f.dropped = !a.upgrade && a.Status != http.StatusSwitchingProtocols
		case ContentLength: // RFC 9110, 8.6
			f.dropped = a.Status < http.StatusOK || a.Status == http.StatusNoContent
		}
	}
	switch {
	case a.Status < 200 || a.Status == 204 || a.Status == 304 || toHead:
		a.Body = NoBody
	case a.Body == NoBody && a.Length < 0:
		a.Body = UntilClose
		a.Close = true
	}
	return nil
}

// appendHead appends the status line and the forwarded fields.
func (a *Answer) appendHead(dst []byte) []byte {
	dst = append(dst, "HTTP/1.1 "...)
	dst = strconv.AppendInt(dst, int64(a.Status), 10)
	dst = append(dst, ' ')
	dst = append(append(dst, a.raw[a.reason[0]:a.reason[1]]...), "\r\n"...)
	for f := range a.Fields {
		dst = append(append(dst, a.raw[f.start:f.valueEnds]...), "\r\n"...)
	}
	return dst
}

// appendStatus appends a status line.
func appendStatus(dst []byte, status int) []byte {
	dst = append(dst, "HTTP/1.1 "...)
	dst = strconv.AppendInt(dst, int64(status), 10)
	dst = append(dst, ' ')
	return append(append(dst, http.StatusText(status)...), "\r\n"...)
}
