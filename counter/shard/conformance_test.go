package shard_test

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/edgelimit/edge/counter/shard"
	"github.com/edgelimit/edge/internal/harness"
)

// TestConformance replays the conversations in testdata/conformance with a shard
// over TCP, one over a pipe, and the real memcached. Each line of a file is a step:
//
//	== name                    begins a conversation; there are no items
//	# comment
//	> text                     the client sends text and a line end
//	> "quoted"                 the client sends exactly this; quoted as in Go
//	< text, < "quoted"         the server sends this
//	<shard text                only the shard sends this; a comment says why
//	<memcached text            only memcached sends this
//	<eof                       the server closes the connection
//	? name n                   this figure of stats has increased by n
//
// Memcached's clock may tick meanwhile, so its times may be off by seconds.
//
// {x*9} stands for nine times x, and $a for a CAS unique: the same name for equal
// ones, different names for different ones.
func TestConformance(t *testing.T) {
	files, err := filepath.Glob("testdata/conformance/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("no conversations: %v", err)
	}
	var all []conversation
	for _, file := range files {
		all = append(all, parseConversations(t, file)...)
	}

	t.Run("shard over tcp", func(t *testing.T) {
		for _, cv := range all {
			t.Run(cv.name, func(t *testing.T) {
				t.Parallel()
				cv.run(dialTCP(t, listenTCP(t, shard.Options{})), "shard")
			})
		}
	})
	t.Run("shard over pipe", func(t *testing.T) {
		for _, cv := range all {
			t.Run(cv.name, func(t *testing.T) {
				t.Parallel()
				ln := shard.NewPipe()
				newServer(t, shard.Options{}, ln)
				cv.run(dial(t, ln), "shard")
			})
		}
	})
	t.Run("memcached", func(t *testing.T) {
		addr := harness.StartMemcached(t, still...).Addr
		for _, cv := range all {
			t.Run(cv.name, func(t *testing.T) {
				c := dialTCP(t, addr)
				c.expect("flush_all\r\n", "OK\r\n")
				cv.run(c, "memcached")
			})
		}
	})
}

type conversation struct {
	name  string
	steps []step
}

type step struct {
	where, verb, text string
}

var repeat = regexp.MustCompile(`\{([^{}*]+)\*(\d+)\}`)

func parseConversations(t *testing.T, file string) []conversation {
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var all []conversation
	for i, line := range strings.Split(string(text), "\n") {
		where := file + ":" + strconv.Itoa(i+1)
		verb, rest, _ := strings.Cut(line, " ")
		rest = repeat.ReplaceAllStringFunc(rest, func(s string) string {
			m := repeat.FindStringSubmatch(s)
			n, _ := strconv.Atoi(m[2])
			return strings.Repeat(m[1], n)
		})
		switch verb {
		case "", "#":
			continue
		case "==":
			all = append(all, conversation{name: rest})
			continue
		case ">", "<", "<shard", "<memcached":
			if strings.HasPrefix(rest, `"`) {
				if rest, err = strconv.Unquote(rest); err != nil {
					t.Fatalf("%s: %v", where, err)
				}
			} else {
				rest += "\r\n"
			}
		case "<eof", "?":
		default:
			t.Fatalf("%s: unknown verb %q", where, verb)
		}
		cv := &all[len(all)-1]
		cv.steps = append(cv.steps, step{where, verb, rest})
	}
	return all
}

// run replays the conversation with the server named role.
func (cv conversation) run(c *client, role string) {
	c.t.Helper()
	var before map[string]int64
	for _, st := range cv.steps {
		if st.verb == "?" {
			before = c.stats()
			break
		}
	}
	cas := make(casNames)
	request := ""
	open := true
	for _, st := range cv.steps {
		if st.verb == ">" {
			request += cas.fill(st.text)
			continue
		}
		if request != "" {
			c.send(request)
			request = ""
		}
		switch st.verb {
		case "<eof":
			open = false
			if line := c.line(); line != "" {
				c.t.Fatalf("%s: got %q, want EOF", st.where, line)
			}
		case "?":
			name, text, _ := strings.Cut(st.text, " ")
			want, _ := strconv.ParseInt(text, 10, 64)
			if got := c.stats()[name] - before[name]; got != want {
				c.t.Errorf("%s: %s has increased by %d, want %d", st.where, name, got, want)
			}
		case "<", "<" + role:
			if role == "memcached" && ticked.MatchString(st.text) {
				st = st.tick(c)
			}
			cas.match(c, st)
		}
	}
	if open {
		c.expect(request+ping, pong)
	}
}

// ticked matches what changes in a reply when a second passes.
var ticked = regexp.MustCompile(` t100| l0`)

// tick returns st as the server answers it after its clock has ticked, if it has.
func (st step) tick(c *client) step {
	peek, _ := c.r.Peek(len(st.text) - 1)
	for seconds := 1; seconds < 10; seconds++ {
		later := strings.NewReplacer(" t100", fmt.Sprint(" t", 100-seconds), " l0", fmt.Sprint(" l", seconds)).Replace(st.text)
		if strings.HasPrefix(later, string(peek)) {
			st.text = later
			break
		}
	}
	return st
}

// casNames maps names to CAS uniques.
type casNames map[string]string

var casName = regexp.MustCompile(`\$[a-z]+`)

func (n casNames) fill(text string) string {
	return casName.ReplaceAllStringFunc(text, func(name string) string {
		if n[name] == "" {
			return name
		}
		return n[name]
	})
}

// match reads a reply and fails unless it is that of st.
func (n casNames) match(c *client, st step) {
	c.t.Helper()
	fail := func(got string) {
		c.t.Helper()
		c.t.Fatalf("%s: got %q, want %q", st.where, got, st.text)
	}
	want := st.text
	for {
		at := casName.FindStringIndex(want)
		if at == nil {
			if got := c.bytes(len(want)); got != want {
				fail(got)
			}
			return
		}
		name := want[at[0]:at[1]]
		if got := c.bytes(at[0]); got != want[:at[0]] {
			fail(got)
		}
		want = want[at[1]:]
		// The unique is the digits before the rest.
		var digits strings.Builder
		for {
			next, err := c.r.Peek(1)
			if err != nil || next[0] < '0' || next[0] > '9' {
				break
			}
			digits.WriteString(c.bytes(1))
		}
		got := digits.String()
		if n[name] == "" {
			for other, cas := range n {
				if cas == got {
					c.t.Errorf("%s: the unique %s is also that of %s", st.where, got, other)
				}
			}
			n[name] = got
		}
		if got == "" || n[name] != got {
			fail(got)
		}
	}
}
