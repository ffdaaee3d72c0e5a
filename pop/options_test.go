package pop_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/edgelimit/edge/pop"
)

// Every field of the options is read by code that makes and runs a node, not only by code that declares and
// checks it.
func TestEveryOptionIsRead(t *testing.T) {
	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	options := []string{"o", "n.o", "f.o", "g", "o.Gossip", "n.o.Gossip", "f.o.Gossip"}
	read := map[string]bool{}
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") || slices.Contains([]string{"settings.go", "check.go", "local.go"}, file) {
			continue
		}
		parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(parsed, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.FuncDecl:
				return n.Name.Name != "withDefaults"
			case *ast.SelectorExpr:
				if slices.Contains(options, types.ExprString(n.X)) {
					read[n.Sel.Name] = true
				}
			}
			return true
		})
	}
	for _, of := range []reflect.Type{reflect.TypeFor[pop.Options](), reflect.TypeFor[pop.GossipOptions]()} {
		for i := range of.NumField() {
			// The secret's file is read, and an origin is required, when the options are checked.
			checked := []string{"SecretFile", "Embedded"}
			if f := of.Field(i); f.IsExported() && !slices.Contains(checked, f.Name) && !read[f.Name] {
				t.Errorf("nothing reads %v.%s", of, f.Name)
			}
		}
	}
}

// Invalid options are rejected for programs too, not only for the command.
func TestOptionsAreChecked(t *testing.T) {
	file := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(file, []byte("sixteen bytes or more"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, row := range []struct {
		name string
		set  func(*pop.Options)
		want string
	}{
		{"nothing", func(*pop.Options) {}, ""},
		{"without a name", func(o *pop.Options) { o.Name = "" }, "pop: missing setting name"},
		{"too small", func(o *pop.Options) { o.QueueSize = -1 }, "pop: invalid queue-size -1: must be a whole number from 1 to 16777216"},
		{"too large", func(o *pop.Options) { o.MaxHeaderBytes = 1 << 30 }, "pop: invalid max-header-bytes 1073741824: must be a whole number from 1 to 16777216"},
		{"off", func(o *pop.Options) { o.BodyTimeout = -1 }, ""},
		{"negative duration", func(o *pop.Options) { o.IdleTimeout = -1 }, `pop: invalid idle-timeout "-1ns": must be a duration from 1ns to 7d, such as 300ms, 5s, 1h30m or 1d`},
		{"shard", func(o *pop.Options) { o.Shards = []string{"memcached"} }, `pop: invalid shard "memcached": must be HOST:PORT, or redis://HOST:PORT`},
		{"gossip", func(o *pop.Options) { o.Gossip.Listen = "here" }, `pop: invalid gossip-listen "here": must be IP:PORT, or :PORT for all addresses of the machine`},
		{"status", func(o *pop.Options) { o.CheckListen, o.CheckDenyStatus = "unix:check.sock", 700 }, "pop: invalid check-deny-status 700: must be 0 or a status from 400 to 599"},
		{"what another one needs", func(o *pop.Options) { o.TLSKey = "key.pem" }, "pop: tls-key needs tls-cert"},
		{"contradiction", func(o *pop.Options) { o.SecretFile = file }, "pop: secret contradicts secret-file"},
		{"secret", func(o *pop.Options) { o.Secret = "short" }, "pop: invalid secret: must have at least 16 bytes, not 5; make one with: head -c 24 /dev/urandom | base64"},
		{"the longest path of a socket", func(o *pop.Options) { o.CheckListen = "unix:" + strings.Repeat("a", 107) }, ""},
		{"names of two machines", func(o *pop.Options) { o.Listen, o.Origin = "edge.internal:80", "http://app.internal" }, ""},
		{"IPv4 in IPv6 and more", func(o *pop.Options) {
			o.TrustedProxies = append(o.TrustedProxies, netip.MustParsePrefix("::ffff:0:0/90"))
		}, "pop: TrustedProxies: begins like an IPv4 network written as IPv6, but is larger"},
	} {
		o := pop.Options{Name: "n1", Secret: scenarioSecret, Rules: newNode(t, "rules: []", nil).Rules(), Origin: "http://origin", Shards: []string{"s1:1"}}
		row.set(&o)
		got := ""
		if err := o.Check(); err != nil {
			got = err.Error()
		}
		if got != row.want {
			t.Errorf("%s: %s\nwant %s", row.name, got, row.want)
		}
	}
}

// A node that would refuse every request because of its host does not start, and keeps its current rules.
func TestStrictHostsWithoutHosts(t *testing.T) {
	file := filepath.Join(t.TempDir(), "rules.yaml")
	write := func(match string) {
		t.Helper()
		text := "rules: [{id: a, match: {" + match + "}, characteristics: [ip], limits: [{threshold: 5, period: 1m}]}]"
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	o := pop.Options{Name: "n1", RuleFiles: []string{file}, Origin: "http://origin", StrictHosts: true, Logger: slog.New(slog.DiscardHandler)}
	const want = "pop: strict-hosts refuses all requests, because no rule names a host: add hosts to a rule, or set host-origin"
	write("paths: [/a]")
	if _, err := pop.New(o); err == nil || err.Error() != want {
		t.Errorf("New with rules that name no host = %v, want %s", err, want)
	}
	o.HostOrigins = map[string]string{"example.com": "http://origin"}
	if _, err := pop.New(o); err != nil {
		t.Errorf("New with an origin of a host = %v", err)
	}
	o.HostOrigins = nil
	write("hosts: ['*.example.com']")
	n, err := pop.New(o)
	if err != nil {
		t.Fatal(err)
	}
	write("paths: [/a]")
	if err := n.Reload(); err == nil || err.Error() != want || !n.Rules().Names("a.example.com") {
		t.Errorf("Reload of rules that name no host = %v, want %s and the previous rules", err, want)
	}
}
