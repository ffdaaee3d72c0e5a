package accesslog_test

import (
	"context"
	"fmt"
	"log"
	"strings"
	"time"

	"github.com/edgelimit/edge/analysis/accesslog"
)

func Example() {
	const text = `203.0.113.7 - - [02/Jan/2026:15:04:06 +0000] "GET /b HTTP/1.1" 200 512 "-" "curl/8.5.0"
2001:db8::17 - - [02/Jan/2026:16:04:05 +0100] "GET /a?b=c HTTP/1.1" 404 0 "-" "curl/8.5.0"
2026/01/02 15:04:07 [error] 31#31: *46 open() failed
`
	l, err := accesslog.Open([]string{"-"}, strings.NewReader(text), accesslog.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer l.Close()
	if err := l.Entries(context.Background(), func(e *accesslog.Entry) error {
		fmt.Println(time.UnixMicro(e.Time).UTC().Format(time.TimeOnly), e.Client, e.Method, e.Path, e.Status)
		return nil
	}); err != nil {
		log.Fatal(err)
	}
	s := l.Stats()
	fmt.Printf("%s: %d entries, %d malformed\n", s.Files[0].Format, s.Entries, s.Malformed)
	for _, sample := range s.Samples {
		fmt.Printf("%s:%d: %s\n", sample.File, sample.Line, sample.Reason)
	}
	// Output:
	// 15:04:05 2001:db8::17 GET /a 404
	// 15:04:06 203.0.113.7 GET /b 200
	// combined: 2 entries, 1 malformed
	// stdin:3: no time like [02/Jan/2006:15:04:05 -0700]
}
