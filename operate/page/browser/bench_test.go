package browser

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"testing"
	"time"
)

// BenchmarkPages measures the CPU usage of a node with 10,000 mitigations that five pages show, and how soon
// a page shows something. Use -benchtime 1x and a quiet machine.
func BenchmarkPages(b *testing.B) {
	started(b)
	origin := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	defer origin.Close()
	node := start(b, "rules: [{id: login, characteristics: [ip], limits: [{threshold: 1, period: 1h}], mitigation_timeout: 1h}, {id: everything, characteristics: [ip], limits: [{threshold: 600, period: 1m}]}]\n",
		"node", "--name=edge-1", "--listen=127.0.0.1:0", "--metrics-listen=", "--admin-listen=127.0.0.1:0",
		"--origin="+origin.URL, "--trusted-proxy=127.0.0.1", "--log-clients")
	found := node.Wait(node.Stderr, `node started.* http=(\S+).* admin=(\S+)`)
	url, admin := "http://"+found[1], "http://"+found[2]
	mitigate := func(network, i int) {
		for range 2 {
			r, _ := http.NewRequest("GET", url, nil)
			r.Header.Set("X-Forwarded-For", fmt.Sprintf("10.%d.%d.%d", network, i/256, i%256))
			resp, err := http.DefaultClient.Do(r)
			if err != nil {
				b.Error(err)
				return
			}
			_ = resp.Body.Close()
		}
	}
	const mitigations = 10000
	var all sync.WaitGroup
	for part := range 20 {
		all.Go(func() {
			for i := part; i < mitigations; i += 20 {
				mitigate(1, i)
			}
		})
	}
	all.Wait()
	// cpu reports the node's CPU usage while ten clients a second are mitigated, or none if network is 0.
	cpu := func(name string, network int) {
		ended := make(chan struct{})
		var all sync.WaitGroup
		if network > 0 {
			all.Go(func() {
				tick := time.NewTicker(100 * time.Millisecond)
				defer tick.Stop()
				for i := 0; ; i++ {
					select {
					case <-ended:
						return
					case <-tick.C:
						mitigate(network, i)
					}
				}
			})
		}
		b.ReportMetric(processCPU(b, node.Cmd.Process.Pid), name)
		close(ended)
		all.Wait()
	}
	for range b.N {
		cpu("%core_no_page", 0)
		cpu("%core_no_page_mitigating", 2)
		var paint, list float64
		for range 5 {
			p := open(b, 1440, "light")
			p.visit(admin)
			p.live()
			p.until("all mitigations are listed", total+`.startsWith('10,') && `+rows+`.length === 25`)
			const painted = `performance.getEntriesByName('first-contentful-paint')`
			p.until("something is painted", painted+`.length > 0`) // a busy browser may paint after the scripts have run
			paint = max(paint, eval[float64](p, painted+`[0].startTime`))
			list = max(list, eval[float64](p, `shown`))
		}
		b.ReportMetric(paint, "ms_first_paint")
		b.ReportMetric(list, "ms_list")
		cpu("%core_pages", 0)
		cpu("%core_pages_mitigating", 3)
	}
}

// processCPU returns the CPU usage of a process over 20 s, or 1 s with -short, in percent of a core.
func processCPU(b *testing.B, pid int) float64 {
	b.Helper()
	used := func() (ticks float64) {
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		if err != nil {
			b.Fatal(err)
		}
		var user, system float64
		fields := strings.Fields(string(text[strings.LastIndexByte(string(text), ')')+1:]))
		_, _ = fmt.Sscan(fields[11], &user) // clock ticks of 10 ms
		_, _ = fmt.Sscan(fields[12], &system)
		return user + system
	}
	seconds := 20.0
	if testing.Short() {
		seconds = 1
	}
	before := used()
	time.Sleep(time.Duration(seconds * float64(time.Second)))
	return (used() - before) / seconds
}
