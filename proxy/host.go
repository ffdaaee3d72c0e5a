package proxy

import (
	"net/netip"
	"strconv"
	"strings"
)

// validHost reports whether host is empty or HOST[:PORT]: a name of letters, digits, hyphens, underscores
// and dots, or an IPv6 address in brackets, and a port that may be empty. Origins read other values in
// different ways: nginx ignores everything after the first colon.
func validHost(host string) bool {
	name, port := host, ""
	if strings.HasPrefix(host, "[") {
		end := strings.IndexByte(host, ']')
		if end < 0 {
			return false
		}
		name, port = host[1:end], host[end+1:]
		if addr, err := netip.ParseAddr(name); err != nil || !addr.Is6() || addr.Zone() != "" {
			return false
		}
		return port == "" || port[0] == ':' && validPort(port[1:])
	}
	if colon := strings.IndexByte(host, ':'); colon >= 0 {
		name, port = host[:colon], host[colon+1:]
		if name == "" || !validPort(port) {
			return false
		}
	}
	return validName(name)
}

// validName reports whether name is empty, or consists of labels separated by single dots. A dot may end
// it, but not begin it.
func validName(name string) bool {
	dot := true // the last byte was a dot, or there was none
	for i := range len(name) {
		c := name[i]
		switch {
		case c == '.':
			if dot {
				return false
			}
		case !isAlphanumeric(c) && c != '-' && c != '_':
			return false
		}
		dot = c == '.'
	}
	return true
}

func validPort(port string) bool {
	if port == "" {
		return true
	}
	_, err := strconv.ParseUint(port, 10, 16)
	return err == nil
}

func isAlphanumeric(c byte) bool {
	return '0' <= c && c <= '9' || 'a' <= c|0x20 && c|0x20 <= 'z'
}
