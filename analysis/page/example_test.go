package page_test

import (
	"fmt"
	"os"

	"github.com/edgelimit/edge/analysis/page"
)

// A document can be written as text, HTML, Markdown or JSON.
func Example() {
	d := page.Document{
		Title: "Clients",
		Lead:  "Two clients sent 12,362 requests.",
		Sections: []page.Section{{Title: "Busiest", Blocks: []page.Block{page.Table{
			Columns: page.Columns("client", "requests"),
			Rows:    []page.Row{{Cells: []string{"192.0.2.1", page.Grouped(12345)}}, {Cells: []string{"192.0.2.7", "17"}}},
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
