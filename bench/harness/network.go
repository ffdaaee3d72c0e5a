package harness

import (
	"fmt"
	"os/exec"
	"strings"
	"time"
)

// A Failure ends a measurement from any depth; see Measure.
type Failure string

// Measure reports whether measure succeeds. Deferred calls, such as the removal of a network, run even if it
// fails.
func Measure(measure func() bool, say func(string)) (ok bool) {
	defer func() {
		switch f := recover().(type) {
		case nil:
		case Failure:
			say(string(f))
		default:
			panic(f)
		}
	}()
	return measure()
}

// Run runs a command. An error is a Failure.
func Run(cmd *exec.Cmd) {
	if out, err := cmd.CombinedOutput(); err != nil {
		panic(Failure(fmt.Sprintf("%s: %v\n%s", strings.Join(cmd.Args, " "), err, out)))
	}
}

func ip(args ...string) { Run(exec.Command("ip", args...)) }

// Eventually waits until ok returns true; a minute without success is a Failure.
func Eventually(what string, ok func() bool) {
	for deadline := time.Now().Add(time.Minute); !ok(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			panic(Failure("waited too long for " + what))
		}
	}
}

// A Network consists of machines in their own network namespaces, connected by a bridge. It needs root, and the
// command ip.
type Network struct {
	Size int // number of machines
}

// wires is the namespace of the bridges, to which the machine's firewall does not apply.
const wires = "edge-wires"

// bridges connect the machines: all are on the first one, and some on the second while the network is cut.
var bridges = [...]string{"edge-a", "edge-b"}

// Up creates the network, and returns a function that removes it.
func (n Network) Up() (remove func()) {
	remove = func() {
		for i := range n.Size {
			_ = exec.Command("ip", "netns", "del", n.Name(i)).Run()
		}
		_ = exec.Command("ip", "netns", "del", wires).Run()
	}
	remove()
	ip("netns", "add", wires)
	for _, bridge := range bridges {
		ip("-n", wires, "link", "add", bridge, "type", "bridge")
		ip("-n", wires, "link", "set", bridge, "up")
	}
	for i := range n.Size {
		ip("netns", "add", n.Name(i))
		ip("-n", wires, "link", "add", veth(i), "type", "veth", "peer", "name", "eth0", "netns", n.Name(i))
		ip("-n", wires, "link", "set", veth(i), "master", bridges[0], "up")
		ip("-n", n.Name(i), "addr", "add", n.IP(i)+"/24", "dev", "eth0")
		ip("-n", n.Name(i), "link", "set", "eth0", "up")
		ip("-n", n.Name(i), "link", "set", "lo", "up")
	}
	return remove
}

func veth(i int) string { return fmt.Sprint("edge-v", i+1) }

// Name returns the name of the ith machine and of its namespace.
func (n Network) Name(i int) string { return fmt.Sprint("edge-", i+1) }

// IP returns the address of the ith machine.
func (n Network) IP(i int) string { return fmt.Sprint("10.99.0.", i+1) }

// Command returns a command that runs on the ith machine.
func (n Network) Command(i int, name string, args ...string) *exec.Cmd {
	return exec.Command("ip", append([]string{"netns", "exec", n.Name(i), name}, args...)...)
}

// Cut separates the first few machines from the others. Heal reconnects them.
func (n Network) Cut(first int) { n.plug(first, bridges[1]) }

// Heal reverses Cut.
func (n Network) Heal(first int) { n.plug(first, bridges[0]) }

func (n Network) plug(first int, bridge string) {
	for i := first; i < n.Size; i++ {
		ip("-n", wires, "link", "set", veth(i), "master", bridge)
	}
}

// Lose makes each machine drop a share of the packets from the others, in percent, with nft, because not every
// kernel has netem. It affects connections, too.
func (n Network) Lose(percent int) {
	for i := range n.Size {
		Run(n.Command(i, "nft", fmt.Sprintf(
			"add table inet loss; add chain inet loss in { type filter hook input priority 0; }; flush chain inet loss in; "+
				"add rule inet loss in iifname eth0 numgen random mod 100 < %d drop", percent)))
	}
}
