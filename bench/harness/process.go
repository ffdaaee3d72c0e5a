package harness

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

// A Process is a program that this one has started. It ends no later than this program, because the kernel then kills
// it.
type Process struct {
	cmd   *exec.Cmd
	ended chan struct{}
}

// Start starts a program on some cores, in taskset's format ("0,1"), or on all if empty.
func Start(cores, name string, args ...string) *Process {
	if cores != "" {
		name, args = "taskset", append([]string{"-c", cores, name}, args...)
	}
	return start(exec.Command(name, args...))
}

// StartLogging is like Start, but passes each line on standard error to log.
func StartLogging(log func(line []byte), cores, name string, args ...string) *Process {
	cmd := exec.Command("taskset", append([]string{"-c", cores, name}, args...)...)
	reader, writer := io.Pipe()
	cmd.Stderr = writer
	go func() {
		for lines := bufio.NewScanner(reader); lines.Scan(); {
			log(lines.Bytes())
		}
	}()
	return start(cmd)
}

func start(cmd *exec.Cmd) *Process {
	p := &Process{cmd, make(chan struct{})}
	if cmd.Stderr == nil {
		cmd.Stderr = os.Stderr
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	Check(cmd.Start())
	go func() {
		_ = cmd.Wait()
		close(p.ended)
	}()
	return p
}

// Output runs a program to its end, on all cores, and returns its output.
func Output(name string, args ...string) string {
	var out strings.Builder
	cmd := exec.Command(name, args...)
	cmd.Stdout = &out
	start(cmd).Wait()
	return out.String()
}

// Wait waits for the end of the process. If it fails, so does this program.
func (p *Process) Wait() {
	<-p.ended
	if !p.cmd.ProcessState.Success() {
		Check(fmt.Errorf("%s: %v", strings.Join(p.cmd.Args, " "), p.cmd.ProcessState))
	}
}

// End kills the process and waits for its end.
func (p *Process) End() {
	_ = p.cmd.Process.Kill()
	<-p.ended
}

// Signal sends a signal to the process, unless it has ended.
func (p *Process) Signal(s os.Signal) { _ = p.cmd.Process.Signal(s) }

// CPU returns the CPU time that the process has used, user and system, in steps of 10 ms.
func (p *Process) CPU() time.Duration {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.cmd.Process.Pid))
	Check(err)
	// The name in parentheses is followed by field 3.
	fields := strings.Fields(string(text[strings.LastIndexByte(string(text), ')')+1:]))
	user, _ := strconv.Atoi(fields[14-3])
	system, _ := strconv.Atoi(fields[15-3])
	return time.Duration(user+system) * time.Second / ticks
}

// Memory returns the resident memory of the process in bytes.
func (p *Process) Memory() int { return Memory(p.cmd.Process.Pid) }

// Memory returns the resident memory of a process in bytes.
func Memory(pid int) int { return memory(pid, "VmRSS") }

// PeakMemory returns the maximum of the resident memory of a process in bytes.
func PeakMemory(pid int) int { return memory(pid, "VmHWM") }

func memory(pid int, field string) int {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	Check(err)
	kib, err := strconv.Atoi(find(field+`:\s+(\d+)`, string(text)))
	Check(err)
	return kib << 10
}

// ticks is the number of units of CPU time in /proc per second (USER_HZ).
const ticks = 100

// OwnCPU returns the CPU time that this process has used, user and system.
func OwnCPU() time.Duration {
	var used syscall.Rusage
	Check(syscall.Getrusage(syscall.RUSAGE_SELF, &used))
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}

var dirs struct {
	sync.Mutex
	all []string
}

// TempDir creates a directory. If remove is not called, [Main] removes it.
func TempDir() (dir string, remove func()) {
	dir, err := os.MkdirTemp("", "bench")
	Check(err)
	dirs.Lock()
	defer dirs.Unlock()
	dirs.all = append(dirs.all, dir)
	return dir, func() { _ = os.RemoveAll(dir) }
}

// Main runs a benchmark. Directories are removed even if the program is told to end or fails in [Check].
func Main(run func()) {
	told := make(chan os.Signal, 1)
	signal.Notify(told, syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	go func() {
		<-told
		leave()
		os.Exit(1)
	}()
	run()
	leave()
}

// leave removes the directories.
func leave() {
	dirs.Lock()
	defer dirs.Unlock()
	for _, dir := range dirs.all {
		_ = os.RemoveAll(dir)
	}
}

// Median returns the median of values. If their number is even, it is the greater of the two in the middle.
func Median[T int | float64 | time.Duration](values []T) T {
	return slices.Sorted(slices.Values(values))[len(values)/2]
}

// PreciseCPU returns the CPU time that the process has used, user and system, to the nanosecond.
func (p *Process) PreciseCPU() (used time.Duration) {
	threads, err := os.ReadDir(fmt.Sprintf("/proc/%d/task", p.cmd.Process.Pid))
	Check(err)
	for _, thread := range threads {
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%s/schedstat", p.cmd.Process.Pid, thread.Name()))
		if err != nil {
			continue // the thread has ended
		}
		nanos, _, _ := strings.Cut(string(text), " ")
		n, err := strconv.ParseInt(nanos, 10, 64)
		Check(err)
		used += time.Duration(n)
	}
	return used
}

// AllowFiles raises the limit on open files to its maximum, for this process and those that it starts, and returns it.
func AllowFiles() uint64 {
	var files syscall.Rlimit
	Check(syscall.Getrlimit(syscall.RLIMIT_NOFILE, &files))
	files.Cur = files.Max
	Check(syscall.Setrlimit(syscall.RLIMIT_NOFILE, &files))
	return files.Cur
}
