//go:build linux

package deploy_test

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"debug/buildinfo"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"maps"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"runtime"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/klauspost/compress/zstd"

	"github.com/edgelimit/edge/internal/harness"
)

// buildPackages builds a version for this machine's platform with the tools in a directory, and returns its directory.
func buildPackages(t *testing.T, tools, version string) string {
	t.Helper()
	dir := t.TempDir()
	run(t, append(os.Environ(), "PLATFORMS=linux/"+runtime.GOARCH, "TOOLS="+tools), "package/build", version, dir)
	return dir
}

// run returns the output of a command that must succeed.
func run(t *testing.T, env []string, name string, args ...string) string {
	t.Helper()
	out, err := command(t, env, nil, name, args...)
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return out
}

// only returns the one file of dir that matches a pattern.
func only(t *testing.T, dir, pattern string) string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, pattern))
	if err != nil || len(files) != 1 {
		t.Fatalf("%s: %v, %v; want one file", pattern, files, err)
	}
	return files[0]
}

// Packages of all formats have the same files, with working links. Those of Debian and RPM can be installed, upgraded,
// downgraded and removed. Those of Alpine and Arch are only opened, and no service manager starts the node: none runs
// in a directory.
func TestPackages(t *testing.T) {
	t.Parallel()
	for _, program := range []string{"dpkg", "rpm", "git", "ruby"} {
		harness.Installed(t, program)
	}
	tools := os.Getenv("TOOLS")
	if tools == "" {
		tools = t.TempDir()
	}
	if out, err := command(t, append(os.Environ(), "GOBIN="+tools), nil, "sh", "-ec", "for tool in $(cat package/tools); do go install $tool; done"); err != nil {
		harness.Unavailable(t, "tools cannot be downloaded: "+out)
	}
	old, latest := buildPackages(t, tools, "1.0.0"), buildPackages(t, tools, "1.1.0")
	t.Run("formats", func(t *testing.T) { testFormats(t, old) })
	t.Run("links", func(t *testing.T) { testLinks(t, old) })
	t.Run("checksums", func(t *testing.T) {
		run(t, os.Environ(), "sh", "-c", "cd "+old+" && sha256sum --check SHA256SUMS")
		run(t, os.Environ(), "ruby", "-c", "package/edge.rb")
		if _, err := os.Stat(filepath.Join(old, "edge.rb")); !os.IsNotExist(err) {
			t.Errorf("a formula without the checksums of all platforms: %v", err)
		}
		for command, part := range map[string]string{"edge": "spf13/cobra@", "edge-envoy": "edgelimit/edge@v1.0.0"} {
			if bom := read(t, only(t, old, command+"-1.0.0-*.cdx.json")); !strings.Contains(bom, "pkg:golang/github.com/"+part) || strings.Contains(bom, "../") {
				t.Errorf("the SBOM of %s has no %s, or a local path", command, part)
			}
		}
	})
	t.Run("tarball", func(t *testing.T) { testTarball(t, old) })
	t.Run("deb", func(t *testing.T) { testDeb(t, old, latest) })
	t.Run("rpm", func(t *testing.T) { testRPM(t, old, latest) })
	t.Run("nginx", func(t *testing.T) { testFiveCommands(t, old) })
}

// An entry is a file of a package.
type entry struct {
	Mode             int64
	Owner, Link, Sum string
}

// members yields the members of an archive, each with its content.
func members(t *testing.T, archive io.Reader) iter.Seq2[*tar.Header, io.Reader] {
	return func(yield func(*tar.Header, io.Reader) bool) {
		t.Helper()
		for r := tar.NewReader(archive); ; {
			h, err := r.Next()
			if err != nil && err != io.EOF {
				t.Fatal(err)
			}
			if err == io.EOF || !yield(h, r) {
				return
			}
		}
	}
}

// entries returns the files of an archive, symbolic links, and the directory with settings.
func entries(t *testing.T, archive io.Reader) map[string]entry {
	t.Helper()
	found := map[string]entry{}
	for h, r := range members(t, archive) {
		name := path.Clean("/" + h.Name)
		if h.Typeflag == tar.TypeDir && name != "/etc/edge" || path.Dir(name) == "/" {
			continue
		}
		e := entry{h.Mode & 0o7777, h.Uname + ":" + h.Gname, h.Linkname, ""}
		if e.Owner == ":" && h.Uid == 0 && h.Gid == 0 {
			e.Owner = "root:root"
		}
		if h.Typeflag == tar.TypeReg {
			sum := sha256.New()
			if _, err := io.Copy(sum, r); err != nil {
				t.Fatal(err)
			}
			e.Sum = fmt.Sprintf("%x", sum.Sum(nil))
		}
		found[name] = e.normal()
	}
	return found
}

