package operate

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/edgelimit/edge/counter"
	"github.com/edgelimit/edge/mitigation"
	"github.com/edgelimit/edge/pop/peers"
)

// pageSize is the number of mitigations on a page if the query has no limit.
const pageSize = 100

// Mitigations returns a page of the mitigations and lifts that q selects.
func (o *Operator) Mitigations(q Query) (page Mitigations, err error) {
	q.Limit = cmp.Or(q.Limit, pageSize)
	order := func(r *mitigation.Record) int64 { return r.Deadline.UnixNano() }
	switch q.Sort {
	case "start":
		order = func(r *mitigation.Record) int64 { return r.Start }
	case "key":
		order = func(*mitigation.Record) int64 { return 0 }
	}
	after, err := parsePlace(q.Cursor)
	if err != nil {
		return page, err
	}
	matches, err := o.matcher(q)
	if err != nil {
		return page, err
	}
	now := o.Now()
	var found []place
	most := q.Limit + 1 // the additional place shows whether there is another page
	for r := range o.Table.All(now) {
		if !matches(r) {
			continue
		}
		page.Total++
		if p := (place{order(r), r.Key, r}); after.record == nil || p.compare(after) > 0 {
			found = append(found, p)
			if len(found) == 2*most {
				found = firstPlaces(found, most)
			}
		}
	}
	found = firstPlaces(found, most)
	more := len(found) == most
	found = found[:min(len(found), q.Limit)]
	page.Mitigations = make([]Mitigation, len(found))
	for i, p := range found {
		page.Mitigations[i] = *o.describe(p.record, now)
	}
	if more {
		last := found[len(found)-1]
		page.Next = fmt.Sprintf("%d-%s", last.order, last.key)
	}
	return page, nil
}

// A place is the position of a record in a list.
type place struct {
	order  int64 // descending
	key    counter.Key
	record *mitigation.Record
}

func (p place) compare(q place) int {
	return cmp.Or(cmp.Compare(q.order, p.order), bytes.Compare(p.key[:], q.key[:]))
}

// firstPlaces returns the first n places in order. It reuses the memory of places.
func firstPlaces(places []place, n int) []place {
	slices.SortFunc(places, place.compare)
	return places[:min(len(places), n)]
}

// parsePlace parses a cursor. For an empty cursor, it returns a place without a record.
func parsePlace(text string) (p place, err error) {
	if text == "" {
		return p, nil
	}
	i := strings.LastIndexByte(text, '-')
	order, err := strconv.ParseInt(text[:max(i, 0)], 10, 64)
	if err == nil {
		p.key, err = parseKey(text[i+1:])
	}
	if err != nil {
		return p, Invalid(fmt.Sprintf("cursor: %q is not the \"next\" of a page", text))
	}
	p.order, p.record = order, new(mitigation.Record)
	return p, nil
}

// matcher returns a function that reports whether q selects a record.
func (o *Operator) matcher(q Query) (func(*mitigation.Record) bool, error) {
	fingerprint := uint64(0)
	if q.Rule != "" {
		r, err := o.ruleOf(q.Rule)
		if err != nil {
			return nil, err
		}
		fingerprint = mitigation.AnyRule
		if r != nil {
			fingerprint = r.Fingerprint()
		}
	}
	acts := map[counter.Key]bool{} // keys whose mitigations concern the client, if the query has a single address
	switch {
	case q.Client.IsSingleIP():
		t, err := o.find(map[string]string{"ip": q.Client.Addr().String()}, math.MaxInt, o.Now())
		if err != nil {
			return nil, err
		}
		for _, f := range t.keys {
			acts[f.key] = true
		}
	case q.Client.IsValid() && !o.LogClients:
		return nil, errors.New("operate: clients are not recorded, because the node runs without --log-clients; give an address, a rule and the values of its characteristics, or a key")
	}
	key := strings.ToLower(q.Key)
	if strings.Trim(key, "0123456789abcdef") != "" {
		return nil, Invalid(fmt.Sprintf("key: %q is not a prefix of a key: use hexadecimal digits", q.Key))
	}
	id, _ := strconv.ParseUint(q.Node, 16, 64) // 0 if q.Node can only be a name
	byName, byID := peers.ID(q.Node), mitigation.NodeID(id)
	return func(r *mitigation.Record) bool {
		switch {
		case q.Rule != "" && r.Rule != fingerprint, key != "" && !strings.HasPrefix(r.Key.String(), key):
			return false
		case q.Client.IsValid() && !acts[r.Key] && !q.Client.Contains(r.Client):
			return false
		case q.Node != "" && r.Node != byName && (byID == 0 || r.Node != byID):
			return false
		case q.State == "":
			return true
		}
		_, state := o.stateOf(r)
		return state == q.State || q.State == "current" && state != lifted
	}, nil
}
