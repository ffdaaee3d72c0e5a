package load

import (
	"encoding/csv"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"

	"github.com/HdrHistogram/hdrhistogram-go"

	"github.com/edgelimit/edge/internal/chart"
)

// A Bucket counts the answers that took at most UpToMS and more than the previous bucket's UpToMS.
type Bucket struct {
	UpToMS   float64 `json:"up_to_ms"`
	Requests uint64  `json:"requests"`
}

// bucketsOf returns the buckets of a histogram in microseconds, from the first nonempty one to the
// last. They end at 1, 2 and 5 times powers of ten.
func bucketsOf(h *hdrhistogram.Histogram) []Bucket {
	buckets := []Bucket{}
	bars, at, left := h.Distribution(), 0, uint64(h.TotalCount())
	for decade := int64(10); left > 0; decade *= 10 {
		for _, end := range []int64{decade, 2 * decade, 5 * decade} {
			b := Bucket{UpToMS: float64(end) / 1e3}
			for ; at < len(bars) && bars[at].From <= end; at++ {
				b.Requests += uint64(bars[at].Count)
			}
			left -= b.Requests
			if b.Requests > 0 || len(buckets) > 0 && left > 0 {
				buckets = append(buckets, b)
			}
		}
	}
	return buckets
}

// WriteLatency writes the distribution of Latency in human-readable form: a histogram, and
// percentiles in the format of HdrHistogram, in milliseconds.
func (r *Report) WriteLatency(w io.Writer) error {
	if len(r.Histogram) == 0 {
		return nil
	}
	most := slices.MaxFunc(r.Histogram,
		func(a, b Bucket) int { return int(int64(a.Requests) - int64(b.Requests)) }).Requests
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprint(w, "\nLatency histogram\n\n")
	for _, b := range r.Histogram {
		const width = 40
		bar := strings.Repeat("■", int((b.Requests*width+most-1)/most))
		fmt.Fprintf(t, "≤ %s\t%s\t%.2f%%\t  %s\n", millis(b.UpToMS), chart.Grouped(b.Requests),
			100*float64(b.Requests)/float64(r.histogram.TotalCount()), bar)
	}
	if err := t.Flush(); err != nil {
		return err
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
