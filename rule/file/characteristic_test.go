package file_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/edgelimit/edge/rule"
	rulefile "github.com/edgelimit/edge/rule/file"
	"github.com/google/go-cmp/cmp"
)

// ParseCharacteristic returns the same as a rules file.
func TestParseCharacteristic(t *testing.T) {
	for _, text := range []string{"ip", "host", "path", "method", "header:X-Api-Key", "cookie:sid", "query:a b"} {
		set, err := rulefile.Parse("r.yaml", []byte(withCharacteristics(fmt.Sprintf("[%q]", text))))
		if err != nil {
			t.Fatal(err)
		}
		want := set.Rules()[0].Characteristics[0]
		if got, err := rulefile.ParseCharacteristic(text); err != nil || !cmp.Equal(got, want, cmp.AllowUnexported(rule.Characteristic{})) {
			t.Errorf("ParseCharacteristic(%q) = %v, %v, want %v", text, got, err, want)
		}
	}
	for text, want := range map[string]string{
		"": "write ip", "IP": "did you mean ip?", "header": `"header" is not a characteristic`, "ip:1": `"ip:1" is not a characteristic`, "header:host": "write host", "header:a b": "no spaces",
	} {
		if got, err := rulefile.ParseCharacteristic(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("ParseCharacteristic(%q) = %v, %v, want an error with %q", text, got, err, want)
		}
	}
}

func TestSharedErrors(t *testing.T) {
	for text, want := range map[string]string{
		withKeys("action: shed"):                                                       "action: shed is for keys that many clients share",
		withKeys("min_clients: 2"):                                                     "min_clients is for keys that many clients share",
		withKeys("min_clients: 101"):                                                   "write a whole number from 1 to 100",
		withCharacteristics("[network:24]"):                                            "write network:24/48",
		withCharacteristics("[network:33/48]"):                                         "up to 32 bits",
		withCharacteristics("[network:24/65]"):                                         "up to 64",
		withCharacteristics("[network:024/48]"):                                        "write network:24/48",
		withCharacteristics("[network]"):                                               `"network" is not a characteristic`,
		withCharacteristics("[first:ip]"):                                              `"first:ip" is not a characteristic`,
		withCharacteristics("[{first: [" + numbered("query:q%d", 256) + "]}]"):         "there are more than 255 alternatives",
		withCharacteristics("[{first: [ip]}]"):                                         "first needs at least two alternatives",
		withCharacteristics("[{first: [ip, ip]}]"):                                     "ip is listed twice",
		withCharacteristics("[{first: [ip, {first: [ip, host]}]}]"):                    "first cannot contain first",
		withCharacteristics("[{first: [header:a, ip], missing: skip}]"):                "first cannot have missing",
		withCharacteristics("[host]") + "  action: shed\n  count: {statuses: [401]}\n": "cannot have action: shed",
		"rules: [{id: a, characteristics: [host], limits: [{threshold: 5, period: 1m, sub_windows: 2}], action: shed}]": "a rule with sub_windows cannot have action: shed",
	} {
		if _, err := rulefile.Parse("r.yaml", []byte(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("Parse(%q) = %v, want an error with %q", text, err, want)
		}
	}
}
