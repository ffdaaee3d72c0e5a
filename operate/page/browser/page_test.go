package browser

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/chromedp/cdproto/accessibility"
	"github.com/chromedp/chromedp/kb"

	"github.com/edgelimit/edge/internal/harness"
)

// rows returns the clients in the list.
const rows = `[...document.querySelectorAll('#list tbody tr')].map(r => r.querySelector('button').textContent)`

// set types text into a field.
func (b *tab) set(id, text string) {
	b.t.Helper()
	eval[any](b, fmt.Sprintf(`{const e = document.getElementById(%q); e.value = %s; e.dispatchEvent(new Event('input', {bubbles: true})); null}`, id, quoted(text)))
}

func quoted(text string) string {
	b, _ := json.Marshal(text) // never fails for strings
	return string(b)
}

func (b *tab) click(selector string) {
	b.t.Helper()
	eval[any](b, fmt.Sprintf(`document.querySelector(%q).click()`, selector))
}

func (b *tab) submit(form string) {
	b.t.Helper()
	eval[any](b, fmt.Sprintf(`document.querySelector(%q).requestSubmit()`, form))
}

const total = `document.getElementById('total').textContent`

// Of 10,000 mitigations the page shows one page; the node searches, filters and pages.
func TestList(t *testing.T) {
	node := serve(t, newFake(10000, ""))
	b := open(t, 1440, "light")
	b.visit(node.URL)
	b.live()
	b.until("the list is there", total+` === '10,000 mitigations' && `+rows+`.length === 25`)
	b.set("search", "203.0.114.0/24")
	b.until("a network is found", rows+`.length > 0 && `+rows+`.every(c => c.startsWith('203.0.114.')) && location.search.includes('203.0.114')`)
	b.set("search", "203.0.113.9/99")
	b.until("an invalid network is reported", `document.querySelector('#list .problem')`)
	b.set("search", "203.0.113.9")
	b.until("an address is found", total+`.startsWith('1 mitigation ') && `+rows+`[0] === '203.0.113.9'`)
	b.set("search", "edge-2")
	b.until("a node is found", `[...document.querySelectorAll('#list [data-label="Started by"]')].every(c => c.textContent === 'edge-2') && `+rows+`.length === 25`)
	b.set("search", "")
	b.set("rule", "login")
	b.until("a rule is found", total+` === '2,000 mitigations of rule login'`)
	first := eval[string](b, rows+"[0]")
	b.click("#next")
	b.until("the next page is there", rows+`.length === 25 && `+rows+`[0] !== `+quoted(first))
	b.until("the way back is there", `!document.getElementById('first').hidden`)
	b.click("#first")
	b.until("the first page is back", rows+`[0] === `+quoted(first))
	b.set("state", "lifted")
	b.until("nothing was lifted", total+` === 'No mitigations of rule login'`)
	b.visit(node.URL + "/?rule=search&span=24h")
	b.until("the address bar is read", total+` === '2,000 mitigations of rule search' && document.querySelector('[value="24h"]').checked && document.querySelector('#traffic figure').textContent.includes('steps of 5m')`)
}

// Lifting asks for a token once, and keeps it only in the tab.
func TestLift(t *testing.T) {
	f := newFake(3, "")
	node := serve(t, f)
	b := open(t, 1440, "light")
	b.expect("401")
	b.visit(node.URL)
	b.live()
	b.click("#list tr:nth-child(2) [data-lift]")
	b.until("the dialog is open", `document.getElementById('lift').open`)
	if title := eval[string](b, `document.getElementById('lift-title').textContent`); title != "Lift 203.0.113.8, rule login?" {
		t.Errorf("the dialog says %q", title)
	}
	b.set("reason", "a customer complains")
	b.set("lift-secret", "not-the-token-that-it-has")
	b.submit("#lift form")
	b.until("the token is refused", `document.getElementById('lift-problem').textContent.includes('valid token')`)
	b.set("lift-secret", token)
	b.submit("#lift form")
	b.until("it is lifted", `!document.getElementById('lift').open && `+rows+`.length === 2 && document.getElementById('said').textContent.includes('Lifted')`)
	f.mu.Lock()
	if len(f.lifted) != 1 || f.lifted[0].Reason != "a customer complains" {
		t.Errorf("lifted %+v", f.lifted)
	}
	f.mu.Unlock()
	b.set("rule", "everything")
	b.until("the rule is found", rows+`.length === 1`)
	b.click("#lift-all")
	b.until("the token is known", `document.getElementById('lift').open && document.getElementById('lift-token').hidden`)
	b.submit("#lift form")
	b.until("they are counted first", `document.getElementById('lift-why').textContent.startsWith('This lifts 1 mitigation,')`)
	b.submit("#lift form")
	b.until("all are lifted", `!document.getElementById('lift').open && `+rows+`.length === 0`)
	if kept := eval[string](b, `document.cookie + JSON.stringify(localStorage) + location.href`); strings.Contains(kept, token) {
		t.Errorf("the token is kept in %s", kept)
	}
}

