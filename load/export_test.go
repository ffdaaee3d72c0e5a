package load

import (
	"bufio"
	"io"
	"net/netip"
	"strings"
	"time"

	"github.com/edgelimit/edge/load/judge"
)

// ReadAnswers reads answers until one is invalid or the connection ends, and returns their statuses.
func ReadAnswers(from io.Reader) (statuses []int, err error) {
	w := wire{Reader: bufio.NewReaderSize(from, 4096), nodeHeader: []byte("X-Edge-Node")}
	for a := (answer{}); !a.last; {
		if err := w.read(&a, false); err != nil {
			return statuses, err
		}
		statuses = append(statuses, int(a.status))
	}
	return statuses, nil
}

// FailureOf returns the kind of failure that an error is reported as, or "" if there is none.
func FailureOf(err error) string { return failureNames[failureOf(err)] }

// readAnswer reads an answer without a body.
func readAnswer(head string) (a answer) {
	w := wire{Reader: bufio.NewReader(strings.NewReader(head + "Content-Length: 0\r\n\r\n"))}
	if err := w.read(&a, false); err != nil {
		panic(err)
	}
	return a
}

// Headers holds the data of an answer's headers: the smallest remaining quota, and whether the reset time differs
// from Retry-After.
type Headers struct {
	Remaining int32
	OtherTime bool
}

func ReadHeaders(lines string) Headers {
	a := readAnswer("HTTP/1.1 429 Too Many Requests\r\n" + lines)
	return Headers{a.least(), a.disagreement() == otherTime}
}

// ByRule reports whether an answer with these header lines is recognized as a rule's.
func ByRule(lines string) bool {
	a := readAnswer(lines)
	return a.flags&prepared != 0
}

// A DecidedRequest is a request and its outcome at one of the nodes.
type DecidedRequest struct {
	At         time.Duration // since the beginning; must not decrease
	Client     uint64
	Refused    bool
	RetryAfter uint32 // seconds
	Down       bool   // refused because a shard was unavailable
}

// DecidedLog returns the log of a run that sent these requests, each of which took a millisecond.
func DecidedLog(began time.Time, source Source, requests []DecidedRequest) *Log {
	look := &Look{Method: "GET", Host: "example.com", Target: "/", number: 1}
	l := &Log{
		report: Report{Began: began}, looks: []*Look{look}, nodes: []string{"node"}, components: source.Components(), sources: make([]netip.Addr, 1),
		o: Options{Source: source, Targets: make([]Target, 1), Identity: Identity{Forwarded: true}},
	}
	for _, q := range requests {
		r := record{sent: q.At.Microseconds(), done: q.At.Microseconds() + 1000, client: q.Client, look: 1, status: 200, retry: judge.NoRetry, remaining: -1}
		if q.Refused {
			r.status, r.retry = 429, int32(q.RetryAfter)
		}
		if q.Down {
			r.status, r.retry = 503, 1
		}
		l.records = append(l.records, r)
	}
	return l
}
