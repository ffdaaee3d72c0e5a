package decision

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// lock fails if another process writes the file: lines of two nodes in one file cannot be told apart. The
// lock ends when the file is closed. File systems without locks are no error.
func lock(file *os.File) error {
	if errors.Is(unix.Flock(int(file.Fd()), unix.LOCK_EX|unix.LOCK_NB), unix.EWOULDBLOCK) {
		return errors.New("another process writes this file: give each node a file of its own")
	}
	return nil
}
