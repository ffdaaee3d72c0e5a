//go:build linux

package deploy_test

import (
	"archive/tar"
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/edgelimit/edge/internal/harness"
)

// The test pulls no image from a registry. If an image is missing, it builds a stand-in of the same name
// from programs of this machine, and removes it afterwards:
//
//   - memcached, redis, haproxy and prometheus are the real programs, in this machine's versions, with busybox,
//     which the real images have too;
//   - grafana is busybox's web server, which answers the health check. The queries of the dashboard are
//     sent to Prometheus instead;
//   - golang has a script instead of the go command: it copies the binary that this machine's go command
//     has built with the command of the Dockerfile.

// standInLabel marks images that the test has built.
const standInLabel = "edgelimit.test=stand-in"

// memcachedImage is also the image of clients.
const memcachedImage = "memcached:1.6-alpine"

// A standIn describes an image.
type standIn struct {
	image   string
	program string            // of this machine; optional
	path    string            // of the program in the image
	files   map[string][]byte // all executable
	dirs    map[string]int    // and the user who owns each
	config  []string          // instructions of a Dockerfile
}

// standIns builds all images that are missing.
func standIns(t *testing.T) {
	t.Helper()
	all := []standIn{
		{image: memcachedImage, program: "memcached", path: "/usr/local/bin/memcached",
			config: []string{"USER 11211", `CMD ["memcached"]`}},
		{image: "redis:7.4-alpine", program: "redis-server", path: "/usr/local/bin/redis-server",
			config: []string{"USER 999", `CMD ["redis-server"]`}},
		{image: "haproxy:3.0-alpine", program: "haproxy", path: "/usr/local/sbin/haproxy",
			config: []string{"USER 99", `CMD ["haproxy", "-f", "/usr/local/etc/haproxy/haproxy.cfg"]`}},
		{image: "prom/prometheus:v3.5.0", program: "prometheus", path: "/bin/prometheus",
			dirs: map[string]int{"/prometheus": 65534}, config: []string{"USER 65534", `ENTRYPOINT ["/bin/prometheus"]`}},
		{image: "grafana/grafana:11.6.0", files: map[string][]byte{"/www/api/health": []byte(`{"database": "ok"}`)},
			config: []string{"USER 472", `ENTRYPOINT ["/bin/busybox", "httpd", "-f", "-p", "3000", "-h", "/www"]`}},
		{image: "golang:1.26-alpine"},
	}
	var used []string
	for _, m := range regexp.MustCompile(`(?m)^(?: +image:|FROM(?: --platform=\S+)?) ([a-z][^ $\n]*:\S+)`).FindAllStringSubmatch(read(t, "../docker-compose.yml")+read(t, "Dockerfile"), -1) {
		used = append(used, m[1])
	}
	slices.Sort(used)
	var made []string
	for _, s := range all {
		made = append(made, s.image)
	}
	slices.Sort(made)
	if got := slices.Compact(used); !slices.Equal(got, made) {
		t.Fatalf("the PoP uses images %v, and there are stand-ins for %v", got, made)
	}
	for _, s := range all {
		s.make(t)
	}
}

// make builds the image, unless the real one exists.
func (s standIn) make(t *testing.T) {
	t.Helper()
	key, value, _ := strings.Cut(standInLabel, "=")
	switch label, err := command(t, nil, nil, "docker", "image", "inspect", "--format", fmt.Sprintf("{{index .Config.Labels %q}}", key), s.image); {
	case err == nil && label != value:
		t.Logf("%s is used as it is", s.image)
		return
	case err == nil: // left by a test that was killed
		_, _ = command(t, nil, nil, "docker", "rmi", s.image)
	}
	if strings.HasPrefix(s.image, "golang:") {
		s.files = goCommand(t)
	}
	var layer bytes.Buffer
	a := archive{t, tar.NewWriter(&layer), map[string]bool{}}
	a.dir("/tmp", 0o1777, 0)
	for dir, owner := range s.dirs {
		a.dir(dir, 0o755, owner)
	}
	for name, text := range s.files {
		a.file(name, text)
	}
	a.program("busybox", "/bin/busybox")
	applets, err := command(t, nil, nil, "busybox", "--list")
	if err != nil {
		t.Fatal(err)
	}
	for applet := range strings.FieldsSeq(applets) {
		if name := "/bin/" + applet; applet != "busybox" && s.files[name] == nil {
			a.link(name, "/bin/busybox")
		}
	}
	if s.program != "" {
		a.program(s.program, s.path)
	}
	if err := a.w.Close(); err != nil {
		t.Fatal(err)
	}
	args := []string{"import"}
	for _, c := range append(s.config, "LABEL "+standInLabel, "ENV PATH=/usr/local/sbin:/usr/local/bin:/bin") {
		args = append(args, "--change", c)
	}
	if out, err := command(t, nil, &layer, "docker", append(args, "-", s.image)...); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	t.Cleanup(func() {
		if out, err := command(t, nil, nil, "docker", "rmi", s.image); err != nil {
			t.Errorf("%v\n%s", err, out)
		}
	})
}

