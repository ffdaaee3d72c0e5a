package harness

import (
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"runtime"
	"strings"
	"time"
)

// Machine describes what the figures of a run depend on: the day, the machine and its load before, and the
// versions of the programs.
func Machine(programs ...string) string {
	facts := []string{
		time.Now().UTC().Format("2 January 2006, 15:04 UTC"),
		fmt.Sprintf("%d cores of %s", runtime.NumCPU(), find(`model name\s*: (.*)`, read("/proc/cpuinfo"))),
		"Linux " + strings.TrimSpace(read("/proc/sys/kernel/osrelease")),
		"load average " + find(`^\S+`, read("/proc/loadavg")),
		runtime.Version(),
	}
	for _, name := range programs {
		flag := map[string]string{"memcached": "-V", "nginx": "-v", "wrk": "-v", "h2load": "--version", "haproxy": "-v", "caddy": "version", "redis-server": "--version"}[name]
		out, _ := exec.Command(name, flag).CombinedOutput() // wrk fails after printing its version
		facts = append(facts, name+" "+find(`\d+\.\d+[.\d]*`, string(out)))
	}
	return strings.Join(facts, ", ")
}

func read(file string) string {
	text, err := os.ReadFile(file)
	Check(err)
	return string(text)
}

// find returns the first group of the first match, or the whole match without a group.
func find(pattern, text string) string {
	m := regexp.MustCompile(pattern).FindStringSubmatch(text)
	if m == nil {
		return "?"
	}
	return m[len(m)-1]
}
