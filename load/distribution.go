package load

import (
	"encoding/csv"
	"fmt"
	"io"
	"strconv"
)

// WriteLatency writes the distribution of Latency as percentiles in the format of HdrHistogram, in milliseconds.
func (r *Report) WriteLatency(w io.Writer) error {
	if r.histogram.TotalCount() == 0 {
		return nil
	}
	fmt.Fprint(w, "\nLatency percentiles, in milliseconds\n\n")
	_, err := r.histogram.PercentilesPrint(w, 1, 1000)
	return err
}

// WriteCSV writes a header line and a line for each request, in the order in which they were sent.
// Times are relative to the start of the run. status is empty if there was no answer, and failure
// gives the reason.
func (l *Log) WriteCSV(w io.Writer) error {
	c := csv.NewWriter(w)
	_ = c.Write([]string{"due_s", "sent_s", "latency_ms", "service_ms", "status", "failure", "retry_after_s", "target",
		"node", "component", "client", "address", "method", "host", "path"})
	micros := func(n, unit int64, digits int) string {
		return strconv.FormatFloat(float64(n)/float64(unit), 'f', digits, 64)
	}
	for i := range l.records {
		q := &l.records[i]
		look, target := l.looks[q.look-1], &l.o.Targets[q.target]
		host, path := look.at(target)
		var status, retry string
		if q.status != 0 {
			status = strconv.Itoa(int(q.status))
		}
		if q.retry > 0 {
			retry = strconv.Itoa(int(q.retry))
		}
		_ = c.Write([]string{
			micros(q.due, 1e6, 6), micros(q.sent, 1e6, 6), micros(q.done-q.due, 1e3, 3), micros(q.done-q.sent, 1e3, 3),
			status, failureNames[q.failure], retry, target.Name, l.nodes[q.node], l.components[look.Component].Name,
			strconv.FormatUint(q.client, 10), l.o.Source.Addr(q.client).String(),
			look.Method, host, path,
		})
	}
	c.Flush()
	if err := c.Error(); err != nil {
		return fmt.Errorf("load: writing the CSV: %w", err)
	}
	return nil
}
