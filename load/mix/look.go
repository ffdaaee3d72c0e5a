package mix

import "math/bits"

// A look describes the requests of a component. Each has one of the hosts, methods and paths, at random.
type look struct {
	hosts, methods, paths []string
	status                int
}

// request sets r to the flow's next request.
func (l *flow) request(r *Request) {
	r.Time, r.Client, r.Component = l.time, l.of.First+l.head.client, l.index
	k := &l.of.looks[l.head.look]
	var path, method, host int
	if len(k.paths)+len(k.methods)+len(k.hosts) > 3 {
		random := l.random.next()
		path, random = split(random, len(k.paths))
		method, random = split(random, len(k.methods))
		host, _ = split(random, len(k.hosts))
	}
	agent, _ := split(Scramble(l.of.key^l.head.client), len(l.of.agents))
	r.Method, r.Host, r.Path, r.Status = k.methods[method], k.hosts[host], k.paths[path], k.status
	r.Agent = l.of.agents[agent]
}

// split returns a number in [0, n), and the remaining random bits.
func split(random uint64, n int) (int, uint64) {
	hi, lo := bits.Mul64(random, uint64(n))
	return int(hi), lo
}
