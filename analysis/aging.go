package analysis

// An aging map forgets what was not asked for longer than its life. So its size is that of
// what is active, not of the log.
type aging[K comparable, V any] struct {
	life       int64 // in microseconds
	since      int64 // when young was last empty
	young, old map[K]*aged[V]
}

type aged[V any] struct {
	value V
	used  int64
}

// get returns the value under k, and whether it was known at now. Now must not fall.
func (a *aging[K, V]) get(k K, now int64) (v *V, known bool) {
	if a.young == nil || now-a.since > a.life {
		a.old = a.young
		if now-a.since > 2*a.life {
			a.old = nil
		}
		a.young, a.since = map[K]*aged[V]{}, now
	}
	one, ok := a.young[k]
	if !ok {
		if one, ok = a.old[k]; ok {
			delete(a.old, k)
		} else {
			one = new(aged[V])
		}
		a.young[k] = one
	}
	if ok && now-one.used > a.life {
		*one, ok = aged[V]{}, false
	}
	one.used = now
	return &one.value, ok
}
