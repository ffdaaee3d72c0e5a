//go:build linux

package chart_test

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	apps "k8s.io/api/apps/v1"
	core "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/edgelimit/edge/internal/harness"
)

// programs is the variable with the directory of the programs. If it is set, the test runs in namespaces of its own.
const programs = "EDGE_CHART_TEST_PROGRAMS"

// isolated runs the test again in network, mount and process namespaces of its own, which end with it. It returns
// true there.
func isolated(t *testing.T) (inside bool) {
	t.Helper()
	if os.Getenv(programs) != "" {
		run(t, "mount", "-t", "proc", "proc", "/proc")
		run(t, "mount", "-t", "tmpfs", "tmpfs", "/run")
		run(t, "ip", "link", "add", "pods", "type", "bridge")
		run(t, "ip", "addr", "add", gateway+"/16", "dev", "pods")
		run(t, "ip", "addr", "add", "fd00:244::1/64", "dev", "pods", "nodad")
		run(t, "ip", "link", "set", "pods", "up")
		return true
	}
	if os.Geteuid() != 0 {
		harness.Unavailable(t, "only root can make namespaces")
	}
	for _, program := range []string{"ip", "chroot", "ldd", "memcached", "redis-server"} {
		harness.Installed(t, program)
	}
	dir := t.TempDir()
	for program, module := range map[string]string{"edge": ".", "edge-envoy": "proxy/envoy"} {
		build := exec.Command("go", "build", "-trimpath", "-o", filepath.Join(dir, program), "./cmd/"+program)
		build.Dir, build.Env = filepath.Join("../../..", module), append(os.Environ(), "CGO_ENABLED=0")
		if out, err := build.CombinedOutput(); err != nil {
			t.Fatalf("%v: %v\n%s", build.Args, err, out)
		}
	}
	again := exec.Command(os.Args[0], "-test.run=^"+t.Name()+"$", "-test.v", "-test.timeout=20m")
	again.Env = append(os.Environ(), programs+"="+dir)
	again.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags: syscall.CLONE_NEWPID, Unshareflags: syscall.CLONE_NEWNS | syscall.CLONE_NEWNET, Pdeathsig: syscall.SIGKILL,
	}
	out, err := again.CombinedOutput()
	if again.ProcessState == nil {
		harness.Unavailable(t, fmt.Sprintf("cannot make namespaces: %v", err))
	}
	if err != nil || !strings.Contains(string(out), "\n--- PASS: "+t.Name()) {
		t.Errorf("%v\n%s", err, out)
		return false
	}
	for _, line := range regexp.MustCompile(`(?m)^ +\w+_test.go:\d+: (.*)$`).FindAllStringSubmatch(string(out), -1) {
		t.Log(line[1])
	}
	return false
}

func run(t *testing.T, name string, args ...string) {
	t.Helper()
	if out, err := exec.Command(name, args...).CombinedOutput(); err != nil {
		t.Fatalf("%s %v: %v\n%s", name, args, err, out)
	}
}

// gateway is the address of the machine in the network of the pods. Probes and clients come from it, and the origin
// shop listens there.
const gateway = "10.244.0.1"

// lastPod is the number in the address of the last pod.
var lastPod atomic.Int32

// A cluster runs the pods of a release as processes: each in a network namespace, with an address, in a root directory
// of its own with the contents of the image and the volumes, with the command, arguments, variables, user, groups,
// probes, preStop and grace period of its manifest. It stands for the kubelet, the controller of StatefulSets and the
// cluster's DNS, and tells load balancers about changes with a delay.
type cluster struct {
	t         *testing.T
	release   *release
	dir       string
	addresses string // format of the addresses of pods, from their numbers

	mu       sync.Mutex
	pods     map[string]*pod
	files    map[string]map[string][]byte // of ConfigMaps and Secrets
	balanced map[string][]string          // addresses of pods by Service, as load balancers know them
	probing  sync.WaitGroup
}

