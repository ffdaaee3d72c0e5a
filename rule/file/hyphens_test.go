package file_test

import (
	"fmt"
	"testing"

	rulefile "github.com/edgelimit/edge/rule/file"
	"github.com/google/go-cmp/cmp"
)

// Keys with hyphens are read like those with underscores, with one note. Values stay as they are.
func TestHyphens(t *testing.T) {
	const text = "rules:\n- id: a\n  characteristics: [{header: x-api-key}]\n  %s: 1m\n  %s: open\n  limits: [{threshold: 5, period: 1m, %s: 2}]\n  response: {%s: text/html}\n"
	read := func(keys ...any) rulefile.Contents {
		t.Chdir(write(t, map[string]string{"r.yaml": fmt.Sprintf(text, keys...)}))
		all, err := rulefile.Read("r.yaml")
		if err != nil {
			t.Fatal(err)
		}
		return all
	}
	underscores := read("mitigation_timeout", "on_failure", "sub_windows", "content_type")
	hyphens := read("mitigation-timeout", "on-failure", "sub-windows", "content-type")
	one := read("mitigation_timeout", "on_failure", "sub-windows", "content_type")
	for i, all := range []rulefile.Contents{hyphens, one} {
		if diff := cmp.Diff(underscores.Set.Rules(), all.Set.Rules(), values); diff != "" {
			t.Errorf("%d: %s", i, diff)
		}
	}
	for _, row := range []struct {
		all  rulefile.Contents
		want string
	}{
		{underscores, "<nil>"},
		{hyphens, "r.yaml:4:3: mitigation-timeout is spelled mitigation_timeout, but is accepted; 4 such keys in all"},
		{one, "r.yaml:6:39: sub-windows is spelled sub_windows, but is accepted"},
	} {
		if got := fmt.Sprint(row.all.Set.Note()); got != row.want {
			t.Errorf("note %s, want %s", got, row.want)
		}
	}
}
