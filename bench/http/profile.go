package main

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"

	"github.com/edgelimit/edge/bench/harness"
)

// profile writes a CPU profile of the node, with a round for each load.
func (b *bench) profile(wanted *regexp.Regexp) {
	var parts []string
	for _, refuse := range []bool{true, false} {
		admin := harness.FreeAddr()
		s := b.node("edge", *edge, refuse, admin)
		harness.WaitFor(admin)
		for _, l := range loads {
			if l.refuse != refuse || !wanted.MatchString(l.name) {
				continue
			}
			part := filepath.Join(b.dir, fmt.Sprint("profile", len(parts)))
			parts = append(parts, part)
			done := make(chan struct{})
			go func() {
				defer close(done)
				saveProfile(part, fmt.Sprintf("http://%s/debug/pprof/profile?seconds=%.0f", admin, length.Seconds()))
			}()
			b.round(s, l)
			<-done
		}
		s.end()
	}
	file, err := os.Create(*output)
	harness.Check(err)
	merge := pinned(loadCores, append([]string{"go", "tool", "pprof", "-proto"}, parts...)...)
	merge.Stdout = file
	harness.Check(merge.Run())
	harness.Check(file.Close())
}

func saveProfile(file, url string) {
	resp, err := http.Get(url)
	harness.Check(err)
	defer resp.Body.Close()
	profile, err := io.ReadAll(resp.Body)
	harness.Check(err)
	if resp.StatusCode != http.StatusOK {
		harness.Check(fmt.Errorf("%s: %s", url, profile))
	}
	harness.Check(os.WriteFile(file, profile, 0o644))
}
