package analysis_test

import (
	"fmt"
	"os"
	"time"

	"github.com/edgelimit/edge/analysis"
	"github.com/edgelimit/edge/analysis/accesslog"
)

// Nine people send a request a minute, and a machine sends one a second.
func ExampleSweep() {
	s, err := analysis.NewSweep(analysis.SweepOptions{
		Thresholds: []uint64{1, 2, 10, 100}, Periods: []time.Duration{time.Minute}, MaxClientsPct: 10,
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	begin := time.Date(2026, 3, 2, 8, 0, 0, 0, time.UTC)
	for second := range 600 {
		at := begin.Add(time.Duration(second) * time.Second).UnixMicro()
		request := func(client string) {
			if err := s.Add(&accesslog.Entry{Time: at, Client: client}); err != nil {
				fmt.Println(err)
			}
		}
		request("machine")
		if person := second % 60; person < 9 {
			request(fmt.Sprint("person ", person+1))
		}
	}
	report, err := s.Report()
	if err == nil {
		err = report.Document().WriteText(os.Stdout)
	}
	if err != nil {
		fmt.Println(err)
	}
	// Output:
	// 690 requests from 2026-03-02 08:00:00 to 2026-03-02 08:09:59 (UTC)
	//
	// Recommended thresholds
	//   Each threshold is tried as a rule by itself, on every request. The recommended one is the
	//   smallest that affects (refuses requests of) at most 10% of the clients. Top 1 and top 10 are the
	//   shares of the refused requests made by the one client and the ten clients with the most
	//   refusals.
	//   ip in 1m  1  affects 1 of 10 clients (10%), refuses 85.4% of requests
	//
	// ip in 1m: 10 clients
	//
	//   threshold  clients affected       %  requests refused      %   top 1  top 10
	//           1                 1  10.000               589  85.36  100.0%  100.0%  recommended
	//           2                 1  10.000               579  83.91  100.0%  100.0%
	//          10                 1  10.000               499  72.32  100.0%  100.0%
	//         100                 0   0.000                 0   0.00
	//
	//   Most refused at 1 in 1m
	//   client   refused  share
	//   machine      589   100%
	//
	// The rule to start with
	//
	// # it only logs; remove action: log to refuse requests
	// rules:
	//   - id: sweep-1
	//     characteristics: [ip]
	//     limits: [{threshold: 1, period: 1m}]
	//     action: log
}
