package operate

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"mime"
	"net/http"
	"net/http/pprof"
	"net/netip"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/edgelimit/edge/internal/lograte"
	"github.com/edgelimit/edge/internal/prose"
	"github.com/edgelimit/edge/pop/shards"
)

// Options configures an API. Operations and Tokens are required; the zero value of every other field is usable.
type Options struct {
	Operations Operations

	// Tokens are the tokens of operators. Every operation that changes something needs one of them.
	Tokens *Tokens

	// Host is the configured name or address of the listener. Requests may name it, an IP address or localhost as their
	// host. Any other host indicates DNS rebinding by a web page.
	Host string

	// Open says that reads need no token, because the listener is on the loopback interface.
	Open bool

	// Page serves / and /page/ without a token, because browsers have none when they open it. So it must not reveal
	// anything about the node.
	Page http.Handler

	// Events serves /api/v1/events for as long as the client listens. It is authorized like reads.
	Events http.Handler

	// PProf enables /debug/pprof/, which is authorized like reads.
	PProf bool

	Logger     *slog.Logger          // if nil, slog.Default()
	Registerer prometheus.Registerer // for the metrics; if nil, they are not registered
}

const (
	// maxRequests is the maximum number of concurrent requests with a token, and of those without one, which therefore
	// cannot shut out operators. Further requests wait for at most busyPause.
	maxRequests = 8
	busyPause   = time.Second

	// paceInterval is the interval at which the API answers requests without a token, after a burst of paceBurst, so that
	// a flood of them leaves the processor to clients. Further requests wait for at most busyPause.
	paceInterval = 5 * time.Millisecond
	paceBurst    = 200

	// maxStreams is the maximum number of concurrent streams of events and profiles, with a token and without.
	maxStreams = 32

	// maxBody is the maximum size of a request's body, in bytes.
	maxBody = 64 << 10

	// answerTime is the maximum time for an answer other than a stream.
	answerTime = 30 * time.Second
)

// An API is an http.Handler that serves the requests of operators.
type API struct {
	o             Options
	named, others pool // for requests with a token, and for those without
	refused       *prometheus.CounterVec

	denied lograte.Limiter

	mu   sync.Mutex // guards the following
	next time.Time  // when the next request without a token may be answered
}

// A pool has a slot for each concurrent request.
type pool struct{ requests, streams chan struct{} }

func newPool() pool { return pool{make(chan struct{}, maxRequests), make(chan struct{}, maxStreams)} }

// NewAPI returns an API.
func NewAPI(o Options) *API {
	o.Logger = cmp.Or(o.Logger, slog.Default())
	a := &API{o: o, named: newPool(), others: newPool()}
	a.refused = promauto.With(o.Registerer).NewCounterVec(prometheus.CounterOpts{
		Name: "edge_admin_requests_refused_total",
		Help: "Requests that the admin listener refused, by cause: no valid token, another host's name, another site's page, too many at the same time.",
	}, []string{"cause"})
	for _, cause := range []string{"token", "host", "site", "busy"} {
		a.refused.WithLabelValues(cause)
	}
	return a
}

// Server returns a server for a, with tight limits on time and size.
func (a *API) Server() *http.Server {
	return &http.Server{
		Handler:                      a,
		ReadTimeout:                  10 * time.Second,
		IdleTimeout:                  time.Minute,
		MaxHeaderBytes:               16 << 10,
		DisableGeneralOptionsHandler: true,
		ErrorLog:                     slog.NewLogLogger(a.o.Logger.Handler(), slog.LevelDebug),
	}
}

