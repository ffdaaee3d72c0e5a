package mix

// A schedule is a heap of the next requests of all clients, ordered by time and then by client: see container/heap.
type schedule []turn

// A turn is the next request of a client.
type turn struct {
	at     ticks
	client uint32
	left   uint32 // state of the generator
}

func (s schedule) Len() int      { return len(s) }
func (s schedule) Swap(i, j int) { s[i], s[j] = s[j], s[i] }

func (s schedule) Less(i, j int) bool {
	return s[i].at < s[j].at || s[i].at == s[j].at && s[i].client < s[j].client
}

// Push and Pop are not called: every client has a next request from the start.
func (s schedule) Push(any) {}
func (s schedule) Pop() any { return nil }
