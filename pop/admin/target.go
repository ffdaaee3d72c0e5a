package admin

import (
	"net/netip"
	"strings"
)

// keyDigits is the number of hexadecimal digits of a key.
const keyDigits = 32

// ParseTarget parses a target to explain into the values for Operations.Explain. It is an address, a key,
// a list of NAME=VALUE, or else the ID of a refusal. A comma separates values only before a known NAME=.
func ParseTarget(text string) map[string]string {
	text = strings.TrimSpace(text)
	if _, err := netip.ParseAddr(text); err == nil {
		return map[string]string{"ip": text}
	}
	if !strings.Contains(text, "=") {
		if len(text) == keyDigits {
			return map[string]string{"key": strings.ToLower(text)}
		}
		return map[string]string{"id": text}
	}
	values, last := map[string]string{}, ""
	for part := range strings.SplitSeq(text, ",") {
		name, value, ok := strings.Cut(part, "=")
		switch {
		case ok && (last == "" || isValueName(name)):
			last = name
			values[name] = value
		default:
			values[last] += "," + part
		}
	}
	return values
}

// isValueName reports whether a target may give a value for name.
func isValueName(name string) bool {
	kind, _, _ := strings.Cut(name, ":")
	switch kind {
	case "rule", "key", "id", "ip", "host", "path", "method", "header", "cookie", "query", "label", "network":
		return true
	}
	return false
}
