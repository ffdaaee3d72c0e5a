package shard_test

import (
	"flag"
	"fmt"
	"io"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/edgelimit/edge/counter/shard"
	"github.com/edgelimit/edge/internal/harness"
)

// TestDifferential sends random commands to a shard and to the real memcached, and
// compares the replies byte for byte and the final figures of stats. It avoids the
// differences listed in the package's doc.
func TestDifferential(t *testing.T) {
	checks := "1000"
	if testing.Short() {
		checks = "300"
	}
	setRapid(t, "rapid.checks", checks)
	setRapid(t, "rapid.nofailfile", "true") // the seed is enough
	peers := []*casPeer{
		{client: dialTCP(t, listenTCP(t, shard.Options{}))},
		{client: dialTCP(t, harness.StartMemcached(t, still...).Addr)},
	}
	var before []map[string]int64
	for _, p := range peers {
		before = append(before, p.stats())
	}
	rapid.Check(t, func(rt *rapid.T) {
		for _, p := range peers {
			p.seen = nil
		}
		for _, cmd := range append([]string{"flush_all\r\n"}, rapid.SliceOfN(command(), 1, 100).Draw(rt, "commands")...) {
			got := peers[0].answer(rt, cmd)
			want := peers[1].answer(rt, cmd)
			if got != want {
				rt.Fatalf("%q: got %q, want %q", cmd, got, want)
			}
		}
	})
	got, want := peers[0].stats(), peers[1].stats()
	for _, name := range []string{
		"cmd_get", "cmd_set", "cmd_flush", "get_hits", "get_misses", "delete_misses", "delete_hits",
		"incr_misses", "incr_hits", "cas_misses", "cas_hits", "cas_badval",
	} {
		got, want := got[name]-before[0][name], want[name]-before[1][name]
		if got != want {
			t.Errorf("%s has increased by %d, want %d", name, got, want)
		}
	}
}

// setRapid sets a flag of rapid for the duration of the test, unless it is given on
// the command line.
func setRapid(t *testing.T, name, value string) {
	if f := flag.Lookup(name); f.Value.String() == f.DefValue {
		f.Value.Set(value)
		t.Cleanup(func() { f.Value.Set(f.DefValue) })
	}
}

// casPeer is a client that numbers CAS uniques in the order of their appearance: #0#
// in a command or a reply is the first one.
type casPeer struct {
	*client
	seen []string
}

var (
	ordinal   = regexp.MustCompile(`#(\d+)#`)
	casReply  = regexp.MustCompile(`^(VALUE \S+ \d+ \d+ )([1-9]\d*)`)
	endMarker = "VERSION "
)

// answer returns the reply to cmd.
func (p *casPeer) answer(t *rapid.T, cmd string) string {
	cmd = ordinal.ReplaceAllStringFunc(cmd, func(s string) string {
		n, _ := strconv.Atoi(s[1 : len(s)-1])
		if n < len(p.seen) {
			return p.seen[n]
		}
		return "1" + strings.Repeat("0", 18) // too high to be one
	})
	p.conn.SetDeadline(time.Now().Add(patience))
	if _, err := io.WriteString(p.conn, cmd+"version\r\n"); err != nil {
		t.Fatalf("%q: %v", cmd, err)
	}
	var reply strings.Builder
	for {
		line, err := p.r.ReadString('\n')
		if err != nil {
			t.Fatalf("%q: %v after %q", cmd, err, reply.String()+line)
		}
		if strings.HasPrefix(line, endMarker) {
			return reply.String()
		}
		if m := casReply.FindStringSubmatchIndex(line); m != nil {
			line = line[:m[4]] + p.name(line[m[4]:m[5]]) + line[m[5]:]
		}
		reply.WriteString(line)
	}
}

func (p *casPeer) name(cas string) string {
	for i, c := range p.seen {
		if c == cas {
			return fmt.Sprintf("#%d#", i)
		}
	}
	p.seen = append(p.seen, cas)
	return fmt.Sprintf("#%d#", len(p.seen)-1)
}

