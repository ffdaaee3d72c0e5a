package limit_test

import (
	"go/token"
	"go/types"
	"slices"
	"strings"
	"testing"

	"golang.org/x/tools/go/callgraph"
	"golang.org/x/tools/go/callgraph/cha"
	"golang.org/x/tools/go/callgraph/vta"
	"golang.org/x/tools/go/packages"
	"golang.org/x/tools/go/ssa"
	"golang.org/x/tools/go/ssa/ssautil"

	"github.com/edgelimit/edge/internal/harness"
)

// The request path touches no network and waits for nothing: no function that Decide and Answered
// may call makes a system call, starts a goroutine, or blocks on a channel. The test uses the call
// graph of the program, not the calls of one run.
func TestDecisionReachesNoNetwork(t *testing.T) {
	if !harness.WithoutRaceDetector(t, "reach_test.go") {
		return
	}
	initial, err := packages.Load(&packages.Config{Mode: packages.LoadAllSyntax}, "github.com/edgelimit/edge/limit")
	if err != nil || packages.PrintErrors(initial) > 0 {
		t.Fatalf("loading: %v", err)
	}
	program, loaded := ssautil.AllPackages(initial, ssa.InstantiateGenerics)
	program.Build()
	graph := vta.CallGraph(ssautil.AllFunctions(program), cha.CallGraph(program))
	limiter := types.NewPointer(loaded[0].Type("Limiter").Object().Type())
	method := func(name string) *callgraph.Node {
		return graph.Nodes[program.LookupMethod(limiter, loaded[0].Pkg, name)]
	}

	r := reach{seen: map[*callgraph.Node]bool{}}
	r.walk(method("Decide"), nil)
	r.walk(method("Answered"), nil)
	for _, found := range r.found {
		t.Error(found)
	}
	// The walk has reached the expected functions, and can find violations.
	for _, part := range []string{"siphash", "bart", "golang-lru", "async", "client_golang/prometheus"} {
		if !slices.ContainsFunc(r.names(), func(name string) bool { return strings.Contains(name, part) }) {
			t.Errorf("the walk did not reach %s", part)
		}
	}
	work := reach{seen: map[*callgraph.Node]bool{}}
	if work.walk(method("Run"), nil); len(work.found) == 0 {
		t.Error("the counting work reaches no network either: the walk finds nothing")
	}
}

// A reach is the set of functions that may be called.
type reach struct {
	seen  map[*callgraph.Node]bool
	found []string // violations, each with its call path
}

// outside are packages with functions that make system calls or wait.
var outside = []string{"net", "os", "syscall", "internal/poll", "time"}

// harmless are functions of those packages that the decision may call.
var harmless = []string{"(time.Time)", "(*time.Time)", "(time.Duration)", "time.UnixMilli", "time.Unix", "time.unixTime", "time.subMono"}

// walk visits all functions that n may call; path leads to n.
func (r *reach) walk(n *callgraph.Node, path []string) {
	if n == nil || r.seen[n] {
		return
	}
	r.seen[n] = true
	name := n.Func.String()
	path = append(slices.Clip(path), name)
	pkg := ""
	if n.Func.Pkg != nil {
		pkg = n.Func.Pkg.Pkg.Path()
	}
	if pkg == "runtime" {
		return // the garbage collector has its own goroutines
	}
	if strings.HasPrefix(name, "(*sync.Pool)") {
		return // in the graph, the New of a pool may be any function; those of package regexp make buffers
	}
	if slices.Contains(outside, pkg) && !slices.ContainsFunc(harmless, func(h string) bool { return strings.HasPrefix(name, h) }) {
		r.add("a call to "+pkg, path)
		return
	}
	for _, block := range n.Func.Blocks {
		for _, instruction := range block.Instrs {
			if what := waits(instruction); what != "" {
				r.add(what, path)
			}
		}
	}
	for _, edge := range n.Out {
		r.walk(edge.Callee, path)
	}
}

func (r *reach) add(what string, path []string) {
	r.found = append(r.found, what+": "+strings.Join(path, "\n\t→ "))
}

func (r *reach) names() (names []string) {
	for n := range r.seen {
		names = append(names, n.Func.String())
	}
	return names
}

// waits describes how an instruction may wait for another goroutine or start one.
func waits(i ssa.Instruction) string {
	switch i := i.(type) {
	case *ssa.Send:
		return "a send that may block"
	case *ssa.Select:
		if i.Blocking {
			return "a select that may block"
		}
	case *ssa.UnOp:
		if i.Op == token.ARROW {
			return "a receive that may block"
		}
	case *ssa.Go:
		return "a goroutine that is started"
	}
	return ""
}
