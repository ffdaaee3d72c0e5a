package load

import (
	"errors"
	"fmt"
	"math"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/edgelimit/edge/internal/chart"
	"github.com/edgelimit/edge/internal/prose"
	"github.com/edgelimit/edge/load/mix"
)

// A Point is a rate at a point in time. Between points the rate changes linearly; after the last
// one it is constant.
type Point struct {
	After time.Duration // since the start
	Rate  float64       // requests per second
}

// ParseProfile parses points such as 100/s,1000/s@10s: a hundred requests per second at the start,
// a thousand after ten seconds. The first point has no time. The unit of a rate is s, m or h, by
// default s.
func ParseProfile(text string) (profile []Point, err error) {
	for i, part := range strings.Split(text, ",") {
		rate, after, timed := strings.Cut(strings.TrimSpace(part), "@")
		number, unit, _ := strings.Cut(rate, "/")
		per, known := map[string]float64{"": 1, "s": 1, "m": 60, "h": 3600}[unit]
		n, err := strconv.ParseFloat(strings.ReplaceAll(number, "_", ""), 64)
		if err != nil || !known || !(n >= 0) || n/per > 1e7 {
			return nil, fmt.Errorf("load: invalid rate %q: must be 0 to 10,000,000/s", rate)
		}
		p := Point{Rate: n / per}
		if timed {
			if p.After, err = prose.ParseDuration(after, 0); err != nil {
				return nil, fmt.Errorf("load: invalid time %q of a rate: write it with a unit, as in 10s", after)
			}
		}
		if i == 0 && p.After != 0 {
			return nil, errors.New("load: the first rate applies from the start: write it without a time")
		}
		if i > 0 && p.After <= profile[i-1].After {
			return nil, fmt.Errorf("load: the rate %s must have a later time than the previous one", part)
		}
		profile = append(profile, p)
	}
	return profile, nil
}

// Steady is a Source of identical requests from clients in turn.
type Steady struct {
	// Profile is the rate over time. If empty, all requests are due immediately, and are sent as fast
	// as the connections allow.
	Profile []Point

	// Clients is the number of clients. If zero, 1.
	Clients uint64

	// Networks are the networks that clients come from, in turn: IPv4 networks with an address
	// for each client, or IPv6 networks with a /64 for each. If empty, 10.0.0.0/8.
	Networks []netip.Prefix

	// Offset is the position of the first client's address in its network. Addresses wrap around.
	Offset uint64

	// Look describes the requests.
	Look Look

	// Attack marks the requests as meant to be refused.
	Attack bool

	made  uint64  // number of requests so far
	piece int     // current piece of the profile
	begun float64 // number of requests before that piece
}

// Components returns a single component, named steady.
func (s *Steady) Components() []mix.Component {
	return []mix.Component{{Name: "steady", Attack: s.Attack}}
}

// Next sets r to the next request.
func (s *Steady) Next(r *Request) bool {
	due, ok := s.due()
	if !ok {
		return false
	}
	client := s.made % max(1, s.Clients)
	*r = Request{Due: due, Client: client, Addr: s.Addr(client), Look: &s.Look}
	s.made++
	return true
}

// due returns when the next request is due. It returns false if the rate is practically 0 from now on.
func (s *Steady) due() (time.Duration, bool) {
	if len(s.Profile) == 0 {
		return 0, true
	}
	n := float64(s.made)
	for ; s.piece+1 < len(s.Profile); s.piece++ {
		from, to := s.Profile[s.piece], s.Profile[s.piece+1]
		length := (to.After - from.After).Seconds()
		if here := length * (from.Rate + to.Rate) / 2; n-s.begun >= here {
			s.begun += here
			continue
		}
		// rate·t + slope·t²/2 = n − begun
		slope, left := (to.Rate-from.Rate)/length, n-s.begun
		t := 2 * left / (from.Rate + math.Sqrt(max(0, from.Rate*from.Rate+2*slope*left)))
		if left == 0 {
			t = 0
		}
		return from.After + time.Duration(t*1e9), true
	}
	const never = 1e9 // seconds
	last := s.Profile[s.piece]
	t := (n - s.begun) / last.Rate
	if last.Rate == 0 || t > never {
		return 0, false
	}
	return last.After + time.Duration(t*1e9), true
}

var ownNetworks = []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}

func (s *Steady) networks() []netip.Prefix {
	if len(s.Networks) == 0 {
		return ownNetworks
	}
	return s.Networks
}

// Addr returns the address of a client.
func (s *Steady) Addr(client uint64) netip.Addr {
	n := uint64(len(s.networks()))
	p := s.networks()[client%n]
	return mix.Within(p, (client/n+s.Offset)&(1<<mix.IndexBits(p)-1), 1)
}

// Check returns an error if the requests are invalid or the networks are too small for the clients.
func (s *Steady) Check() error {
	if err := s.Look.Check(); err != nil {
		return err
	}
	networks := s.networks()
	perNetwork := (max(1, s.Clients)-1)/uint64(len(networks)) + 1
	for i, p := range networks {
		if slices.ContainsFunc(networks[:i], p.Overlaps) {
			return fmt.Errorf("load: %v overlaps another network", p)
		}
		if n := mix.IndexBits(p); n < 0 || perNetwork > 1<<n {
			return fmt.Errorf("load: %v is too small for %s", p, chart.Count(perNetwork, "client"))
		}
	}
	return nil
}
