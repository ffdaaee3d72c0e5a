package mix_test

import (
	"fmt"
	"os"

	"github.com/edgelimit/edge/load/mix"
)

const example = `
duration: 1h
components:
- name: visitors
  zipf: {clients: 1000, rate: 2/s, exponent: 1.1}
  diurnal: {depth: 0.5, peak: 20h}
- name: guesser
  guessing: {clients: 1, rate: 30/1m}
  addresses: [192.0.2.7/32]
`

func ExampleParse() {
	m, err := mix.Parse("example.yaml", []byte(example))
	if err != nil {
		fmt.Println(err)
		return
	}
	m.Requests = 4
	s := m.Source()
	for r := (mix.Request{}); s.Next(&r); {
		fmt.Println(r.Time-m.Start().UnixMicro(), m.Addr(r.Client), m.Components()[r.Component].Name, r.Method, r.Path, r.Status)
	}
	// Output:
	// 54833 10.0.1.99 visitors GET / 200
	// 222355 10.0.0.2 visitors GET / 200
	// 882403 10.0.0.95 visitors GET / 200
	// 931667 192.0.2.7 guesser POST /login 401
}

func ExampleWrite() {
	m, err := mix.Load("web", 0)
	if err != nil {
		fmt.Println(err)
		return
	}
	m.Requests = 3
	if _, err := mix.Write(os.Stdout, m, mix.Trace); err != nil {
		fmt.Println(err)
	}
	// Output:
	// 1767225600	10306
	// 1767225600	10305
	// 1767225600	10371
}