// A pod is what runs for a pod of a StatefulSet until it is deleted.
type pod struct {
	*harness.Process
	spec           *core.PodSpec
	labels         labels.Set
	name, ip       string
	space, root    string   // network namespace and root directory
	enter          []string // arguments of ip that run a command in the pod
	stopProbes     context.CancelFunc
	ready, leaving bool // guarded by the cluster's mu
	probes         map[string]int
}

// startCluster starts all pods of a release, as StatefulSets with podManagementPolicy: Parallel do, and waits until they
// are ready. more are the files of Secrets and ConfigMaps that are not in the release.
func startCluster(t *testing.T, r *release, more map[string]map[string][]byte) *cluster {
	t.Helper()
	c := &cluster{t: t, release: r, dir: t.TempDir(), pods: map[string]*pod{}, files: more, balanced: map[string][]string{}, addresses: "10.244.1.%d"}
	if slices.Contains(r.StatefulSets["edge"].Spec.Template.Spec.Containers[0].Args, "--gossip-listen=[$(POD_IP)]:7946") {
		c.addresses = "fd00:244::%x"
	}
	if c.files == nil {
		c.files = map[string]map[string][]byte{}
	}
	for name, m := range r.ConfigMaps {
		c.files[name] = map[string][]byte{}
		for key, text := range m.Data {
			c.files[name][key] = []byte(text)
		}
	}
	for name, s := range r.Secrets {
		c.files[name] = s.Data
	}
	t.Cleanup(func() {
		for _, p := range c.list() {
			p.stopProbes()
		}
		c.probing.Wait()
	})
	for _, s := range r.sorted() {
		replicas := r.replicas(s)
		for i := range replicas {
			c.start(s, i)
		}
	}
	for _, p := range c.list() {
		c.awaitReady(p)
	}
	return c
}

// replicas returns how many pods a StatefulSet has at first.
func (r *release) replicas(s *apps.StatefulSet) int {
	if s.Spec.Replicas == nil {
		return int(*r.Autoscalers[s.Name].Spec.MinReplicas)
	}
	return int(*s.Spec.Replicas)
}

func (c *cluster) list() []*pod {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Collect(maps.Values(c.pods))
}

// pod returns a pod that runs.
func (c *cluster) pod(name string) *pod {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.pods[name]
}

