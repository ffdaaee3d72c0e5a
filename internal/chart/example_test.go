package chart_test

import (
	"fmt"
	"os"

	"github.com/edgelimit/edge/internal/chart"
)

// A document can be written as text, HTML, Markdown or JSON.
func Example() {
	d := chart.Document{
		Title: "Clients",
		Lead:  "Two clients sent 12,362 requests.",
		Sections: []chart.Section{{Title: "Busiest", Blocks: []chart.Block{chart.Table{
			Columns: chart.Columns("client", "requests"),
			Rows:    []chart.Row{{Cells: []string{"192.0.2.1", chart.Grouped(12345)}}, {Cells: []string{"192.0.2.7", "17"}}},
		}}}},
	}
	if err := d.WriteText(os.Stdout); err != nil {
		fmt.Println(err)
	}
	// Output:
	// Two clients sent 12,362 requests.
	//
	// Busiest
	//
	//   client     requests
	//   192.0.2.1    12,345
	//   192.0.2.7        17
}
