package load

import "time"

// UseTimers lets a run sleep by timers alone, which stand still in a bubble until all
// goroutines wait.
func (o *Options) UseTimers() { o.nap = time.Sleep }
