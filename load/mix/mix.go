package mix

import (
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/edgelimit/edge/internal/prose"
	"github.com/edgelimit/edge/internal/strictyaml"
)

// A Mix describes traffic. It is safe for concurrent use as long as its fields do not change.
type Mix struct {
	// Seed is the seed of all random numbers. A different seed gives different requests with
	// the same properties, from the same addresses.
	Seed uint64

	// Requests is the maximum number of requests; 0 means no limit.
	Requests uint64

	start      int64 // in microseconds since the epoch
	duration   time.Duration
	components []component
}

// A Component is a part of the traffic. Only its name and whether it is an attack are shown in reports.
type Component struct {
	Name string `json:"name"`
	Kind string `json:"-"` // its name in files, such as zipf

	// Attack reports whether the requests are meant to be refused.
	Attack bool `json:"attack"`

	// First is the number of the first client; the others follow.
	First uint64 `json:"-"`

	// Clients is the maximum number of clients.
	Clients uint64 `json:"-"`
}

// A component is a Component and its behavior.
type component struct {
	Component
	kind     *kind
	params   *params
	from, to time.Duration // since the start of the mix
	swing    swing
	looks    []look
	agents   []string

	// networks are those that clients are distributed over. For spread, its networks are drawn from them, and nil
	// stands for a default.
	networks []netip.Prefix
	addrs    []netip.Addr // for spread, the clients' addresses
	key      uint64       // seed of the addresses and user agents
}

// A swing describes how the rate of a component follows the time of day.
type swing struct {
	period, peak time.Duration // period is 0 for a constant rate
	depth        float64       // maximum deviation from the average rate, as a fraction of it
}

//go:embed mixes
var mixes embed.FS // rules/NAME.yaml has the rules for NAME.yaml

// Names returns the names of the bundled mixes, sorted.
func Names() []string {
	files, _ := fs.Glob(mixes, "mixes/*.yaml") // fails only if the pattern is malformed
	for i, f := range files {
		files[i] = strings.TrimSuffix(path.Base(f), ".yaml")
	}
	return files
}

// Rules returns the rules that a bundled mix is made for, and reports whether there are any.
func Rules(name string) ([]byte, bool) {
	text, err := mixes.ReadFile("mixes/rules/" + name + ".yaml")
	return text, err == nil
}

// Load reads the bundled mix called spec or, if there is none, the file spec. Its error for an
// invalid file is a [strictyaml.Errors]. addresses selects the addresses of clients; 0 selects those of Parse.
func Load(spec string, addresses uint64) (*Mix, error) {
	if slices.Contains(Names(), spec) {
		text, _ := mixes.ReadFile("mixes/" + spec + ".yaml") // it exists
		return parse(spec+".yaml", text, addresses)
	}
	text, err := strictyaml.ReadFile(spec)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("mix: %w, and no bundled mix has that name: %s", err, prose.Suggest(spec, Names()))
	} else if err != nil {
		return nil, fmt.Errorf("mix: %w", err)
	}
	return parse(spec, text, addresses)
}

// Start returns when the traffic begins.
func (m *Mix) Start() time.Time { return time.UnixMicro(m.start).UTC() }

// Duration returns the length of the traffic.
func (m *Mix) Duration() time.Duration { return m.duration }

// Components returns the parts of m, in the order of the file.
func (m *Mix) Components() []Component {
	list := make([]Component, len(m.components))
	for i := range list {
		list[i] = m.components[i].Component
	}
	return list
}

// Addr returns the address of a client, or the zero Addr if there is no such client. It does not
// depend on the seed.
func (m *Mix) Addr(client uint64) netip.Addr {
	for i := range m.components {
		if c := &m.components[i]; c.First <= client && client-c.First < c.Clients {
			return c.addr(client - c.First)
		}
	}
	return netip.Addr{}
}