// Changes appear without a reload, and the focus stays.
func TestLive(t *testing.T) {
	f := newFake(3, "")
	node := serve(t, f)
	b := open(t, 1440, "light")
	b.visit(node.URL)
	b.live()
	b.until("the list is there", rows+`.length === 3`)
	eval[any](b, `{window.kept = document.querySelector('#list tr:nth-child(2) [data-lift]'); kept.focus(); null}`)
	before := eval[string](b, `document.querySelector('#list [data-end]').textContent`)
	b.until("the time left is counted down", `document.querySelector('#list [data-end]').textContent !== `+quoted(before))
	f.start(strings.Repeat("e", 32), "192.0.2.77")
	b.until("the new one is there", rows+`.length === 4 && `+rows+`[0] === '192.0.2.77'`)
	if !eval[bool](b, `document.activeElement === kept && kept.closest('tr').matches(':nth-child(3)')`) {
		t.Error("the button has lost the focus")
	}
}

// The page reconnects to a node that restarted, even if the node has lost its state.
func TestRestart(t *testing.T) {
	addr := harness.ReservePort(t)
	node := serveAt(t, newFake(3, ""), addr)
	b := open(t, 1440, "light")
	b.expect("net::ERR_")
	b.visit(node.URL)
	b.live()
	b.until("the list is there", rows+`.length === 3`)
	b.click("#list [data-ask]")
	b.until("the story is there", `document.querySelector('#story article')`)
	eval[any](b, `window.kept = true`)
	node.stop()
	b.until("the end is noticed", `document.getElementById('link').dataset.state === 'lost'`)
	serveAt(t, newFake(5, ""), addr)
	b.until("the node is back", `document.getElementById('link').dataset.state === 'live' && `+rows+`.length === 5 && window.kept && document.querySelector('#story article')`)
}

