package translate_test

import (
	"fmt"
	"strings"

	"github.com/edgelimit/edge/rule/translate"
)

// nginx's limit becomes a rule, with the differences in comments.
func Example() {
	t, err := translate.Files("nginx", translate.File{Name: "nginx.conf", Text: []byte(`
http {
  limit_req_zone $binary_remote_addr zone=api:10m rate=10r/s;
  server {
    server_name example.com;
    location /api/ { limit_req zone=api burst=20 nodelay; }
  }
}
`)})
	if err != nil {
		fmt.Println(err)
		return
	}
	for line := range strings.Lines(string(t.Text())) {
		if !strings.HasPrefix(strings.TrimSpace(line), "#") { // comments say where the two differ
			fmt.Print(line)
		}
	}
	// Output:
	// rules:
	//   - id: api
	//     match:
	//       hosts: [example.com]
	//       paths: [/api/*]
	//       path_case: exact
	//       path_trailing_slash: exact
	//       path_parameters: exact
	//       path_reading: resolved
	//     characteristics: [ip]
	//     limits:
	//       - {threshold: 31, period: 1s}
	//       - {threshold: 621, period: 1m}
	//     response: {status: 503}
}