// normal returns e without the properties that formats represent differently.
func (e entry) normal() entry {
	if e.Link != "" {
		e.Mode, e.Sum = 0, ""
	}
	return e
}

// meta returns the files in the top directory of an apk or Arch package: its metadata.
func meta(t *testing.T, archive io.Reader) map[string]string {
	t.Helper()
	found := map[string]string{}
	for h, r := range members(t, archive) {
		if !strings.Contains(h.Name, "/") {
			text, err := io.ReadAll(r)
			if err != nil {
				t.Fatal(err)
			}
			found[h.Name] = string(text)
		}
	}
	return found
}

// unpack returns the content of a file, decompressed.
func unpack[R io.Reader](t *testing.T, file string, decompress func(io.Reader) (R, error)) []byte {
	t.Helper()
	r, err := decompress(strings.NewReader(read(t, file)))
	if err != nil {
		t.Fatal(err)
	}
	data, err := io.ReadAll(r)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func testFormats(t *testing.T, dir string) {
	for _, name := range []string{"edge", "edge-envoy"} {
		deb, rpm, apk, arch := only(t, dir, name+"_*.deb"), only(t, dir, name+"-1*.rpm"), only(t, dir, name+"_*.apk"), only(t, dir, name+"-1*.pkg.tar.zst")
		content, err := exec.Command("dpkg-deb", "--fsys-tarfile", deb).Output()
		if err != nil {
			t.Fatal(err)
		}
		want := entries(t, bytes.NewReader(content))
		for file, mode := range map[string]int64{"/usr/bin/" + name: 0o755, "/usr/lib/systemd/system/" + name + ".service": 0o644,
			"/usr/lib/systemd/system/" + name + ".service.d/sandbox.conf": 0o644, "/etc/default/" + name: 0o644,
			"/usr/share/man/man1/" + name + ".1.gz": 0o644, "/usr/share/doc/" + name + "/copyright": 0o644,
			"/usr/share/doc/" + name + "/THIRD-PARTY-LICENSES": 0o644} {
			if got, ok := want[file]; !ok || got.Mode != mode || got.Owner != "root:root" {
				t.Errorf("%s has %s with %+v, want mode %o of root", deb, file, got, mode)
			}
		}
		if name == "edge" {
			for _, file := range []string{"/etc/edge", "/usr/share/edge/alerts.yml", "/usr/share/edge/grafana/dashboard.json", "/usr/share/man/man1/edge-node.1.gz",
				"/usr/share/bash-completion/completions/edge", "/usr/share/zsh/vendor-completions/_edge", "/usr/share/doc/edge/docs/install.md"} {
				if _, ok := want[file]; !ok {
					t.Errorf("%s lacks %s", deb, file)
				}
			}
			if got := want["/etc/edge"]; got.Mode != 0o750 || got.Owner != "root:edge" {
				t.Errorf("/etc/edge has mode %o and owner %s", got.Mode, got.Owner)
			}
			want["/usr/share/zsh/site-functions/_edge"] = want["/usr/share/zsh/vendor-completions/_edge"]
			delete(want, "/usr/share/zsh/vendor-completions/_edge")
			delete(want, "/usr/share/doc/edge/copyright")
		}

		inRPM := map[string]entry{}
		query := func(format string) string {
			return run(t, os.Environ(), "rpm", "-qp", "--nosignature", "--qf", format, rpm)
		}
		for line := range strings.Lines(query("[%{FILENAMES}|%{FILEMODES}|%{FILEUSERNAME}:%{FILEGROUPNAME}|%{FILELINKTOS}|%{FILEDIGESTS}\n]")) {
			f := strings.Split(strings.TrimSpace(line), "|")
			mode, err := strconv.ParseInt(f[1], 10, 64)
			if err != nil {
				t.Fatal(err)
			}
			if mode&syscall.S_IFMT != syscall.S_IFDIR || f[0] == "/etc/edge" {
				inRPM[f[0]] = entry{mode & 0o7777, f[2], f[3], f[4]}.normal()
			}
		}
		apkData, archData := unpack(t, apk, func(r io.Reader) (io.Reader, error) { return gzip.NewReader(r) }), unpack(t, arch, func(r io.Reader) (io.Reader, error) { return zstd.NewReader(r) })
		inAPK := entries(t, bytes.NewReader(apkData))
		if init, ok := inAPK["/etc/init.d/edge"]; name == "edge" && (!ok || init.Mode != 0o755) {
			t.Errorf("%s has /etc/init.d/edge with %+v", apk, init)
		}
		delete(inAPK, "/etc/init.d/edge")
		for file, got := range map[string]map[string]entry{rpm: inRPM, apk: inAPK, arch: entries(t, bytes.NewReader(archData))} {
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("%s differs from %s:\n%.2000s", file, deb, diff)
			}
		}

		// Scripts, and files that may be edited.
		scripts := map[string]string{"preinst": "preinstall", "postinst": "postinstall", "prerm": "preremove", "postrm": "postremove"}
		if name == "edge-envoy" {
			scripts = map[string]string{"postinst": "envoy-postinstall", "prerm": "envoy-preremove"}
		}
		inAPKMeta, install := meta(t, bytes.NewReader(apkData)), meta(t, bytes.NewReader(archData))[".INSTALL"]
		for script, source := range scripts {
			text := strings.TrimSpace(read(t, "package/"+source))
			rpmTag := map[string]string{"preinst": "%{PREIN}", "postinst": "%{POSTIN}", "prerm": "%{PREUN}", "postrm": "%{POSTUN}"}[script]
			apkNames := map[string][]string{"preinst": {".pre-install"}, "postinst": {".post-install", ".post-upgrade"}, "prerm": {".pre-deinstall"}, "postrm": {".post-deinstall"}}[script]
			archNames := map[string][]string{"preinst": {"pre_install"}, "postinst": {"post_install", "post_upgrade"}, "prerm": {"pre_remove"}, "postrm": {"post_remove"}}[script]
			got := map[string]string{"deb": run(t, os.Environ(), "dpkg-deb", "--info", deb, script), "rpm": strings.TrimSpace(query(rpmTag))}
			for _, n := range apkNames {
				got["apk "+n] = strings.TrimSpace(inAPKMeta[n])
			}
			for format, shipped := range got {
				if shipped != text {
					t.Errorf("%s %s: %s is %q, want %q", name, format, script, shipped, text)
				}
			}
			for _, n := range archNames {
				if !strings.Contains(install, "function "+n+"() {\n"+text) {
					t.Errorf("%s: .INSTALL has no %s with %s:\n%s", arch, n, source, install)
				}
			}
		}
		conffiles := strings.Fields(run(t, os.Environ(), "dpkg-deb", "--info", deb, "conffiles"))
		slices.Sort(conffiles)
		if got := strings.Fields(run(t, os.Environ(), "rpm", "-qpc", "--nosignature", rpm)); !slices.Equal(got, conffiles) || len(got) == 0 {
			t.Errorf("%s has configuration files %v, and the deb %v", rpm, got, conffiles)
		}
		info := meta(t, bytes.NewReader(archData))[".PKGINFO"]
		if !strings.Contains(info, "packager = The edge authors") {
			t.Errorf("%s: .PKGINFO names no packager:\n%s", arch, info)
		}
		for _, file := range conffiles {
			if !strings.Contains(info, "backup = "+file[1:]+"\n") {
				t.Errorf("%s: .PKGINFO has no backup of %s:\n%s", arch, file, info)
			}
		}
	}
}

