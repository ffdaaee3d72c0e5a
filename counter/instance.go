package counter

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

// An Instance is one run of a server, from its start to its end. Several may answer at one
// address, and one at several. The zero Instance is unknown.
type Instance struct {
	PID   int    // of the server's process
	Start int64  // in seconds since the Unix epoch; it is rounded differently each time
	Name  string // tells instances in one process apart; memcached has none
}

// startTolerance is by how many seconds the start of an instance differs at most, each time
// that it is asked for.
const startTolerance = 2

// same reports whether a and b, which are known, are the same instance.
func (a Instance) same(b Instance) bool {
	return a.PID == b.PID && a.Name == b.Name && max(a.Start-b.Start, b.Start-a.Start) <= startTolerance
}

// A Link is one connection to a server. Replies over the same connection come with the same
// *Link. A nil *Link leads to an unknown instance.
type Link struct{ Instance Instance }

// Known reports whether the instance that l leads to is known.
func (l *Link) Known() bool { return l != nil && l.Instance != (Instance{}) }

// Same reports whether l and m lead to the same instance, as far as instances say.
func (l *Link) Same(m *Link) bool { return l.Known() && m.Known() && l.Instance.same(m.Instance) }

// Apart reports whether l and m certainly lead to different instances.
func (l *Link) Apart(m *Link) bool { return l.Known() && m.Known() && !l.Instance.same(m.Instance) }

// maxStats is how many bytes of a server's answer to stats are read.
const maxStats = 1 << 16

// ask asks the server at the other end of conn which instance it is, until ctx ends. The
// instance of a server that has no such answer is unknown.
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