// start starts a pod, at an address that no pod had before.
func (c *cluster) start(s *apps.StatefulSet, ordinal int) *pod {
	c.t.Helper()
	number := int(lastPod.Add(1))
	spec := s.Spec.Template.Spec.DeepCopy()
	p := &pod{
		spec: spec, labels: s.Spec.Template.Labels, name: fmt.Sprintf("%s-%d", s.Name, ordinal),
		ip: fmt.Sprintf(c.addresses, number), root: filepath.Join(c.dir, fmt.Sprint(number)), probes: map[string]int{},
	}
	p.space = fmt.Sprintf("pod%d", number)
	run(c.t, "ip", "netns", "add", p.space)
	run(c.t, "ip", "link", "add", p.space, "type", "veth", "peer", "name", "eth0", "netns", p.space)
	run(c.t, "ip", "link", "set", p.space, "master", "pods", "up")
	if net.ParseIP(p.ip).To4() == nil {
		run(c.t, "ip", "-n", p.space, "addr", "add", p.ip+"/64", "dev", "eth0", "nodad")
	} else {
		run(c.t, "ip", "-n", p.space, "addr", "add", p.ip+"/16", "dev", "eth0")
	}
	run(c.t, "ip", "-n", p.space, "link", "set", "eth0", "up")
	run(c.t, "ip", "-n", p.space, "link", "set", "lo", "up")
	container := &spec.Containers[0]
	c.image(p, container.Command[0])
	for _, m := range container.VolumeMounts {
		for _, v := range spec.Volumes {
			if v.Name == m.Name {
				c.mount(p, v, m.MountPath)
			}
		}
	}
	variables := map[string]string{}
	for _, e := range container.Env {
		switch path := e.ValueFrom.FieldRef.FieldPath; path {
		case "metadata.name":
			variables[e.Name] = p.name
		case "status.podIP":
			variables[e.Name] = p.ip
		default:
			c.t.Fatalf("variable %s from %s", e.Name, path)
		}
	}
	user, fsGroup := *spec.SecurityContext.RunAsUser, *spec.SecurityContext.RunAsGroup
	if g := spec.SecurityContext.FSGroup; g != nil {
		fsGroup = *g
	}
	p.enter = []string{
		"netns", "exec", p.space, "chroot", fmt.Sprintf("--userspec=%d:%d", user, *spec.SecurityContext.RunAsGroup),
		fmt.Sprintf("--groups=%d", fsGroup), p.root,
	}
	args := slices.Clone(p.enter)
	for _, arg := range slices.Concat(container.Command, container.Args) {
		for name, value := range variables {
			arg = strings.ReplaceAll(arg, "$("+name+")", value)
		}
		args = append(args, arg)
	}
	cmd := exec.Command("ip", args...)
	cmd.Env = []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin"}
	for name, value := range variables {
		cmd.Env = append(cmd.Env, name+"="+value)
	}
	c.mu.Lock()
	c.pods[p.name] = p
	c.mu.Unlock()
	c.changed()
	p.Process = harness.Start(c.t, cmd)
	ctx, cancel := context.WithCancel(context.Background())
	p.stopProbes = cancel
	c.probing.Go(func() { c.probe(ctx, p, container) })
	return p
}

// url returns the URL of a port of the pod.
func (p *pod) url(port int32) string { return "http://" + net.JoinHostPort(p.ip, fmt.Sprint(port)) }

// exec returns the output of a command in the pod, as kubectl exec does.
func (p *pod) exec(command ...string) (string, error) {
	cmd := exec.Command("ip", slices.Concat(p.enter, command)...)
	cmd.Env = []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin"}
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// image fills the root directory of a pod with the contents of its image: one program and its libraries.
func (c *cluster) image(p *pod, command string) {
	from, to := filepath.Join(os.Getenv(programs), command), filepath.Join(p.root, command)
	if !filepath.IsAbs(command) {
		installed := strings.Replace(command, "valkey", "redis", 1)
		var err error
		if from, err = exec.LookPath(installed); err != nil {
			c.t.Fatal(err)
		}
		to = filepath.Join(p.root, "usr/bin", command)
		out, err := exec.Command("ldd", from).Output()
		if err != nil {
			c.t.Fatal(err)
		}
		for _, library := range regexp.MustCompile(`/\S+`).FindAllString(string(out), -1) {
			c.copy(library, filepath.Join(p.root, library))
		}
	}
	c.copy(from, to)
	if err := os.MkdirAll(filepath.Join(p.root, "etc"), 0o755); err != nil {
		c.t.Fatal(err)
	}
}

func (c *cluster) copy(from, to string) {
	text, err := os.ReadFile(from)
	if err == nil {
		err = os.MkdirAll(filepath.Dir(to), 0o755)
	}
	if err == nil {
		err = os.WriteFile(to, text, 0o755)
	}
	if err != nil {
		c.t.Fatal(err)
	}
}

// mount makes a volume in the root directory of a pod.
func (c *cluster) mount(p *pod, v core.Volume, path string) {
	dir := filepath.Join(p.root, path)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		c.t.Fatal(err)
	}
	group := int(*p.spec.SecurityContext.RunAsGroup)
	switch {
	case v.ConfigMap != nil:
		c.project(dir, c.files[v.ConfigMap.Name], 0o644, 0)
	case v.Secret != nil:
		files := c.files[v.Secret.SecretName]
		if len(v.Secret.Items) > 0 {
			files = map[string][]byte{}
			for _, item := range v.Secret.Items {
				files[item.Path] = c.files[v.Secret.SecretName][item.Key]
			}
		}
		c.project(dir, files, os.FileMode(*v.Secret.DefaultMode), group)
	case v.EmptyDir != nil:
		if err := os.Chown(dir, 0, group); err != nil {
			c.t.Fatal(err)
		}
		if err := os.Chmod(dir, 0o777|os.ModeSetgid); err != nil {
			c.t.Fatal(err)
		}
	default:
		c.t.Fatalf("volume %s", v.Name)
	}
}

