package accesslog_test

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/edgelimit/edge/analysis/accesslog"
	"github.com/edgelimit/edge/internal/trace"
)

// An outcome is the result of opening a file: it is read, or refused with a guess.
type outcome struct {
	Format    string
	Entries   int64
	Malformed int64
	Refused   string
	Sum       string // of a trace: the beginning of the SHA-256 of its counted data
}

// samples are the outcomes of all samples from other log tools' test suites. Lines of error logs and lines that
// are not requests are malformed; blank lines and comments are not.
var samples = map[string]outcome{
	"crowdsec/apache2-logs.log":               {Format: "combined", Entries: 7, Malformed: 2},
	"crowdsec/apache2-malformed.log":          {Format: "combined", Entries: 11},
	"crowdsec/aws-alb-logs.log":               {Format: "alb", Entries: 14},
	"crowdsec/aws-cloudfront-logs.log":        {Format: "cloudfront", Entries: 2},
	"crowdsec/caddy-logs.log":                 {Format: "caddy", Entries: 10, Malformed: 1},
	"crowdsec/envoy-logs.log":                 {Format: "envoy", Entries: 10},
	"crowdsec/fastly-logs.log":                {Format: "fastly", Entries: 4},
	"crowdsec/haproxy-logs.log":               {Format: "haproxy", Entries: 2, Malformed: 3},
	"crowdsec/http-bf-wordpress-bf.log":       {Format: "combined", Entries: 9},
	"crowdsec/http-dos-bypass-cache.log":      {Format: "combined", Entries: 356},
	"crowdsec/http-dos-random-uri.log":        {Format: "combined", Entries: 66},
	"crowdsec/iis-xml-logs.log":               {Refused: "XML or HTML"},
	"crowdsec/litespeed-admin-bf.log":         {Refused: "a server's error log"},
	"crowdsec/nginx-http-malformed.log":       {Format: "combined", Entries: 12},
	"crowdsec/nginx-proxy-manager-logs.log":   {Format: "nginx-proxy-manager", Entries: 12, Malformed: 2},
	"crowdsec/nginx_http-logs.log":            {Format: "combined", Entries: 8, Malformed: 1},
	"crowdsec/nginx_req_limit_exceeded.log":   {Refused: "a server's error log"},
	"crowdsec/traefik_base-http-scenario.log": {Format: "traefik", Entries: 80},
	"crowdsec/traefik_clf.log":                {Format: "combined", Entries: 7},
	"crowdsec/traefik_json.log":               {Format: "traefik", Entries: 6, Malformed: 1},
	"lnav/logfile_access_log.0":               {Format: "combined", Entries: 3},
	"lnav/logfile_access_log.1":               {Format: "combined", Entries: 1},
	"lnav/logfile_access_log_dupe.0":          {Format: "combined", Entries: 3},
	"lnav/logfile_bad_access_log.0":           {Format: "combined", Entries: 3},
	"lnav/logfile_caddy_log.0":                {Format: "caddy", Entries: 4, Malformed: 35},
	"lnav/logfile_caddy_log.1":                {Format: "caddy", Entries: 4},
	"lnav/logfile_cloudflare.1":               {Format: "cloudflare", Entries: 15},
	"lnav/logfile_cloudflare.json":            {Format: "cloudflare", Entries: 1},
	"lnav/logfile_haproxy.0":                  {Format: "haproxy", Entries: 13, Malformed: 4},
	"lnav/logfile_shop_access_log.0":          {Format: "combined", Entries: 1000},
	"lnav/logfile_syslog_with_access_log.0":   {Refused: "a system log (syslog)"},
	"lnav/logfile_w3c.0":                      {Format: "w3c", Entries: 1},
	"lnav/logfile_w3c.1":                      {Format: "w3c", Entries: 1},
	"lnav/logfile_w3c.2":                      {Refused: "an FTP server's log"},
	"lnav/logfile_w3c.3":                      {Format: "w3c", Entries: 3},
	"lnav/logfile_w3c.4":                      {Format: "w3c", Entries: 2},
	"lnav/logfile_w3c.5":                      {Refused: "a W3C log without the client's address or times"},
	"lnav/logfile_w3c.6":                      {Format: "w3c", Entries: 1},
	"lnav/logfile_w3c_big.0":                  {Format: "w3c", Entries: 210},
	"webreadr/app_stats.log":                  {Refused: "a Zeek log other than http.log"},
	"webreadr/combined_log.clf":               {Format: "combined", Entries: 12},
	"webreadr/conn.log":                       {Refused: "a Zeek log other than http.log"},
	"webreadr/dhcp.log":                       {Refused: "a Zeek log other than http.log"},
	"webreadr/dns.log":                        {Refused: "a Zeek log other than http.log"},
	"webreadr/files.log":                      {Refused: "a Zeek log other than http.log"},
	"webreadr/ftp.log":                        {Refused: "a Zeek log other than http.log"},
	"webreadr/http.log":                       {Format: "zeek", Entries: 91},
	"webreadr/iis.log":                        {Format: "w3c", Entries: 1},
	"webreadr/log.aws":                        {Format: "cloudfront", Entries: 2},
	"webreadr/log.clf":                        {Format: "clf", Entries: 2},
	"webreadr/log.squid":                      {Format: "squid", Entries: 121},
	"webreadr/s3.log":                         {Format: "s3", Entries: 6},
}