// testLinks checks that links in the docs of the package and the tarball lead to files, or to the web.
func testLinks(t *testing.T, dir string) {
	tree, tarball := t.TempDir(), t.TempDir()
	run(t, os.Environ(), "dpkg-deb", "--extract", only(t, dir, "edge_*.deb"), tree)
	run(t, os.Environ(), "tar", "-xzf", only(t, dir, "edge-1.0.0-*.tar.gz"), "-C", tarball)
	top := only(t, tarball, "edge-*")
	for _, program := range []string{"edge version", "edge-envoy --version"} {
		if got := run(t, os.Environ(), "sh", "-c", top+"/"+program); !strings.Contains(got, " v1.0.0 go1.") {
			t.Errorf("%s prints %q", program, got)
		}
	}
	links := 0
	for _, docs := range []string{filepath.Join(tree, "usr/share/doc/edge"), top} {
		err := filepath.WalkDir(docs, func(file string, _ fs.DirEntry, err error) error {
			if err != nil || filepath.Ext(file) != ".md" {
				return err
			}
			for _, m := range regexp.MustCompile(`\]\(([^)#\s]+)[^)]*\)`).FindAllStringSubmatch(read(t, file), -1) {
				links++
				if target, ok := strings.CutPrefix(m[1], "https://github.com/edgelimit/edge/blob/v1.0.0/"); ok {
					_, err = os.Stat("../" + target)
				} else if !strings.Contains(m[1], "://") {
					_, err = os.Stat(filepath.Join(filepath.Dir(file), m[1]))
				}
				if err != nil {
					t.Errorf("%s: a link to %s leads nowhere: %v", file, m[1], err)
				}
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if links < 100 {
		t.Errorf("found %d links", links)
	}
}

// testDeb checks that each version works, keeps edited files, and leaves no trace.
func testDeb(t *testing.T, old, latest string) {
	r := newRoot(t)
	before := r.snapshot()
	for dir, version := range r.versions(old, latest) {
		r.dpkg("--install", only(t, dir, "edge_*.deb"), only(t, dir, "edge-envoy_*.deb"))
		r.works(version)
	}
	r.dpkg("--remove", "edge-envoy", "edge")
	r.removed("etc/edge/rules.yaml")
	r.dpkg("--purge", "edge-envoy", "edge")
	after := r.snapshot()
	for _, name := range slices.Sorted(maps.Keys(after)) {
		if was, ok := before[name]; !ok || after[name] != was {
			t.Errorf("the removed packages left a trace in %s: %.500q, before %.500q", name, after[name], was)
		}
	}
	if len(after) != len(before) {
		t.Errorf("%d files, before %d", len(after), len(before))
	}
}

// testRPM checks the same, but rpm keeps edited files and users.
func testRPM(t *testing.T, old, latest string) {
	r := newRoot(t)
	for dir, version := range r.versions(old, latest) {
		r.rpm("--upgrade", "--oldpackage", only(t, dir, "edge-1*.rpm"), only(t, dir, "edge-envoy-1*.rpm"))
		r.works(version)
		r.sh("rm /usr/bin/edge-envoy") // what differs is reported
		out, _ := command(t, os.Environ(), nil, "rpm", "--root="+r.dir, "--verify", "--nodeps", "edge", "edge-envoy")
		for line := range strings.Lines(out) {
			if !strings.Contains(line, "/usr/bin/edge-envoy") && !strings.Contains(line, "/etc/edge/rules.yaml") {
				t.Errorf("rpm --verify edge: %s", line)
			}
		}
	}
	r.rpm("--erase", "edge-envoy", "edge")
	r.removed("etc/edge/rules.yaml.rpmsave")
}

// versions yields the packages to install: a version, whose rules are then edited, an upgrade and a downgrade.
func (r root) versions(old, latest string) iter.Seq2[string, string] {
	return func(yield func(dir, version string) bool) {
		_ = yield(old, "1.0.0")
		r.write("etc/edge/rules.yaml", edited+read(r.t, r.path("etc/edge/rules.yaml")))
		_ = yield(latest, "1.1.0") && yield(old, "1.0.0")
	}
}

const edited = "# edited\n"

// works checks an installed version.
func (r root) works(version string) {
	t := r.t
	t.Helper()
	if got := r.sh("edge version; edge-envoy --version"); strings.Count(got, " v"+version+" ") != 2 {
		t.Errorf("after installing %s: %s", version, got)
	}
	if got := r.sh("getent passwd edge; getent group edge-proxy"); !regexp.MustCompile(`^edge:x:\d+:\d+::/nonexistent:/bin/false\nedge-proxy:x:\d+:(edge,www-data|www-data,edge)$`).MatchString(got) {
		t.Errorf("after installing %s, users are %s", version, got)
	}
	r.sh("edge check /etc/edge/rules.yaml")
	info, err := os.Stat(r.path("etc/edge"))
	if err != nil {
		t.Fatal(err)
	}
	if group := "edge:x:" + strconv.Itoa(int(info.Sys().(*syscall.Stat_t).Gid)) + ":"; info.Mode().Perm() != 0o750 || !strings.HasPrefix(r.sh("getent group edge"), group) {
		t.Errorf("after installing %s, /etc/edge has mode %v and group %s", version, info.Mode(), group)
	}
}

// removed checks that the package is removed, and that a file has the edited rules.
func (r root) removed(rules string) {
	r.t.Helper()
	for _, name := range []string{"usr/bin/edge", "usr/bin/edge-envoy", "usr/share/edge", "usr/share/doc/edge", "usr/share/doc/edge-envoy",
		"usr/lib/systemd/system/edge.service.d", "usr/lib/systemd/system/edge-envoy.service.d"} {
		if _, err := os.Stat(r.path(name)); !os.IsNotExist(err) {
			r.t.Errorf("after removal, %s: %v", name, err)
		}
	}
	if got := read(r.t, r.path(rules)); !strings.HasPrefix(got, edited) {
		r.t.Errorf("%s is %q, want the edited rules", rules, got)
	}
}

// A build does not mix its files with others.
func TestBuildIntoFullDirectory(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "other~1"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if out, err := command(t, os.Environ(), nil, "package/build", "1.0.0", dir); err == nil || !strings.Contains(out, dir+" is not empty") {
		t.Errorf("%v, %q; want an error", err, out)
	}
}

// The version of an image may be that of its tag.
func TestImageVersion(t *testing.T) {
	t.Parallel()
	for _, file := range []string{"Dockerfile", "Dockerfile.envoy"} {
		m := regexp.MustCompile(`version\.Release=(\$\{.*\})" `).FindStringSubmatch(read(t, file))
		if m == nil {
			t.Fatalf("%s sets no version", file)
		}
		for version, want := range map[string]string{"1.2.0": "v1.2.0", "v1.2.0": "v1.2.0", "": ""} {
			if got := run(t, append(os.Environ(), "VERSION="+version), "sh", "-c", "echo "+m[1]); got != want {
				t.Errorf("%s with VERSION=%s builds %q, want %q", file, version, got, want)
			}
		}
	}
}

// Each module that a command links has its license in the list that is shipped with it.
func TestLicenses(t *testing.T) {
	t.Parallel()
	edge, err := buildEdge()
	if err != nil {
		t.Fatal(err)
	}
	envoy := filepath.Join(t.TempDir(), "edge-envoy")
	run(t, os.Environ(), "sh", "-c", "cd ../proxy/envoy && go build -o "+envoy+" ./cmd/edge-envoy")
	for source, binary := range map[string]string{"../cmd/edge": edge, "../proxy/envoy/cmd/edge-envoy": envoy} {
		list := run(t, os.Environ(), "package/licenses", source)
		info, err := buildinfo.ReadFile(binary)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range append(info.Deps, &debug.Module{Path: "std", Version: runtime.Version()}) {
			_, text, ok := strings.Cut(list, "======== "+m.Path+"@"+m.Version+": ")
			if text, _, _ = strings.Cut(text, "\n======== "); m.Replace == nil && (!ok || len(text) < 500) {
				t.Errorf("%s has no license of %s %s: %q", source, m.Path, m.Version, text)
			}
		}
	}
	if out, err := command(t, append(os.Environ(), "GOROOT="+t.TempDir()), nil, "package/licenses", "../cmd/edge"); err == nil {
		t.Errorf("without the license of the standard library: %q", out)
	}
}

// The notes of a release are its section of the changelog.
func TestReleaseNotes(t *testing.T) {
	t.Parallel()
	if out, err := command(t, os.Environ(), nil, "package/notes", "v9.9.9"); err == nil || !strings.Contains(out, "CHANGELOG.md has no section ## v9.9.9") {
		t.Errorf("notes of an unknown version: %v, %q", err, out)
	}
	_, want, _ := strings.Cut(read(t, "../CHANGELOG.md"), "\n## v0.1.0\n")
	want, _, _ = strings.Cut(want, "\n## ")
	want = strings.ReplaceAll(want, "](docs/", "](https://github.com/edgelimit/edge/blob/v0.1.0/docs/")
	if got := run(t, os.Environ(), "package/notes", "v0.1.0"); got != strings.TrimSpace(want) {
		t.Errorf("notes %.200q…, want %.200q…", got, want)
	}
}