// project writes the files of a ConfigMap or Secret as the kubelet does: into a new directory, to which a symbolic link
// is then redirected.
func (c *cluster) project(dir string, files map[string][]byte, mode os.FileMode, group int) {
	c.t.Helper()
	if len(files) == 0 {
		c.t.Fatalf("no files for %s", dir)
	}
	former, _ := os.Readlink(filepath.Join(dir, "..data"))
	err := func() error {
		data, err := os.MkdirTemp(dir, "..2026_11_27_")
		if err != nil {
			return err
		}
		if err := os.Chmod(data, 0o755); err != nil {
			return err
		}
		for name, text := range files {
			file := filepath.Join(data, name)
			if err := os.WriteFile(file, text, mode); err != nil {
				return err
			}
			if err := os.Chown(file, 0, group); err != nil {
				return err
			}
			if err := os.Symlink(filepath.Join("..data", name), filepath.Join(dir, name)); err != nil && !os.IsExist(err) {
				return err
			}
		}
		if err := os.Symlink(filepath.Base(data), filepath.Join(dir, "..data_tmp")); err != nil {
			return err
		}
		return os.Rename(filepath.Join(dir, "..data_tmp"), filepath.Join(dir, "..data"))
	}()
	if err == nil && former != "" {
		err = os.RemoveAll(filepath.Join(dir, former))
	}
	if err != nil {
		c.t.Fatal(err)
	}
}

// update replaces the files of a ConfigMap in the pods of a StatefulSet, one after another.
func (c *cluster) update(s *apps.StatefulSet, name string, files map[string]string) {
	c.t.Helper()
	c.files[name] = map[string][]byte{}
	for key, text := range files {
		c.files[name][key] = []byte(text)
	}
	for i := range c.release.replicas(s) {
		p := c.pod(fmt.Sprintf("%s-%d", s.Name, i))
		for _, v := range p.spec.Volumes {
			if v.ConfigMap != nil && v.ConfigMap.Name == name {
				c.mount(p, v, "/etc/edge/rules")
			}
		}
	}
}

// balancerDelay is the time until load balancers know that an address came or went.
const balancerDelay = time.Second

// changed tells DNS at once, and load balancers later, which pods there are.
func (c *cluster) changed() {
	c.mu.Lock()
	defer c.mu.Unlock()
	hosts := bytes.NewBufferString(gateway + " shop\n")
	balanced := map[string][]string{}
	for name, service := range c.release.Services {
		for _, p := range c.pods {
			if !labels.SelectorFromSet(service.Spec.Selector).Matches(p.labels) {
				continue
			}
			if service.Spec.PublishNotReadyAddresses {
				fmt.Fprintf(hosts, "%s %s %s.%s\n", p.ip, name, p.name, name)
			}
			if p.ready && !p.leaving {
				balanced[name] = append(balanced[name], p.ip)
			}
		}
	}
	for _, p := range c.pods {
		file := filepath.Join(p.root, "etc/hosts")
		err := os.WriteFile(file+".new", hosts.Bytes(), 0o644)
		if err == nil {
			err = os.Rename(file+".new", file)
		}
		if err != nil {
			c.t.Error(err)
		}
	}
	time.AfterFunc(balancerDelay, func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.balanced = balanced
	})
}
