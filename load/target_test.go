package load_test

import (
	"errors"
	"net/netip"
	"strings"
	"testing"

	"github.com/edgelimit/edge/load"
)

func TestTargets(t *testing.T) {
	for _, test := range []struct {
		text string
		want load.Target
		fail string // substring of the error
	}{
		{"127.0.0.1:8080", load.Target{Name: "127.0.0.1:8080", Addr: netip.MustParseAddrPort("127.0.0.1:8080"), Path: "/"}, ""},
		{"http://10.1.2.3/a?b", load.Target{Name: "10.1.2.3", Addr: netip.MustParseAddrPort("10.1.2.3:80"), Path: "/a?b"}, ""},
		{"https://[::1]", load.Target{Name: "[::1]", Addr: netip.MustParseAddrPort("[::1]:443"), TLS: true, Path: "/"}, ""},
		{"http://0.0.0.0:8080", load.Target{Name: "0.0.0.0:8080", Addr: netip.MustParseAddrPort("0.0.0.0:8080"), Path: "/"}, ""},
		{"http://[fe80::1%25lo]:8080", load.Target{Name: "[fe80::1]:8080", Addr: netip.MustParseAddrPort("[fe80::1%lo]:8080"), Path: "/"}, ""},
		{"http://127.0.0.1/a?b c", load.Target{}, "invalid target"},
		{"http://:8080", load.Target{}, "invalid target"},
		{"http://me@127.0.0.1", load.Target{}, "invalid target"},
		{"http://127.0.0.1:99999", load.Target{}, "invalid port"},
		{"http://192.0.2.1/", load.Target{}, "neither this machine nor on a private network"},
		{"http://[2001:db8::1]/", load.Target{}, "neither this machine nor on a private network"},
		{"ftp://127.0.0.1", load.Target{}, "invalid target"},
		{"http://", load.Target{}, "invalid target"},
	} {
		got, err := load.ParseTarget(t.Context(), test.text, false)
		if test.fail == "" && (err != nil || got != test.want) || test.fail != "" && (err == nil || !strings.Contains(err.Error(), test.fail)) {
			t.Errorf("ParseTarget(%q) = %+v, %v; want %+v, %q", test.text, got, err, test.want, test.fail)
		}
	}
	if _, err := load.ParseTarget(t.Context(), "http://192.0.2.1", true); err != nil {
		t.Errorf("ParseTarget(public=true) of a public address: %v", err)
	}
	var public *load.PublicError
	if _, err := load.ParseTarget(t.Context(), "http://192.0.2.1", false); !errors.As(err, &public) {
		t.Errorf("%v is not a PublicError", err)
	}
}