// traces are the outcomes of the traces. An independent program computed the sums.
var traces = map[string]outcome{
	"airisdata.tsv.gz":   {Format: "trace", Entries: 206860, Sum: "2ad9e341e7193cbd"},
	"bplogs.tsv.gz":      {Format: "trace", Entries: 496706, Sum: "c919ece91718cdaa"},
	"esnote_2017.tsv.gz": {Format: "trace", Entries: 102972, Sum: "62887c858ebfb780"},
	"srhegde.tsv.gz":     {Format: "trace", Entries: 105177, Sum: "47b8cbe40187cc3e"},
	"xzymo.tsv.gz":       {Format: "trace", Entries: 49994, Sum: "583ec7e90b594a9b"},
}

// outcomeOf returns the outcome of a file, read as arrivals and as entries.
func outcomeOf(t *testing.T, name string, workers int) outcome {
	t.Helper()
	l, err := accesslog.Open([]string{name}, nil, accesslog.Options{Workers: workers})
	if refused := new(accesslog.RefusedError); errors.As(err, &refused) {
		if refused.Hint() == "" {
			t.Errorf("error %v has no hint", err)
		}
		return outcome{Refused: refused.Guess}
	}
	if err != nil {
		t.Fatal(err)
	}
	arrivals, sum := int64(0), sha256.New()
	numbers := map[accesslog.Client]int64{} // by first appearance
	var line []byte
	if err := l.Arrivals(t.Context(), func(as []accesslog.Arrival) error {
		arrivals += int64(len(as))
		for _, a := range as {
			number, known := numbers[a.Client]
			if !known {
				number = int64(len(numbers))
				numbers[a.Client] = number
			}
			line = append(strconv.AppendInt(line[:0], a.Time/1e6, 10), '\t')
			line = append(strconv.AppendInt(line, number, 10), '\n')
			sum.Write(line)
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	entries := int64(0)
	if err := l.Entries(t.Context(), func(e *accesslog.Entry) error {
		entries++
		if e.Client == "" || e.Time == 0 {
			t.Errorf("an entry without client or time: %+v", *e)
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	s := l.Stats()
	if arrivals != s.Entries || entries != s.Entries {
		t.Errorf("%d arrivals and %d entries passed on, want %d", arrivals, entries, s.Entries)
	}
	o := outcome{Format: s.Files[0].Format, Entries: s.Entries, Malformed: s.Malformed}
	if o.Format == "trace" {
		o.Sum = fmt.Sprintf("%x", sum.Sum(nil))[:16]
	}
	return o
}

func TestSharedLogs(t *testing.T) {
	for _, test := range []struct {
		dir     string
		workers []int // of the files in turn
		want    map[string]outcome
	}{
		{"formats", []int{0}, samples},
		{"traces", []int{1, 2, 4}, traces},
	} {
		dir := trace.Shared(t, test.dir)
		got := map[string]outcome{}
		if err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() || d.Name() == "README.md" {
				return err
			}
			name, err := filepath.Rel(dir, path)
			got[filepath.ToSlash(name)] = outcomeOf(t, path, test.workers[len(got)%len(test.workers)])
			return err
		}); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(test.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", test.dir, diff)
		}
	}
}
