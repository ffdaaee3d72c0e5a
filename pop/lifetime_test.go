package pop_test

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/edgelimit/edge/internal/bubble"
	"github.com/edgelimit/edge/operate"
	"github.com/edgelimit/edge/pop"
	"github.com/edgelimit/edge/rule"
)

// echo is an origin that echoes messages after an upgrade.
func echo(w http.ResponseWriter, _ *http.Request) {
	conn, buffered, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return
	}
	defer conn.Close()
	_, _ = io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n")
	_, _ = io.Copy(conn, buffered)
}

// Stop waits for upgraded connections as it does for requests, and closes them when its time is up.
func TestStopWaitsForUpgradedConnections(t *testing.T) {
	for _, tt := range []struct {
		name string
		ends time.Duration // time from Stop until the client ends the connection
		want time.Duration // until Stop returns
		log  string
	}{
		{"the client ends it", 10 * time.Second, 10 * time.Second, ""},
		{"nobody does", time.Hour, 30 * time.Second, "30s n1: closing upgraded connections connections=1\n"},
	} {
		bubble.Test(t, func(t *testing.T) {
			p := startPiped(t, echo, func(*pop.Options) {})
			conn, r := p.connect(t, "GET / HTTP/1.1\r\nHost: a.example\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n")
			if resp, err := http.ReadResponse(r, nil); err != nil || resp.StatusCode != http.StatusSwitchingProtocols {
				t.Fatalf("%s: %+v, %v", tt.name, resp, err)
			}
			start, stopped := time.Now(), make(chan time.Time, 1)
			go func() {
				_ = p.Stop(t.Context())
				stopped <- time.Now()
			}()
			time.AfterFunc(tt.ends, func() { _ = conn.Close() })
			time.Sleep(5 * time.Second)
			fmt.Fprintln(conn, "still there?")
			if line, err := r.ReadString('\n'); err != nil || line != "still there?\n" {
				t.Errorf("%s: while the node stops: %q, %v", tt.name, line, err)
			}
			if took := (<-stopped).Sub(start); took != tt.want {
				t.Errorf("%s: Stop took %v, want %v", tt.name, took, tt.want)
			}
			if log := p.log.take(); log != tt.log {
				t.Errorf("%s: log %q, want %q", tt.name, log, tt.log)
			}
			_ = conn.Close()
			time.Sleep(tt.ends) // until the timer has fired
		})
	}
}

// Changed files are loaded once, when they have not changed for a second, whatever they contain then.
func TestFilesAreLoadedOnce(t *testing.T) {
	const one = "rules:\n  - {id: a, characteristics: [ip], limits: [{threshold: 5, period: 1m}]}\n"
	two := one + strings.ReplaceAll(one[len("rules:\n"):], "id: a", "id: b")
	for _, tt := range []struct {
		name  string
		write func(p *piped, write func(string))
		rules int
		log   string
	}{
		{"nothing changes", func(*piped, func(string)) {}, 1, ""},
		{"a file changes", func(_ *piped, write func(string)) { write(two) }, 2, "3s n1: rules loaded rules=2\n"},
		{"a file has an error", func(_ *piped, write func(string)) { write("rules: 7") }, 1, "3s n1: cannot reload the rules; the previous ones stay in force\n"},
		{"it is loaded before anybody looks", func(p *piped, write func(string)) {
			write(two)
			if err := p.Reload(); err != nil {
				t.Error(err)
			}
		}, 2, "1.5s n1: rules loaded rules=2\n"},
		{"it is written in parts", func(_ *piped, write func(string)) {
			for n := 10; n < len(two); n += len(two) / 2 {
				write(two[:n])
				time.Sleep(700 * time.Millisecond)
			}
			write(two)
		}, 2, "4s n1: rules loaded rules=2\n"},
	} {
		bubble.Test(t, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "rules.yaml")
			write := func(text string) {
				if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
					t.Error(err)
				}
			}
			write(one)
			p := startPiped(t, echo, func(o *pop.Options) { o.RuleFiles = []string{file} })
			time.Sleep(1500 * time.Millisecond)
			tt.write(p, write)
			time.Sleep(time.Minute)
			if n := len(p.Rules().Rules()); n != tt.rules {
				t.Errorf("%s: %d rules are in force, want %d", tt.name, n, tt.rules)
			}
			problems := p.Operator().Status().Problems
			if failed := strings.Contains(tt.log, "cannot reload"); failed != strings.Contains(fmt.Sprint(problems), "cannot reload files") {
				t.Errorf("%s: problems %q", tt.name, problems)
			}
			var log strings.Builder
			reloads := 0
			for line := range strings.Lines(p.log.take()) {
				if strings.Contains(line, "admin change by=SIGHUP") || strings.Contains(line, "admin change by=file") {
					reloads++
					continue
				}
				before, _, cut := strings.Cut(line, " err=")
				log.WriteString(before)
				if cut {
					log.WriteByte('\n')
				}
			}
			if log.String() != tt.log {
				t.Errorf("%s: log\n%swant\n%s", tt.name, log.String(), tt.log)
			}
			loaded, failed := strings.Count(tt.log, "loaded rules="), strings.Count(tt.log, "cannot reload")
			if noted := p.Operator().Changes().Changes; reloads != loaded || len(noted) != loaded+failed ||
				strings.Contains(tt.log, "cannot reload") != slices.ContainsFunc(noted, func(c operate.Change) bool { return c.Error != "" }) {
				t.Errorf("%s: %d reloads are logged as changes, and noted as %+v; want each once, and no failure twice", tt.name, reloads, noted)
			}
		})
	}
}

