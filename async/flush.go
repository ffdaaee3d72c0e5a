package async

import (
	"strings"
	"time"

	"github.com/edgelimit/edge/mitigation"
)

// flush adds the queued items to the tracks of their keys. It evaluates each track immediately, by the counts that the
// node is sure of, whatever its shard does.
func (c *Loop) flush(items []item) {
	now := c.o.Now()
	c.move(now)
	rules := c.rules.Load()
	for i := range items {
		arrived, offered := &items[i].tickKey, &items[i].offered
		// The rules may have changed since the request was matched.
		r := rules.Current(offered.rule)
		if r == nil {
			continue
		}
		t := c.track(arrived.key)
		c.update(t, r, now)
		if arrived.generation < t.generation { // the request arrived before a lift
			c.metrics.lose(dropLifted, offered.n*uint64(len(r.Limits)))
			continue
		}
		c.counted(r.Base(), offered.n)
		c.add(t, offered.n, time.UnixMilli(arrived.tick))
		if t.since == 0 {
			t.since = offered.at
		}
		t.keep(&offered.sample)
		t.see(offered.clients)
		c.evaluate(t, &items[i], now)
		switch holds := c.holds(t, now); {
		case !holds:
			c.send(t)
		case t.place == nowhere: // else its counts already wait for a batch
			c.lane(t.key).move(t, held)
		}
	}
}

// Maximum sizes of a sample, in bytes. The path gets the room that method and host leave.
const (
	maxSample = 128
	maxMethod = 16
	maxHost   = 64
)

// cut truncates s.
func cut(s mitigation.Sample) mitigation.Sample {
	s.Method = s.Method[:min(len(s.Method), maxMethod)]
	s.Host = s.Host[:min(len(s.Host), maxHost)]
	s.Path = s.Path[:min(len(s.Path), maxSample-len(s.Method)-len(s.Host))]
	return s
}

// Copy returns a truncated copy of s that shares no memory with it, because the strings of s may be
// part of a reused buffer or of a whole request. It allocates once.
func Copy(s mitigation.Sample) mitigation.Sample {
	s = cut(s)
	text := strings.Join([]string{s.Method, s.Host, s.Path}, "")
	s.Method, text = text[:len(s.Method)], text[len(s.Method):]
	s.Host, s.Path = text[:len(s.Host)], text[len(s.Host):]
	return s
}
