package browser

import (
	"bytes"
	"context"
	"fmt"
	"image/png"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"

	"github.com/edgelimit/edge/internal/harness"
)

// patience is how long a test waits before it fails. No test depends on its length.
const patience = 5 * time.Minute

var browser struct {
	once   sync.Once
	ctx    context.Context
	cancel context.CancelFunc
	err    error
}

// TestMain ends the browser, which all tests share.
func TestMain(m *testing.M) {
	code := m.Run()
	if browser.cancel != nil {
		browser.cancel()
	}
	os.Exit(code)
}

// started returns the context of a real browser.
func started(t testing.TB) context.Context {
	t.Helper()
	path, err := exec.LookPath("chromium")
	if err != nil {
		harness.Unavailable(t, "chromium is not installed")
	}
	browser.once.Do(func() {
		options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath(path), chromedp.NoSandbox, chromedp.Flag("disable-dev-shm-usage", true), chromedp.WSURLReadTimeout(patience))
		var stop context.CancelFunc
		browser.ctx, stop = chromedp.NewExecAllocator(context.Background(), options...)
		browser.ctx, browser.cancel = chromedp.NewContext(browser.ctx)
		if browser.err = chromedp.Do(browser.ctx); browser.err != nil {
			stop()
		}
	})
	if browser.err != nil {
		t.Fatal(browser.err)
	}
	return browser.ctx
}

// A tab is a tab of a real browser. Requests to other hosts and messages on the console fail the test.
type tab struct {
	context.Context
	t testing.TB

	mu       sync.Mutex
	expected []string // substrings of expected console messages
}

// open opens a tab with the width of a screen or a phone, and a color scheme.
func open(t testing.TB, width int64, scheme string) *tab {
	t.Helper()
	ctx, cancel := chromedp.NewContext(started(t))
	t.Cleanup(cancel)
	b := &tab{Context: ctx, t: t}
	if err := chromedp.Listen(ctx, func(event any) {
		switch e := event.(type) {
		case *network.EventRequestWillBeSent:
			if !strings.HasPrefix(strings.TrimPrefix(e.Request.URL, "blob:"), "http://127.0.0.1:") {
				t.Errorf("the page asked for %s", e.Request.URL)
			}
		case *log.EventEntryAdded:
			b.complain(e.Entry.Text + " " + e.Entry.URL)
		case *runtime.EventExceptionThrown:
			b.complain(fmt.Sprintf("%+v", e.ExceptionDetails))
		case *runtime.EventConsoleAPICalled:
			b.complain(fmt.Sprint("console: ", e.Type))
		}
	}); err != nil {
		t.Fatal(err)
	}
	call(b, network.Enable, network.EnableParams{})
	call(b, log.Enable, cdp.Empty{})
	b.resize(width, scheme)
	call(b, emulation.SetFocusEmulationEnabled, emulation.SetFocusEmulationEnabledParams{Enabled: true})
	return b
}

// resize gives the tab another width and color scheme.
func (b *tab) resize(width int64, scheme string) {
	b.t.Helper()
	height := int64(900)
	if width < 700 {
		height = 844
	}
	call(b, emulation.SetDeviceMetricsOverride, emulation.SetDeviceMetricsOverrideParams{Width: width, Height: height, DeviceScaleFactor: 1, Mobile: width < 700})
	call(b, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}}})
}

func (b *tab) complain(text string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, part := range b.expected {
		if strings.Contains(text, part) {
			return
		}
	}
	b.t.Errorf("the console says: %s", text)
}

// expect allows console messages that contain part.
func (b *tab) expect(part string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.expected = append(b.expected, part)
}

func call[P, R any](b *tab, command cdp.Command[P, R], params P) R {
	b.t.Helper()
	result, err := chromedp.Call(b, command, params)
	if err != nil {
		b.t.Fatal(err)
	}
	return result
}

// visit shows a page.
func (b *tab) visit(url string) {
	b.t.Helper()
	call(b, page.Navigate, page.NavigateParams{URL: url})
}

// eval returns the value of an expression.
func eval[T any](b *tab, expression string) T {
	b.t.Helper()
	value, err := chromedp.Run(b, chromedp.Evaluate[T](expression))
	if err != nil {
		b.t.Fatalf("%s: %v", expression, err)
	}
	return value
}

// until waits until an expression is true, even while another page is loaded.
func (b *tab) until(what, expression string) {
	b.t.Helper()
	for end := time.Now().Add(patience); ; time.Sleep(50 * time.Millisecond) {
		if is, err := chromedp.Run(b, chromedp.Evaluate[bool]("!!("+expression+")")); err == nil && is {
			return
		} else if time.Now().After(end) {
			b.t.Fatalf("%s: not yet, %v; the page has %q", what, err, eval[string](b, "document.body.innerText"))
		}
	}
}

// press presses a key, such as Tab or Enter, or types a text.
func (b *tab) press(keys string) {
	b.t.Helper()
	if err := chromedp.Do(b, chromedp.KeyEvent(keys)); err != nil {
		b.t.Fatal(err)
	}
}

// live waits until the page shows the node's data.
func (b *tab) live() {
	b.t.Helper()
	b.until("the page is live", `document.getElementById('link').dataset.state === 'live' && document.querySelector('#list p') !== null`)
}

// Nothing is wider than the screen, on the page, in a client's story and in the dialog, with few and with many
// mitigations. EDGE_SCREENSHOTS may name a directory for screenshots.
func TestLayout(t *testing.T) {
	dir := os.Getenv("EDGE_SCREENSHOTS")
	if dir == "" {
		dir = t.TempDir()
	}
	for _, n := range []int{0, 3, 10000} {
		node := serve(t, newFake(n, ""))
		for _, width := range []int64{1440, 390} {
			for _, scheme := range []string{"light", "dark"} {
				b := open(t, width, scheme)
				b.visit(node.URL)
				b.live()
				look := func(name string) {
					if wide := eval[int64](b, `document.documentElement.scrollWidth`); wide > width {
						t.Errorf("%d mitigations%s: %d pixels wide on a screen of %d", n, name, wide, width)
					}
					picture, err := chromedp.Run(b, chromedp.FullScreenshot(100))
					if err != nil {
						t.Fatal(err)
					}
					if shown, err := png.DecodeConfig(bytes.NewReader(picture)); err != nil || int64(shown.Width) != width {
						t.Errorf("%d mitigations%s: a picture of %d pixels, %v; want %d", n, name, shown.Width, err, width)
					}
					if err := os.WriteFile(filepath.Join(dir, fmt.Sprintf("%d-%d-%s%s.png", n, width, scheme, name)), picture, 0o644); err != nil {
						t.Fatal(err)
					}
				}
				look("")
				if n == 3 {
					eval[any](b, `ask('203.0.113.7')`)
					b.until("the story is told", `document.querySelector('#story article') !== null`)
					look("-story")
					eval[any](b, `document.querySelector('[data-lift]').click()`)
					b.until("the dialog is open", `document.getElementById('lift').open`)
					look("-lift")
				}
			}
		}
	}
}