// Files that rules refer to, such as networks and overrides, are watched like the rules, even if they are
// missing. An error in them changes nothing.
func TestReferencedFilesAreWatched(t *testing.T) {
	const networks = "rules:\n  - {id: a, match: {networks: [x]}, characteristics: [ip], limits: [{threshold: 5, period: 1m}]}\nnetworks: {x: {file: "
	const overrides = "rules: [{id: a, characteristics: [ip], limits: [{threshold: 5, period: 1m}], overrides: first}]"
	network := func(s *rule.Set) string { return s.Rules()[0].Networks[0].Prefixes[0].String() }
	plans := func(s *rule.Set) string {
		plans, keys := s.Rule("a").Overridden()
		return fmt.Sprintf("%v, %d keys", plans[0].Limits[0], keys)
	}
	type step struct{ file, text, want string }
	for _, tt := range []struct {
		name         string
		read         func(*rule.Set) string
		first, rules string // contents of the file that the rules refer to first, and of the rules
		steps        []step
		loads        int
		err          string // in the log
	}{
		{"networks", network, "192.0.2.0/24\n", networks + "first}}\n", []step{
			{"first", "198.51.100.0/24\n", "198.51.100.0/24"},
			{"first", "198.51.100.0/33\n", "198.51.100.0/24"},
			{"rules.yaml", networks + "b.txt}}\n", "198.51.100.0/24"}, // b.txt is missing
			{"b.txt", "203.0.113.0/24\n", "203.0.113.0/24"},
			{"b.txt", "203.0.113.128/25\n", "203.0.113.128/25"},
		}, 3, "first:1:1: "},
		{"overrides", plans, "ip,1m\n192.0.2.1,7\n", overrides, []step{
			{"first", "ip,1m\n192.0.2.1,8\n192.0.2.2,8\n", "8 in 1m, 2 keys"},
			{"first", "ip,1m\n192.0.2.1,0\n", "8 in 1m, 2 keys"},
			{"first", "ip,1m\n192.0.2.1,9\n", "9 in 1m, 1 keys"},
		}, 2, "first:2:11: a threshold cannot be"},
	} {
		bubble.Test(t, func(t *testing.T) {
			dir := t.TempDir()
			write := func(name, text string) {
				if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
					t.Error(err)
				}
				time.Sleep(10 * time.Second)
			}
			write("first", tt.first)
			write("rules.yaml", tt.rules)
			p := startPiped(t, echo, func(o *pop.Options) { o.RuleFiles = []string{filepath.Join(dir, "rules.yaml")} })
			for _, step := range tt.steps {
				write(step.file, step.text)
				if got := tt.read(p.Rules()); got != step.want {
					t.Errorf("%s: %s written as %q: %s, want %s", tt.name, step.file, step.text, got, step.want)
				}
			}
			log := p.log.take()
			if n := strings.Count(log, "rules loaded"); n != tt.loads || !strings.Contains(log, tt.err) {
				t.Errorf("%s: rules were loaded %d times, want %d, and the error %s:\n%s", tt.name, n, tt.loads, tt.err, log)
			}
		})
	}
}