// ServeHTTP serves a request of an operator.
func (a *API) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Cache-Control", "no-store")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	page := a.o.Page != nil && (r.URL.Path == "/" || strings.HasPrefix(r.URL.Path, "/page/"))
	switch {
	case !a.isHost(r.Host):
		a.refuse(w, "host", http.StatusForbidden, "invalid Host: use an IP address, localhost or the host of admin-listen")
		return
	case !fromSite(r) && !(page && r.Header.Get("Sec-Fetch-Mode") == "navigate"):
		a.refuse(w, "site", http.StatusForbidden, "cross-site requests are refused")
		return
	}
	by, valid := a.caller(r)
	own := &a.named
	if by == "" {
		own = &a.others
	}
	if by == "" && !a.pace(r) {
		h.Set("Retry-After", "1")
		a.refuse(w, "busy", http.StatusServiceUnavailable, "too many requests without a token")
		return
	}
	if !valid || by == "" && !a.o.Open && !page {
		a.deny(w, r)
		return
	}
	stream, profiles := r.URL.Path == eventsPath && a.o.Events != nil, strings.HasPrefix(r.URL.Path, "/debug/pprof/") && a.o.PProf
	if stream && r.Method != http.MethodGet {
		h.Set("Allow", http.MethodGet)
		answer(w, http.StatusMethodNotAllowed, failure{"method not allowed: use GET"})
		return
	}
	slots, pause, kind := own.requests, busyPause, "requests"
	endless := stream || profiles
	if endless {
		slots, pause, kind = own.streams, 0, "streams"
	}
	if !take(r, slots, pause) {
		h.Set("Retry-After", "1")
		a.refuse(w, "busy", http.StatusServiceUnavailable, "too many concurrent "+kind)
		return
	}
	defer func() { <-slots }()
	if !endless {
		_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(answerTime)) // not in tests
	}
	switch {
	case profiles:
		profile(w, r)
	case stream:
		a.o.Events.ServeHTTP(&revocableWriter{w, func() bool { _, valid := a.caller(r); return valid }}, r)
	case page:
		a.o.Page.ServeHTTP(w, r)
	default:
		a.operate(w, r, by)
	}
}

// pace waits until a request without a token may be answered. If that would take longer than busyPause, it waits for
// busyPause and returns false. It also returns false if the client is gone.
func (a *API) pace(r *http.Request) bool {
	a.mu.Lock()
	now := time.Now()
	if earliest := now.Add(-paceBurst * paceInterval); a.next.Before(earliest) {
		a.next = earliest
	}
	wait := a.next.Sub(now)
	soon := wait <= busyPause
	if soon {
		a.next = a.next.Add(paceInterval)
	}
	a.mu.Unlock()
	if wait <= 0 {
		return true
	}
	ctx, cancel := context.WithTimeout(r.Context(), min(wait, busyPause))
	defer cancel()
	<-ctx.Done()
	return soon && r.Context().Err() == nil
}

// take takes a slot, waiting for at most pause, and reports whether it got one.
func take(r *http.Request, slots chan struct{}, pause time.Duration) bool {
	select {
	case slots <- struct{}{}:
		return true
	default:
	}
	ctx, cancel := context.WithTimeout(r.Context(), pause)
	defer cancel()
	select {
	case slots <- struct{}{}:
		return true
	case <-ctx.Done():
		return false
	}
}

// isHost reports whether a request may use host.
func (a *API) isHost(host string) bool {
	isAddr := func(text string) bool { _, err := netip.ParseAddr(text); return err == nil }
	if isAddr(host) {
		return true // even an IPv6 address without brackets
	}
	host = (&url.URL{Host: host}).Hostname()
	return isAddr(host) || strings.EqualFold(host, "localhost") || host != "" && strings.EqualFold(host, a.o.Host)
}

// fromSite reports whether a request comes from a page of this listener, or from no web page at all. Browsers send the
// origin of the page.
func fromSite(r *http.Request) bool {
	if site := r.Header.Get("Sec-Fetch-Site"); site != "" && site != "same-origin" && site != "none" {
		return false
	}
	origin := r.Header.Get("Origin")
	if origin == "" {
		return true
	}
	u, err := url.Parse(origin)
	return err == nil && u.Host == r.Host
}

// A revocableWriter writes a response that ends when the token of its request is revoked.
type revocableWriter struct {
	http.ResponseWriter
	valid func() bool
}

func (w *revocableWriter) Write(b []byte) (int, error) {
	if !w.valid() {
		return 0, errors.New("the token is no longer valid")
	}
	return w.ResponseWriter.Write(b)
}

