package decision

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// lock returns an error if another process writes the file, because lines of two nodes in one file cannot
// be distinguished. Closing the file releases the lock. A file system without locks is not an error.
func lock(file *os.File) error {
	if errors.Is(unix.Flock(int(file.Fd()), unix.LOCK_EX|unix.LOCK_NB), unix.EWOULDBLOCK) {
		return errors.New("another process is writing to this file: give each node a file of its own")
	}
	return nil
}
