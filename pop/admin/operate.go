package admin

import (
	"encoding/json"
	"errors"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"time"
)

// Operations are what operators can see and do at a node. What they do holds for the whole
// PoP. All functions may be called concurrently.
type Operations struct {
	// Mitigations returns what is mitigated, the ones that end last first.
	Mitigations func() []Mitigation

	// Lift ends the mitigation of a key, given in hexadecimal, at once.
	Lift func(key string) error

	// KeyOf returns the key of a client of a rule that counts by ip alone.
	KeyOf func(rule string, client netip.Addr) (key string, err error)

	// Shards returns the shards, in the order of their addresses.
	Shards func() []Shard

	// Drain takes a shard out of the ring, or lets it in again.
	Drain func(shard string, on bool) error
}

// A Mitigation is one that is in force, or the lift of one.
type Mitigation struct {
	Key    string    `json:"key"`
	Start  time.Time `json:"start"` // by the clock of the node that made it
	Left   float64   `json:"left_s"`
	Lifted bool      `json:"lifted"`
	Why    string    `json:"why,omitempty"`
	Period float64   `json:"period_s,omitempty"`

	// Rule, Client and what follows are known only to the node where it started, and but
	// for Rule only if it logs clients.
	Rule   string `json:"rule,omitempty"`
	Client string `json:"client,omitempty"`
	Method string `json:"method,omitempty"`
	Host   string `json:"host,omitempty"`
	Path   string `json:"path,omitempty"`
}

// A Shard is a counter shard as a node sees it.
type Shard struct {
	Addr    string `json:"addr"`
	Down    bool   `json:"down"`    // this node finds it down
	InRing  bool   `json:"in_ring"` // it owns keys
	Drained bool   `json:"drained"` // an operator takes it out
}

// An Unknown error says that there is nothing of that name.
type Unknown string

func (u Unknown) Error() string { return string(u) }

// operate serves what operators can see and do, as JSON. What changes something is accepted
// from this machine only, and not from web pages.
func operate(mux *http.ServeMux, o Operations) {
	mux.HandleFunc("GET /mitigations", func(w http.ResponseWriter, _ *http.Request) {
		all := append([]Mitigation{}, o.Mitigations()...)
		answer(w, struct {
			Mitigations []Mitigation `json:"mitigations"`
		}{all})
	})
	mux.HandleFunc("GET /shards", func(w http.ResponseWriter, _ *http.Request) {
		all := append([]Shard{}, o.Shards()...)
		answer(w, struct {
			Shards []Shard `json:"shards"`
		}{all})
	})
	change(mux, "POST /mitigations/lift", func(r url.Values) error {
		key := r.Get("key")
		if key == "" {
			client, err := netip.ParseAddr(r.Get("ip"))
			if err != nil || r.Get("rule") == "" {
				return errors.New("give a key, or a rule and an ip")
			}
			if key, err = o.KeyOf(r.Get("rule"), client); err != nil {
				return err
			}
		}
		return o.Lift(key)
	})
	change(mux, "POST /shards/drain", func(r url.Values) error { return o.Drain(r.Get("shard"), true) })
	change(mux, "POST /shards/undrain", func(r url.Values) error { return o.Drain(r.Get("shard"), false) })
}

// change serves something that changes the node, with the query's values.
func change(mux *http.ServeMux, pattern string, do func(url.Values) error) {
	mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
		host, _, _ := net.SplitHostPort(r.RemoteAddr)
		from, err := netip.ParseAddr(host)
		// Browsers name the page that asks.
		if err != nil || !from.Unmap().IsLoopback() || r.Header.Get("Origin") != "" || r.Header.Get("Sec-Fetch-Site") != "" {
			http.Error(w, "only from this machine, and by no web page", http.StatusForbidden)
			return
		}
		switch err := do(r.URL.Query()); {
		case errors.As(err, new(Unknown)):
			http.Error(w, err.Error(), http.StatusNotFound)
		case err != nil:
			http.Error(w, err.Error(), http.StatusConflict)
		default:
			w.WriteHeader(http.StatusNoContent)
		}
	})
}

func answer(w http.ResponseWriter, value any) {
	w.Header().Set("Content-Type", "application/json")
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	_ = e.Encode(value) // the client is gone
}
