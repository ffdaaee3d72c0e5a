package operate

import (
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/edgelimit/edge/pop/setting"
)

// minToken is the minimum length of a token, in bytes: attackers can guess short ones.
const minToken = 16

// LocalName is the name, in log lines about changes, of the token that a node creates when it starts.
const LocalName = "local"

// Tokens holds the tokens that operators may use. The zero value is empty. It is safe for concurrent use.
type Tokens struct{ all atomic.Pointer[[]token] }

type token struct {
	name string
	hash [sha256.Size]byte
}

// Read replaces the tokens with those of a file, which has a line NAME TOKEN for each; # begins a comment. After an
// error, the old tokens remain.
func (t *Tokens) Read(file string) error {
	text, err := setting.ReadSecret(file)
	if err != nil {
		return err
	}
	var all []token
	for i, line := range strings.Split(text, "\n") {
		fields := strings.Fields(line)
		if len(fields) == 0 || strings.HasPrefix(fields[0], "#") {
			continue
		}
		problem := ""
		switch {
		case len(fields) != 2:
			problem = "a line must be NAME TOKEN"
		case len(fields[1]) < minToken:
			problem = fmt.Sprintf("a token must have at least %d characters; make one with: head -c 24 /dev/urandom | base64", minToken)
		case fields[0] == LocalName:
			problem = "the name " + LocalName + " is reserved for tokens that nodes generate; choose another one"
		default:
			added := token{fields[0], sha256.Sum256([]byte(fields[1]))}
			for _, other := range all {
				if other.name == added.name || other.hash == added.hash {
					problem = fmt.Sprintf("the name or token is already used by %s", other.name)
				}
			}
			all = append(all, added)
		}
		if problem != "" {
			return fmt.Errorf("%s:%d: %s", file, i+1, problem)
		}
	}
	if len(all) == 0 {
		return fmt.Errorf("%s has no token: a line must be NAME TOKEN", file)
	}
	t.all.Store(&all)
	return nil
}

// name returns the name of a token, or "" if the token is unknown. The time that this takes depends only on the number
// of tokens, so it reveals nothing about them.
func (t *Tokens) name(text string) (name string) {
	all := t.all.Load()
	if all == nil {
		return ""
	}
	hash := sha256.Sum256([]byte(text))
	for _, known := range *all {
		if subtle.ConstantTimeCompare(hash[:], known.hash[:]) == 1 {
			name = known.name
		}
	}
	return name
}

// WriteLocal creates a token, and writes it to a file that only this user can read, for commands on this machine: see
// LocalToken. addr is the address of the listener. remove removes the file.
func (t *Tokens) WriteLocal(addr string) (remove func(), err error) {
	RemoveLocal(addr)
	text := rand.Text() + rand.Text()
	t.all.Store(&[]token{{LocalName, sha256.Sum256([]byte(text))}})
	var errs []error
	for _, dir := range ownDirs() {
		file := filepath.Join(dir, localFile(addr))
		if err := writePrivate(file, text+"\n"); err != nil {
			errs = append(errs, err)
			continue
		}
		return func() { _ = os.Remove(file) }, nil
	}
	return func() {}, errors.Join(errs...)
}

// RemoveLocal removes tokens for the listener at addr that killed nodes have left behind.
func RemoveLocal(addr string) {
	for _, dir := range ownDirs() {
		_ = os.Remove(filepath.Join(dir, localFile(addr))) // most do not exist
	}
}

// writePrivate writes a new file that only this user can read.
func writePrivate(file, text string) error {
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		return err
	}
	f, err := os.OpenFile(file, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = io.WriteString(f, text)
	return errors.Join(err, f.Close())
}

// systemDir is where nodes write their tokens if they have permission.
const systemDir = "/run/edge"

// ownDirs returns the directories in which this user's nodes write their tokens, in order of preference.
func ownDirs() (dirs []string) {
	if dir, _, _ := strings.Cut(os.Getenv("RUNTIME_DIRECTORY"), ":"); dir != "" {
		dirs = append(dirs, dir)
	}
	dirs = append(dirs, systemDir, systemDir+"-envoy")
	if dir := os.Getenv("XDG_RUNTIME_DIR"); dir != "" {
		dirs = append(dirs, filepath.Join(dir, "edge"))
	}
	if dir, err := os.UserCacheDir(); err == nil {
		dirs = append(dirs, filepath.Join(dir, "edge"))
	}
	return dirs
}

// localFile returns the name of the file with the token of the listener at addr.
func localFile(addr string) string {
	return "admin-" + strings.NewReplacer("[", "", "]", "", ":", "_", "%", "_", "/", "_").Replace(addr) + ".token"
}

// localText matches the content of such a file. Commands of the superuser also read the directories of other users, who
// must not make them send anything else.
var localText = regexp.MustCompile(`^[A-Z2-7]{52}\n$`)

// LocalToken returns the token that the node with its admin listener at addr, HOST:PORT, has written for its user. It
// returns "" if the node belongs to another machine or user, or if its operator has configured tokens.
func LocalToken(addr string) string {
	dirs := ownDirs()
	if os.Geteuid() == 0 {
		for _, pattern := range []string{"/run/user/*/edge", "/home/*/.cache/edge"} {
			more, _ := filepath.Glob(pattern) // the pattern is valid
			dirs = append(dirs, more...)
		}
	}
	for _, at := range listenersOf(addr) {
		for _, dir := range dirs {
			if text := readLocal(filepath.Join(dir, localFile(at))); text != "" {
				return text
			}
		}
	}
	return ""
}

func readLocal(file string) string {
	if info, err := os.Lstat(file); err != nil || !info.Mode().IsRegular() {
		return ""
	}
	f, err := os.Open(file)
	if err != nil {
		return ""
	}
	defer f.Close()
	text, _ := io.ReadAll(io.LimitReader(f, 100)) // after an error, text does not match
	if !localText.Match(text) {
		return ""
	}
	return strings.TrimSpace(string(text))
}

// listenersOf returns the addresses of listeners on this machine that a connection to addr may reach.
func listenersOf(addr string) []string {
	host, port, _ := net.SplitHostPort(addr) // after an error, host is empty
	at := func(host string) string { return net.JoinHostPort(host, port) }
	anywhere := []string{at("::"), at("0.0.0.0")}
	ip := net.ParseIP(host)
	own, _ := net.InterfaceAddrs() // after an error, the address is treated as remote
	isIP := func(a net.Addr) bool { n, ok := a.(*net.IPNet); return ok && n.IP.Equal(ip) }
	switch {
	case host == "localhost":
		return append([]string{at("127.0.0.1"), at("::1")}, anywhere...)
	case ip == nil:
		return nil
	case ip.IsLoopback() || ip.IsUnspecified() || slices.ContainsFunc(own, isIP):
		return append([]string{at(ip.String())}, anywhere...)
	}
	return []string{at(ip.String())}
}
