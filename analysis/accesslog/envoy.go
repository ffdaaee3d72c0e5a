package accesslog

import "bytes"

// envoy is the default log of Envoy and Istio, as text or one JSON object per line.
//
//	[2006-01-02T15:04:05.000Z] "request" status flags n n ms ms "x-forwarded-for" "agent" "id" "authority" "upstream"
//
// In the text format, the client is the first address of X-Forwarded-For, which can be forged,
// unless the line has the addresses that Istio appends.
type envoy struct{ object *objects }

func newEnvoy(n names) envoy { return envoy{newObjects(n)} }

func (e envoy) parse(s []byte, r *record) string {
	start := bytes.IndexAny(s, "[{")
	if start < 0 {
		return "neither [time] nor a JSON object"
	}
	if s[start] == '{' {
		return e.object.parse(s, r)
	}
	s = s[start+1:]
	t, n, ok := r.clock.iso(s)
	if !ok || n >= len(s) || s[n] != ']' {
		return "no time like [2006-01-02T15:04:05.000Z]"
	}
	request, s, ok := cutQuoted(trimSpaces(s[n+1:]))
	if !ok {
		return "no request in quotes"
	}
	status, s := cutWord(s)
	if _, ok := number(status); !ok {
		return "no status after the request"
	}
	// The last five quoted texts are always the same fields, but what precedes them varies.
	var texts [5][]byte
	quoted := 0
	var words [4][]byte
	behind := 0
	for s = trimSpaces(s); len(s) > 0; s = trimSpaces(s) {
		if text, rest, ok := cutQuoted(s); ok {
			copy(texts[:], texts[1:])
			texts[4], s = text, rest
			quoted++
			behind = 0
			continue
		}
		var word []byte
		word, s = cutWord(s)
		if behind < len(words) {
			words[behind] = word
		}
		behind++
	}
	if quoted < len(texts) {
		return "some quoted fields from x-forwarded-for to upstream are missing"
	}
	r.client = firstOf(texts[0])
	if behind >= len(words) && !missing(words[3]) {
		if peer := withoutPort(words[3]); addressOf(peer).IsValid() {
			r.client = peer
		}
	}
	if len(r.client) == 0 {
		r.client = []byte("-")
	}
	r.time = t
	if r.need&^Addr == 0 {
		return ""
	}
	r.request(request)
	r.code(status)
	if !missing(texts[3]) {
		r.host = r.unescape(texts[3])
	}
	r.set("X-Forwarded-For", texts[0])
	r.set("User-Agent", r.unescape(texts[1]))
	r.set("X-Request-Id", texts[2])
	return ""
}