// Unwrap supports http.ResponseController.
func (w *revocableWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// caller returns the name of the request's token, or "" without a known token. valid is false if the request has a token
// that is not valid.
func (a *API) caller(r *http.Request) (name string, valid bool) {
	given := r.Header.Values("Authorization")
	if len(given) == 0 {
		return "", true
	}
	scheme, text, _ := strings.Cut(given[0], " ")
	name = a.o.Tokens.name(strings.TrimSpace(text))
	return name, name != "" && len(given) == 1 && strings.EqualFold(scheme, "Bearer")
}

// deny refuses a request without a valid token.
func (a *API) deny(w http.ResponseWriter, r *http.Request) {
	a.denied.Log(a.o.Logger, slog.LevelWarn, time.Now(), "admin request without a valid token", "from", r.RemoteAddr, "method", r.Method)
	w.Header().Set("WWW-Authenticate", "Bearer")
	a.refuse(w, "token", http.StatusUnauthorized, "missing or invalid token: send Authorization: Bearer TOKEN")
}

func (a *API) refuse(w http.ResponseWriter, cause string, status int, text string) {
	a.refused.WithLabelValues(cause).Inc()
	answer(w, status, failure{text})
}

// operate serves an operation. by is the name of the caller's token.
func (a *API) operate(w http.ResponseWriter, r *http.Request, by string) {
	op, key, methods := find(r.Method, r.URL.Path)
	switch {
	case op == nil && len(methods) == 0:
		answer(w, http.StatusNotFound, failure{"not found: see /api/v1/openapi.json"})
		return
	case op == nil:
		w.Header().Set("Allow", strings.Join(methods, ", "))
		answer(w, http.StatusMethodNotAllowed, failure{"method not allowed: use " + strings.Join(methods, ", ")})
		return
	case op.change && by == "":
		a.deny(w, r)
		return
	}
	values, err := read(w, r)
	if key != "" {
		values.Set("key", key)
	}
	var result any
	if err == nil {
		result, err = op.serve(a.o.Operations, values)
	}
	if op.change {
		a.audit(r, by, op, values, result, err)
	}
	switch {
	case errors.As(err, new(Unknown)), errors.Is(err, shards.ErrUnknown):
		answer(w, http.StatusNotFound, failure{message(err)})
	case err != nil:
		answer(w, http.StatusBadRequest, failure{message(err)})
	default:
		answer(w, http.StatusOK, result)
	}
}

// read returns the parameters of a request from its query and form.
func read(w http.ResponseWriter, r *http.Request) (url.Values, error) {
	r.Body = http.MaxBytesReader(w, r.Body, maxBody)
	kind, _, _ := mime.ParseMediaType(r.Header.Get("Content-Type"))
	if r.Method == http.MethodPost && r.ContentLength != 0 && kind != "application/x-www-form-urlencoded" {
		return url.Values{}, Invalid("the body must be a form, application/x-www-form-urlencoded; parameters may also be in the query")
	}
	if err := r.ParseForm(); err != nil {
		return url.Values{}, Invalid("the parameters cannot be read: " + err.Error())
	}
	return r.Form, nil
}

// audit notes a change or an attempted change. It identifies clients by their keys, because addresses are personal
// data; only a selection by network contains one.
func (a *API) audit(r *http.Request, by string, op *route, values url.Values, result any, err error) {
	about, known := result.(interface{ audit() []any })
	known = known && err == nil
	var attrs []any
	for _, name := range []string{"rule", "key", "client", "shard", "dry_run", "duration"} {
		if values.Has(name) && !(known && name == "key") {
			attrs = append(attrs, name, values.Get(name))
		}
	}
	if known {
		attrs = append(attrs, about.audit()...)
	}
	a.o.Operations.Note(Change{By: by, From: r.RemoteAddr, Do: op.name(), Reason: values.Get("reason")}, err, attrs...)
}

func message(err error) string {
	if errors.As(err, new(Invalid)) {
		return err.Error() // not shortened: it may begin with a parameter whose name looks like a package
	}
	return prose.Message(err)
}

// A failure is the answer to a request that fails.
type failure struct {
	Error string `json:"error" doc:"what is wrong, and what to do"`
}

func answer(w http.ResponseWriter, status int, value any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	_ = e.Encode(value) // an error means that the client is gone
}

// profile serves a profile of the process. The default ServeMux would do so, but may have handlers of other packages.
func profile(w http.ResponseWriter, r *http.Request) {
	serve := map[string]http.HandlerFunc{"cmdline": pprof.Cmdline, "profile": pprof.Profile, "symbol": pprof.Symbol, "trace": pprof.Trace}
	if handler := serve[strings.TrimPrefix(r.URL.Path, "/debug/pprof/")]; handler != nil {
		handler(w, r)
		return
	}
	pprof.Index(w, r)
}
