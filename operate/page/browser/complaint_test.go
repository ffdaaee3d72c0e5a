package browser

import (
	"net/http"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/edgelimit/edge/operate"
)

// A customer complains about being refused by a PoP of three real nodes. On the page of one node the operator
// sees why the address is refused, and lifts the mitigation. Then all nodes let the customer pass.
func TestComplaint(t *testing.T) {
	started(t)
	p := start(t, "rules: [{id: everything, characteristics: [ip], limits: [{threshold: 5, period: 1h}], mitigation_timeout: 1h}]\n",
		"pop", "--nodes=3", "--listen=127.0.0.1:0")
	text := p.Wait(p.Stdout, `(?s)^.*Press Ctrl-C to stop`)[0]
	var nodes, admins []string
	for _, m := range regexp.MustCompile(`(?m)^ +node-\d +(http://\S+) .* page (http://\S+)/`).FindAllStringSubmatch(text, -1) {
		nodes, admins = append(nodes, m[1]), append(admins, m[2])
	}
	ask := func(url string) (status int, id string) {
		t.Helper()
		resp, err := http.Get(url)
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
		return resp.StatusCode, resp.Header.Get("Refusal-Id")
	}
	id := ""
	for i := 0; id == ""; i++ {
		if _, id = ask(nodes[i%3]); i == 1000 {
			t.Fatal("nothing is refused")
		}
	}

	b := open(t, 1440, "light")
	b.visit(admins[1] + "/#token=" + operate.LocalToken(strings.TrimPrefix(admins[1], "http://")))
	b.live()
	b.until("the client is in the list", rows+`[0] === '127.0.0.1'`)
	eval[any](b, `ask(`+quoted(id)+`)`)
	b.until("the reason is shown", `document.querySelector('#story article').textContent.includes('the limit is 5')`)
	b.click("#story [data-lift]")
	b.until("the dialog is open", `document.getElementById('lift').open && document.getElementById('lift-token').hidden`)
	b.set("reason", "a customer complains")
	b.submit("#lift form")
	b.until("it is lifted", `!document.getElementById('lift').open && `+rows+`.length === 0`)
	for _, node := range nodes {
		for end := time.Now().Add(patience); ; time.Sleep(50 * time.Millisecond) {
			status, _ := ask(node)
			if status == http.StatusOK {
				break
			}
			if time.Now().After(end) {
				t.Fatalf("%s answers %d after the lift", node, status)
			}
		}
	}
}