// Text from clients and rules files is never interpreted as anything but text.
func TestHostile(t *testing.T) {
	for name, text := range map[string]string{
		"elements":   `<img src=x onerror="window.hacked=1"><script>window.hacked=1</script><svg onload="window.hacked=1">`,
		"attributes": `" onmouseover="window.hacked=1" autofocus onfocus="window.hacked=1" x='`,
		"ends":       `</td></tr></table></div></option></datalist><iframe srcdoc="<script>parent.hacked=1</script>">`,
		"template":   "{{.}}${window.hacked=1}`\u202e\u0000\n\ndata: {}\n\n]]>--><!--",
		"long":       strings.Repeat("x", 300),
	} {
		t.Run(name, func(t *testing.T) {
			f := newFake(12, text)
			node := serve(t, f)
			b := open(t, 390, "dark")
			b.visit(node.URL + "/?ask=203.0.113.7")
			b.live()
			b.until("all is there", rows+`.length === 12 && document.querySelectorAll('#story article').length === 3`)
			visible := strings.Map(func(r rune) rune {
				if r == '\u202e' || r == 0 {
					return '\ufffd'
				}
				return r
			}, text)
			for _, place := range []string{"#node .name", "#node .problems", "#list tbody td", "#list [data-label=Rule]", "#story h3", "#story code", "#story .problem", "#rules tbody td", "#near tbody td", "#pop .states li"} {
				if !eval[bool](b, fmt.Sprintf(`document.querySelector(%q).textContent.replace(/\s+/g, ' ').includes(%s.replace(/\s+/g, ' '))`, place, quoted(visible))) {
					t.Errorf("%s does not show the text: %s", place, eval[string](b, fmt.Sprintf(`document.querySelector(%q).outerHTML`, place)))
				}
			}
			b.click("#list [data-lift]")
			b.until("the dialog is open", `document.getElementById('lift').open && document.getElementById('lift-title').textContent.length > 10`)
			for _, claim := range []string{
				`window.hacked === undefined`, `document.images.length === 0`, `document.scripts.length === 1`, `document.querySelector('iframe') === null`,
				`![...document.querySelectorAll('*')].some(e => [...e.attributes].some(a => a.name.startsWith('on') || a.name === 'style' || a.name === 'autofocus'))`,
				`document.documentElement.scrollWidth <= innerWidth`,
			} {
				if !eval[bool](b, claim) {
					t.Errorf("false: %s", claim)
				}
			}
			b.visit(node.URL + "/?ask=" + strings.NewReplacer("\n", "%0A", "\x00", "%00", "#", "%23", "&", "%26", "+", "%2B").Replace(text) + "&search=x" + strings.NewReplacer("\n", "", "\x00", "", "#", "", "&", "", "+", "").Replace(text))
			b.live()
			if !eval[bool](b, `window.hacked === undefined && document.images.length === 0`) {
				t.Error("text from the address bar was treated as more than text")
			}
		})
	}
}

// Everything works with the keyboard, and the focus is always visible.
func TestKeyboard(t *testing.T) {
	f := newFake(3, "")
	node := serve(t, f)
	b := open(t, 1440, "light")
	b.visit(node.URL + "/#token=" + token)
	b.live()
	b.until("the list is there", rows+`.length === 3`)
	b.press(kb.Tab)
	b.until("the first stop is the link to the mitigations", `document.activeElement.className === 'skip'`)
	b.press(kb.Enter)
	b.until("it leads there", `document.activeElement.id === 'mitigations' || location.hash === '#mitigations'`)
	reach := func(what, selector string) {
		t.Helper()
		for range 60 {
			b.press(kb.Tab)
			if !eval[bool](b, `document.activeElement.matches('body') || getComputedStyle(document.activeElement).outlineStyle !== 'none' || getComputedStyle(document.activeElement.parentElement).outlineStyle !== 'none'`) {
				t.Errorf("no outline shows that %s has the focus", eval[string](b, `document.activeElement.outerHTML`))
			}
			if eval[bool](b, fmt.Sprintf(`document.activeElement.matches(%q)`, selector)) {
				return
			}
		}
		t.Fatalf("pressing Tab 60 times does not reach %s", what)
	}
	reach("a client", "[data-ask]")
	b.press(kb.Enter)
	b.until("its story is told, and has the focus", `document.activeElement.id === 'story-title' && document.querySelector('#story article')`)
	reach("the lift", "#story [data-lift]")
	b.press(kb.Enter)
	b.until("the dialog has the focus", `document.getElementById('lift').open && document.getElementById('lift').contains(document.activeElement)`)
	b.press(kb.Escape)
	b.until("Escape closes it", `!document.getElementById('lift').open && document.activeElement.matches('#story [data-lift]')`)
	b.press(kb.Enter)
	b.until("the dialog is open again", `document.getElementById('lift').open`)
	b.press("by keys")
	b.press(kb.Enter)
	b.until("it is lifted", `!document.getElementById('lift').open && `+rows+`.length === 2`)
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.lifted) != 1 || f.lifted[0].Reason != "by keys" {
		t.Errorf("lifted %+v", f.lifted)
	}
}

