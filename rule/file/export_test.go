package file

import "github.com/edgelimit/edge/rule"

// ParseInParts is like Parse, but splits files of at least large bytes into parts of size bytes. It
// also returns the number of parts, and whether they could be used.
func ParseInParts(name string, text []byte, large, size int) (set *rule.Set, parts int, used bool, err error) {
	var counted loader
	pieces := split(text, large, size)
	used = pieces != nil && counted.read(name, pieces...)
	var all loader
	all.add(name, text, large, size)
	contents, err := all.contents()
	return contents.Set, len(pieces), used, err
}
