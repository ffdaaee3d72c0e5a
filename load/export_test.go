package load

import (
	"io"
	"time"
)

// UseTimers lets a run sleep by timers alone, which stand still in a bubble until all
// goroutines wait.
func (o *Options) UseTimers() { o.nap = time.Sleep }

// ReadAnswers reads answers until one is wrong or the connection ends, and returns their
// statuses.
func ReadAnswers(from io.Reader) (statuses []int, err error) {
	w := wire{buf: make([]byte, 4096), nodeHeader: []byte("X-Edge-Node")}
	w.reset(from)
	for a := (answer{}); !a.last; {
		if err := w.read(&a, false); err != nil {
			return statuses, err
		}
		statuses = append(statuses, int(a.status))
	}
	return statuses, nil
}
