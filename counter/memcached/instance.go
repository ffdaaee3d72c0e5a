package memcached

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"time"
)

// An Instance is one run of a server. Several may answer at one address, and one at several. The
// zero Instance is unknown.
type Instance struct {
	PID   int    // of the server's process
	Start int64  // in seconds since the Unix epoch; rounded differently each time
	Name  string // unique; memcached has none
}

// startTolerance is the maximum difference between two answers for the start of an instance, in
// seconds.
const startTolerance = 2

// same reports whether a and b, which must be known, are the same instance. The start of one with a name does not
// matter: it is by the wall clock of its machine, which may be set.
func (a Instance) same(b Instance) bool {
	if a.Name != "" || b.Name != "" {
		return a.Name == b.Name
	}
	return a.PID == b.PID && max(a.Start-b.Start, b.Start-a.Start) <= startTolerance
}

// A Link is one connection to a server. Replies over the same connection have the same *Link. A
// nil *Link leads to an unknown instance.
type Link struct{ Instance Instance }

// Known reports whether the instance that l leads to is known.
func (l *Link) Known() bool { return l != nil && l.Instance != (Instance{}) }

// Same reports whether l and m lead to the same known instance.
func (l *Link) Same(m *Link) bool { return l.Known() && m.Known() && l.Instance.same(m.Instance) }

// Apart reports whether l and m lead to different known instances.
func (l *Link) Apart(m *Link) bool { return l.Known() && m.Known() && !l.Instance.same(m.Instance) }

// maxStats is the maximum size of a server's answer to stats, in bytes.
const maxStats = 1 << 16

// ask asks the server at the other end of conn which instance it is. If the server does not
// answer that question, the instance is unknown.
func ask(ctx context.Context, conn net.Conn) (Instance, error) {
	if deadline, ok := ctx.Deadline(); ok {
		if err := conn.SetDeadline(deadline); err != nil {
			return Instance{}, err
		}
		defer conn.SetDeadline(time.Time{})
	}
	if _, err := io.WriteString(conn, "stats\r\n"); err != nil {
		return Instance{}, err
	}
	var i Instance
	var now, uptime int64
	lines := bufio.NewReader(io.LimitReader(conn, maxStats))
	for {
		line, err := lines.ReadString('\n')
		if err != nil {
			return Instance{}, fmt.Errorf("asking for stats: %w", err)
		}
		fields := strings.Fields(line)
		if len(fields) < 3 || fields[0] != "STAT" {
			break // END, or an error
		}
		number, _ := strconv.ParseInt(fields[2], 10, 64)
		switch fields[1] {
		case "pid":
			i.PID = int(number)
		case "time":
			now = number
		case "uptime":
			uptime = number
		case "instance":
			i.Name = fields[2]
		}
	}
	if i.PID == 0 || now == 0 {
		return Instance{}, nil
	}
	i.Start = now - uptime
	return i, nil
}