// goCommand returns a go command that copies the binary if all its sources are present.
func goCommand(t *testing.T) map[string][]byte {
	t.Helper()
	binary, err := buildEdge()
	if err != nil {
		t.Fatal(err)
	}
	sources, err := command(t, nil, nil, "sh", "-c", `cd .. && go list -deps -f '{{if .Module}}{{if .Module.Main}}{{$d := .Dir}}{{range .GoFiles}}{{$d}}/{{.}} {{end}}{{range .EmbedFiles}}{{$d}}/{{.}} {{end}}{{end}}{{end}}' ./cmd/edge`)
	if err != nil {
		t.Fatalf("%v\n%s", err, sources)
	}
	top, err := filepath.Abs("..")
	if err != nil {
		t.Fatal(err)
	}
	var needed []string
	for source := range strings.FieldsSeq(sources) {
		needed = append(needed, strings.TrimPrefix(source, top+"/"))
	}
	authorities, err := os.ReadFile("/etc/ssl/certs/ca-certificates.crt")
	if err != nil {
		authorities = []byte("none\n")
	}
	return map[string][]byte{
		"/made/edge":                         []byte(read(t, binary)),
		"/made/LICENSE":                      []byte("none\n"),
		"/etc/ssl/certs/ca-certificates.crt": authorities,
		"/bin/go": []byte(fmt.Sprintf(`#!/bin/sh -e
[ "$1" != env ] || echo /made
[ "$1" = build ] || exit 0
for file in go.mod go.sum %s; do
	[ -f $file ] || { echo "$file is not in the image's context" >&2; exit 1; }
done
while [ "$1" != -o ]; do shift; done
mkdir -p $(dirname $2)
cp /made/edge $2
`, strings.Join(needed, " "))),
	}
}

// An archive is the single layer of an image.
type archive struct {
	t    *testing.T
	w    *tar.Writer
	done map[string]bool
}

func (a archive) add(h *tar.Header, content []byte) {
	a.t.Helper()
	if a.done[h.Name] {
		return
	}
	a.done[h.Name] = true
	if dir := path.Dir(h.Name); dir != "/" {
		a.dir(dir, 0o755, 0)
	}
	h.Size = int64(len(content))
	if err := a.w.WriteHeader(h); err != nil {
		a.t.Fatal(err)
	}
	if _, err := a.w.Write(content); err != nil {
		a.t.Fatal(err)
	}
}

func (a archive) dir(name string, mode int64, owner int) {
	a.t.Helper()
	a.add(&tar.Header{Typeflag: tar.TypeDir, Name: name, Mode: mode, Uid: owner, Gid: owner}, nil)
}

func (a archive) link(name, target string) {
	a.t.Helper()
	a.add(&tar.Header{Typeflag: tar.TypeSymlink, Name: name, Linkname: target, Mode: 0o777}, nil)
}

func (a archive) file(name string, content []byte) {
	a.t.Helper()
	a.add(&tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: 0o755}, content)
}

// program adds a program of this machine and its libraries.
func (a archive) program(program, name string) {
	a.t.Helper()
	from := find(a.t, program)
	a.file(name, []byte(read(a.t, from)))
	libraries, _ := command(a.t, nil, nil, "ldd", from) // fails for a static program
	for _, m := range regexp.MustCompile(`(/\S+) \(0x`).FindAllStringSubmatch(libraries, -1) {
		a.file(m[1], []byte(read(a.t, m[1])))
	}
}

// find returns the path of a program, which may be in /usr/sbin.
func find(t *testing.T, program string) string {
	t.Helper()
	for _, name := range []string{program, "/usr/sbin/" + program} {
		if file, err := exec.LookPath(name); err == nil {
			return file
		}
	}
	harness.Unavailable(t, program+" is not installed")
	return ""
}

func read(t *testing.T, file string) string {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