// Text that is typed into a dialog just after it was closed and opened again stays: browsers report the closing later.
func TestDialogOpenedAgain(t *testing.T) {
	node := serve(t, newFake(3, ""))
	b := open(t, 1440, "light")
	b.visit(node.URL + "/?ask=203.0.113.7")
	b.live()
	b.until("the story is told", `document.querySelector('#story [data-lift]') !== null`)
	eval[any](b, `
		document.getElementById('lift').addEventListener('close', () => { window.toldOfClosing = true })
		document.querySelector('#story [data-lift]').click()
		document.getElementById('reason').value = 'the first one'
		document.getElementById('lift').close()
		document.querySelector('#story [data-lift]').click()
		if (document.getElementById('reason').value === '') document.getElementById('reason').value = 'the second one'`)
	b.until("the browser says that the first one was closed", `window.toldOfClosing`)
	if reason := eval[string](b, `document.getElementById('reason').value`); reason != "the second one" {
		t.Errorf("the reason is %q", reason)
	}
}

// A node that other machines can reach shows nothing without a token. A token in the URL is removed from it.
func TestToken(t *testing.T) {
	f := newFake(3, "")
	f.remote = true
	node := serve(t, f)
	b := open(t, 390, "light")
	b.expect("401")
	b.visit(node.URL)
	b.until("a token is asked for", `!document.getElementById('login').hidden && document.activeElement.id === 'token'`)
	if text := eval[string](b, `document.body.textContent`); strings.Contains(text, "edge-1") || strings.Contains(text, "203.0.113.8") {
		t.Errorf("without a token the page shows %s", text)
	}
	b.set("token", "a-wrong-one-for-this-node")
	b.submit("#login")
	b.until("a wrong one is refused", `document.getElementById('login-problem').textContent.includes('not accept')`)
	b.set("token", token)
	b.submit("#login")
	b.live()
	b.until("all is shown", `document.getElementById('login').hidden && `+rows+`.length === 3`)

	other := open(t, 1440, "dark")
	other.visit(node.URL + "/?rule=login#token=" + token)
	other.live()
	other.until("the rule is shown", rows+`.length === 1`)
	if at := eval[string](other, `location.href + document.cookie + JSON.stringify(localStorage)`); strings.Contains(at, "token") || !strings.Contains(at, "rule=login") {
		t.Errorf("the address bar says %s", at)
	}
}

// Every text is legible in both schemes, and every control has a name.
func TestReadable(t *testing.T) {
	contrast, err := os.ReadFile(filepath.Join("testdata", "contrast.js"))
	if err != nil {
		t.Fatal(err)
	}
	for _, scheme := range []string{"light", "dark"} {
		for _, width := range []int64{1440, 390} {
			t.Run(fmt.Sprint(scheme, width), func(t *testing.T) {
				f := newFake(8, " x")
				f.all[4].Ineffective, f.all[5].ByHand = true, true
				node := serve(t, f)
				b := open(t, width, scheme)
				check := func(where string) {
					t.Helper()
					found := eval[struct {
						Texts int
						Weak  []string
					}](b, string(contrast))
					if found.Texts < 3 || len(found.Weak) > 0 {
						t.Errorf("%s: of %d texts these have a contrast below 4.5: %q", where, found.Texts, found.Weak)
					}
					for _, n := range call(b, accessibility.GetFullAXTree, accessibility.GetFullAXTreeParams{}).Nodes {
						role, name := fmt.Sprint(n.Role), fmt.Sprint(n.Name)
						if n.Role != nil && !n.Ignored {
							role = string(n.Role.Value)
						}
						if n.Name != nil {
							name = string(n.Name.Value)
						}
						switch strings.Trim(role, `"`) {
						case "button", "textbox", "searchbox", "combobox", "radio", "link", "dialog", "table", "region":
							if strings.Trim(name, `"`) == "" {
								t.Errorf("%s: a %s has no name", where, role)
							}
						}
					}
				}
				b.visit(node.URL + "/?ask=203.0.113.7&all=1")
				b.live()
				b.until("all is there", rows+`.length === 8 && document.querySelector('#story article')`)
				check("the page")
				eval[any](b, `document.querySelectorAll('details').forEach(d => { d.open = true })`)
				check("the numbers")
				b.click("#list [data-lift]")
				b.until("the dialog is open", `document.getElementById('lift').open`)
				eval[any](b, `document.getElementById('lift-problem').textContent = 'Changes need a valid token.'; say('Lifted.')`)
				check("the dialog")
			})
		}
	}
}
