package harness

import (
	"fmt"
	"os/exec"
	"strings"
	"time"
)

// A Failure ends a measurement from wherever it is; see Measure.
type Failure string

// Measure reports whether measure succeeds. What it has deferred, such as the removal of a
// network, is done also where it fails.
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

// Run runs a command. That it fails is a Failure.
func Run(cmd *exec.Cmd) {
	if out, err := cmd.CombinedOutput(); err != nil {
		panic(Failure(fmt.Sprintf("%s: %v\n%s", strings.Join(cmd.Args, " "), err, out)))
	}
}

func ip(args ...string) { Run(exec.Command("ip", args...)) }

// Eventually waits until ok says true; that it does not within a minute is a Failure.
func Eventually(what string, ok func() bool) {
	for deadline := time.Now().Add(time.Minute); !ok(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			panic(Failure("waited too long for " + what))
		}
	}
}

// A Network is machines in network namespaces of their own, on a bridge. It needs root, and
// the command ip.
type Network struct {
	Size int // how many machines
}

// wires is the namespace of the bridges, where no firewall of the machine is.
const wires = "edge-wires"

// bridges are what the machines are plugged into: all into the first, and while the network
// is cut some into the second.
var bridges = [...]string{"edge-a", "edge-b"}

// Up makes the network, and returns what removes it.
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

// Name returns the name of the ith machine, which is that of its namespace.
func (n Network) Name(i int) string { return fmt.Sprint("edge-", i+1) }

// IP returns the address of the ith machine.
func (n Network) IP(i int) string { return fmt.Sprint("10.99.0.", i+1) }

// Command returns a command that runs on the ith machine.
func (n Network) Command(i int, name string, args ...string) *exec.Cmd {
	return exec.Command("ip", append([]string{"netns", "exec", n.Name(i), name}, args...)...)
}

// Cut takes all machines but the first few from the others, Heal plugs them in again.
func (n Network) Cut(first int) { n.plug(first, bridges[1]) }

// Heal ends what Cut has begun.
func (n Network) Heal(first int) { n.plug(first, bridges[0]) }

func (n Network) plug(first int, bridge string) {
	for i := first; i < n.Size; i++ {
		ip("-n", wires, "link", "set", veth(i), "master", bridge)
	}
}

// Lose lets each machine lose that part of the packets that come from the others, in
// percent, by nft: not every kernel has netem. A connection's packets are lost like others.
func (n Network) Lose(percent int) {
	for i := range n.Size {
		Run(n.Command(i, "nft", fmt.Sprintf(
			"add table inet loss; add chain inet loss in { type filter hook input priority 0; }; flush chain inet loss in; "+
				"add rule inet loss in iifname eth0 numgen random mod 100 < %d drop", percent)))
	}
}