// command returns a generator of commands, most of them well-formed, for a few keys.
func command() *rapid.Generator[string] {
	key := rapid.OneOf(
		rapid.SampledFrom([]string{"a", "b", "c", "a_rather_long_key_beyond_forty_bytes_of_text"}),
		rapid.Just("c"+strings.Repeat("x", 249)),
	)
	// No time to live is so short that it could end during the test. No key has a minus sign: memcached looks for
	// one in the memory after numbers of 2^63 or more.
	odd := rapid.SampledFrom([]string{"x", "1x", "", "18446744073709551616", strings.Repeat("y", 251)})
	number := rapid.SampledFrom([]string{"0", "1", "9", "10", "95", "18446744073709551615", "9223372036854775807"})
	flags := rapid.SampledFrom([]string{"0", "1", "4294967295"})
	exptime := rapid.SampledFrom([]string{"0", "0", "100", "1000", "-1", "2592001"})
	cas := rapid.Custom(func(t *rapid.T) string {
		return fmt.Sprintf("#%d#", rapid.IntRange(0, 20).Draw(t, "cas"))
	})
	// oddly replaces a well-formed word now and then.
	oddly := func(t *rapid.T, g *rapid.Generator[string]) string {
		if rapid.IntRange(0, 60).Draw(t, "odd") == 60 {
			return odd.Draw(t, "odd word")
		}
		return g.Draw(t, "word")
	}
	noreply := func(t *rapid.T) string {
		return rapid.SampledFrom([]string{"", "", "", " noreply"}).Draw(t, "noreply")
	}
	// A value after a line that is refused is read as a command, and so is the rest of one that was announced as shorter.
	// That must be neither version, since each command has one end marker, nor a command that only memcached has, such as
	// gat or me. So values have only letters with which no command begins.
	value := rapid.OneOf(
		number,
		rapid.StringMatching(`[0-9]{1,20}`),
		rapid.StringMatching(`([hjknouxyz][hjknouxyz0-9 ]{0,60})?`),
		rapid.StringMatching(`[hjknouxyz]{200,300}`),
	)
	// length announces a value, sometimes as shorter than it is.
	length := func(t *rapid.T, v string) string {
		n := len(v)
		if rapid.IntRange(0, 40).Draw(t, "lie") == 40 {
			n = rapid.IntRange(0, n).Draw(t, "length")
		}
		return strconv.Itoa(n)
	}
	verb := func(t *rapid.T, names ...string) string { return rapid.SampledFrom(names).Draw(t, "name") }

	return rapid.OneOf(
		rapid.Custom(func(t *rapid.T) string {
			v := value.Draw(t, "value")
			line := verb(t, "set", "set", "add") + " " + oddly(t, key) + " " +
				oddly(t, flags) + " " + oddly(t, exptime) + " " + length(t, v)
			return line + noreply(t) + "\r\n" + v + "\r\n"
		}),
		rapid.Custom(func(t *rapid.T) string {
			v := value.Draw(t, "value")
			return "cas " + oddly(t, key) + " 0 " + oddly(t, exptime) + " " + length(t, v) + " " + oddly(t, cas) +
				noreply(t) + "\r\n" + v + "\r\n"
		}),
		rapid.Custom(func(t *rapid.T) string {
			line := verb(t, "get", "get", "gets")
			for range rapid.IntRange(0, 30).Draw(t, "keys") {
				line += " " + key.Draw(t, "key")
			}
			return line + "\r\n"
		}),
		rapid.Custom(func(t *rapid.T) string {
			return "incr " + oddly(t, key) + " " + oddly(t, number) + noreply(t) + "\r\n"
		}),
		rapid.Custom(func(t *rapid.T) string {
			return "delete " + oddly(t, key) + verb(t, "", " 1") + noreply(t) + "\r\n"
		}),
		rapid.Custom(func(t *rapid.T) string {
			return verb(t, "flush_all", "flush_all 0", "flush_all x") + noreply(t) + "\r\n"
		}),
	)
}
