package mix

import "math/bits"

// A look describes the requests of a component. Each has a random one of the hosts, methods and paths.
type look struct {
	hosts, methods, paths []string
	status                int
	sizes                 []uint64 // bytes of the body of each path, for logs
}

// newLook returns a look. The size of a body depends only on its path.
func newLook(hosts, methods, paths []string, status int) look {
	sizes := make([]uint64, len(paths))
	for i, p := range paths {
		sizes[i] = 200 + hash(p)%40_000
	}
	return look{hosts, methods, paths, status, sizes}
}

// A choice is the look of one request, as indexes into the lists of its look and component.
type choice struct{ host, method, path, agent int }

// choose chooses the look of the lane's next request.
func (l *lane) choose() (k *look, c choice) {
	k = &l.of.looks[l.head.look]
	if len(k.paths)+len(k.methods)+len(k.hosts) > 3 {
		random := l.random.next()
		c.path, random = split(random, len(k.paths))
		c.method, random = split(random, len(k.methods))
		c.host, _ = split(random, len(k.hosts))
	}
	if n := len(l.of.agents); n > 1 {
		c.agent, _ = split(scramble(l.of.block.key^l.head.client), n)
	}
	return k, c
}

// split returns a number in [0, n), and the remaining random bits.
func split(random uint64, n int) (int, uint64) {
	hi, lo := bits.Mul64(random, uint64(n))
	return int(hi), lo
}
