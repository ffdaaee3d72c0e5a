package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/pflag"

	"github.com/edgelimit/edge/analysis/accesslog"
	"github.com/edgelimit/edge/analysis/page"
)

// An overview summarizes a log. It is the answer if no mode is selected.
type overview struct {
	Log      accesslog.Stats `json:"log"`
	Requests int64           `json:"requests"`
	Clients  int             `json:"clients"`
	From     time.Time       `json:"from"`
	To       time.Time       `json:"to"`
	Busiest  []busyClient    `json:"busiest"`
	Next     []suggestedNext `json:"next"`
}

// A busyClient is one of the clients with the most requests.
type busyClient struct {
	Client   string  `json:"client"`
	Requests int64   `json:"requests"`
	Pct      float64 `json:"pct"`             // of all requests
	Most     int64   `json:"most_per_minute"` // in a minute of the clock
}

// A suggestedNext is a command that tells more.
type suggestedNext struct {
	Command string `json:"command"`
	Says    string `json:"says"`
}

// newOverview returns the mode that is used if no other is selected.
func newOverview(files []string, general *pflag.FlagSet, out *outputFlags) replayMode {
	return replayMode{
		name: "", flags: pflag.NewFlagSet("", pflag.ContinueOnError), needs: func() accesslog.Fields { return accesslog.Addr },
		check: func() error {
			switch hint := "add one of them"; {
			case out.html != "":
				return fail("html", hint, "a page needs a question to answer")
			case out.markdown:
				return fail("markdown", hint, "a report needs a question to answer")
			}
			return nil
		},
		run: func(ctx context.Context, in *input, to destination) error {
			o, err := readOverview(ctx, in, to)
			if err != nil {
				return err
			}
			o.suggest(files, general)
			if to.asJSON {
				return writeJSON(to.stdout, o)
			}
			fmt.Fprintf(to.stdout, "%s\n\n", in.names())
			return o.write(to.stdout)
		},
	}
}

func readOverview(ctx context.Context, in *input, to destination) (*overview, error) {
	type tally struct{ requests, minute, inMinute, most int64 }
	clients := map[string]*tally{}
	err := in.entries(ctx, func(e *accesslog.Entry) error {
		c := clients[e.Client]
		if c == nil {
			c = new(tally)
			clients[strings.Clone(e.Client)] = c
		}
		if minute := e.Time / time.Minute.Microseconds(); c.requests == 0 || minute != c.minute {
			c.minute, c.inMinute = minute, 0
		}
		c.requests++
		c.inMinute++
		c.most = max(c.most, c.inMinute)
		return nil
	})
	if err != nil {
		return nil, err
	}
	s := in.stats()
	o := &overview{Log: s, Requests: s.Entries, Clients: len(clients), From: time.UnixMicro(s.First).UTC(), To: time.UnixMicro(s.Last).UTC()}
	for name, c := range clients {
		o.Busiest = append(o.Busiest, busyClient{name, c.requests, 100 * float64(c.requests) / float64(s.Entries), c.most})
	}
	slices.SortFunc(o.Busiest, func(a, b busyClient) int {
		return cmp.Or(cmp.Compare(b.Requests, a.Requests), cmp.Compare(a.Client, b.Client))
	})
	o.Busiest = o.Busiest[:min(10, len(o.Busiest))]
	for i := range o.Busiest {
		if to.name != nil {
			o.Busiest[i].Client = to.name(o.Busiest[i].Client)
		}
	}
	return o, nil
}

// plainWord matches words that a shell does not interpret.
var plainWord = regexp.MustCompile(`^[\w@%+=:,./-]+$`)

func shellQuote(word string) string {
	if plainWord.MatchString(word) {
		return word
	}
	return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
}

// suggest adds commands that read the same logs in the same way.
func (o *overview) suggest(files []string, general *pflag.FlagSet) {
	var how strings.Builder
	general.VisitAll(func(f *pflag.Flag) {
		if !f.Changed {
			return
		}
		switch f.Name {
		case "format", "pattern", "fields", "time-zone", "sort", "temp-dir":
			fmt.Fprintf(&how, " --%s %s", f.Name, shellQuote(f.Value.String()))
		}
	})
	for _, name := range files {
		how.WriteString(" " + shellQuote(name))
	}
	limit := 1
	for _, n := range []int{2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10_000} {
		if int64(n) < o.Busiest[0].Most {
			limit = n
		}
	}
	o.Next = []suggestedNext{
		{"edge replay --sweep" + how.String(), "which limits would affect almost no clients"},
		{fmt.Sprintf("edge replay --accuracy --limit %d/1m%s", limit, how.String()), "how often the estimate would decide differently from an exact count"},
		{fmt.Sprintf("echo 'rules: [{id: all, characteristics: [ip], limits: [{threshold: %d, period: 1m}]}]' > rules.yaml", limit), "a rule to start with"},
		{"edge replay --rules rules.yaml" + how.String(), "which clients it would have refused"},
	}
}

func (o *overview) write(out io.Writer) error {
	t := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	when := "at " + o.From.Format(time.DateTime)
	if !o.From.Equal(o.To) {
		when = fmt.Sprintf("from %s to %s", o.From.Format(time.DateTime), o.To.Format(time.DateTime))
	}
	fmt.Fprintf(t, "%s of %s %s (UTC)\n\n", page.Count(o.Requests, "request"), page.Count(o.Clients, "client"), when)
	fmt.Fprintf(t, "busiest clients\trequests\tof all\tmost in a minute\n")
	for _, c := range o.Busiest {
		fmt.Fprintf(t, "  %s\t%s\t%.1f%%\t%s\n", c.Client, page.Grouped(c.Requests), c.Pct, page.Grouped(c.Most))
	}
	fmt.Fprintf(t, "\nwhat to try next\n")
	err := t.Flush()
	for _, n := range o.Next {
		_, e := fmt.Fprintf(out, "  # %s\n  %s\n", n.Says, n.Command)
		err = errors.Join(err, e)
	}
	return err
}
