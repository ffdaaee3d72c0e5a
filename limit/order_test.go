package limit_test

import (
	"cmp"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"pgregory.net/rapid"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/edgelimit/edge/async"
	"github.com/edgelimit/edge/counter"
	"github.com/edgelimit/edge/limit"
	"github.com/edgelimit/edge/limit/decision"
	"github.com/edgelimit/edge/mitigation"
	"github.com/edgelimit/edge/rule"
	rulefile "github.com/edgelimit/edge/rule/file"
)

// An outcome is everything that can be observed of a decision.
type outcome struct {
	Verdict  limit.Verdict
	Rule     string
	Deadline time.Time
	Counts   []string          // rules and keys
	Logged   []string          // keys in the decision log
	Acted    map[string]uint64 // requests on which each record has acted
	Requests string            // the labels of the series that grew
}

// plainly decides req by the rules in their order, as docs/rules.md and docs/decisions.md describe it.
func plainly(l *limit.Limiter, table *mitigation.Table, secret counter.Secret, sample func(counter.Key) bool, req rule.Request, now time.Time) (o outcome) {
	type found struct {
		r      *rule.Rule
		key    counter.Key
		record *mitigation.Record
	}
	set := l.Rules()
	req.Canonicalize(rule.ClientPrefix{})
	o.Acted = map[string]uint64{}
	switch {
	case set.Access(req.Addr) == rule.Denied:
		o.Verdict, o.Requests = limit.Denied, " denied"
		return o
	case set.Access(req.Addr) == rule.Allowed && req.Malformed:
		o.Verdict, o.Requests = limit.Malformed, " malformed"
		return o
	case set.Access(req.Addr) == rule.Allowed:
		o.Verdict, o.Requests = limit.Allowed, " allowed"
		return o
	}
	var all []found
	for _, base := range set.Match(&req, nil) {
		keys := base.Keys(nil, &req)
		for i := range keys.Len() {
			f := found{r: base.Override(keys.At(i)), key: secret.Tag(keys.At(i))}
			record, ok := table.Held(f.key, now)
			if ok && !record.Lifted && async.Acts(f.r, &record) && (f.r.Action != rule.Shed || l.Sheds(f.r, f.key, req.Client(), now)) {
				f.record = &record
				o.Acted[f.key.String()]++
			}
			all = append(all, f)
		}
	}
	active := slices.DeleteFunc(slices.Clone(all), func(f found) bool { return f.record == nil })
	narrowest := 1 << 30 // of the rules that refuse
	for _, f := range active {
		if f.r.Action != rule.Log {
			narrowest = min(narrowest, f.r.Width())
		}
	}
	if len(active) > 0 {
		best := slices.MinFunc(active, func(a, b found) int {
			return cmp.Or(cmp.Compare(b.r.Action, a.r.Action), b.record.Deadline.Compare(a.record.Deadline), cmp.Compare(a.r.Index, b.r.Index))
		})
		o.Verdict = map[rule.Action]limit.Verdict{
			rule.Log: limit.Logged, rule.Shed: limit.Shed, rule.ShadowBan: limit.ShadowBanned, rule.Block: limit.Blocked, rule.Close: limit.Closed,
		}[best.r.Action]
		o.Rule, o.Deadline = best.r.ID, best.record.Deadline
	}
	for _, f := range all {
		key := fmt.Sprint(f.r.ID, " ", f.key)
		var counts bool
		switch mitigated := f.record != nil; {
		case !o.Verdict.Refused():
			counts = !mitigated || f.r.CountsMitigated()
		case f.r.Action == rule.Shed:
			counts = f.r.Width() <= narrowest
		case mitigated:
			counts = f.r.CountWhileMitigated
		default:
			counts = f.r.CountRefused && f.r.Width() <= narrowest &&
				!slices.ContainsFunc(active, func(a found) bool { return a.r.Index == f.r.Index })
		}
		if counts {
			o.Counts = append(o.Counts, key)
		}
		if sample(f.key) {
			o.Logged = append(o.Logged, fmt.Sprint(key, " ", f.record != nil))
		}
	}
	if req.Malformed && !o.Verdict.Refused() {
		o.Verdict, o.Rule, o.Deadline, o.Counts = limit.Malformed, "", time.Time{}, nil
		narrowest = 0
	}
	o.Requests = o.Rule + " " + o.Verdict.String()
	if o.Verdict.Refused() && narrowest > 0 {
		o.Requests += " bystander"
	}
	return o
}

// metricsOf returns the series about requests.
func metricsOf(tb rapid.TB, reg *prometheus.Registry) map[string]float64 {
	families, err := reg.Gather()
	if err != nil {
		tb.Fatal(err)
	}
	values := map[string]float64{}
	for _, family := range families {
		for _, m := range family.Metric {
			label := map[string]string{}
			for _, l := range m.Label {
				label[l.GetName()] = l.GetValue()
			}
			switch family.GetName() {
			case "edge_requests_total":
				values[label["rule"]+" "+label["verdict"]] = m.GetCounter().GetValue()
			case "edge_bystander_requests_total":
				values[label["rule"]+" bystander"] = m.GetCounter().GetValue()
			}
		}
	}
	return values
}

// Parts of random rules, and paths of requests.
var (
	matches = []string{"", "", "match: {paths: [/login]}", "match: {paths: [/api/*], methods: [POST]}", "match: {hosts: [example.com]}",
		"match: {headers: {x-api-key: '~k'}}", "match: {cookies: {sid: [b, c]}}", "except: {headers: {x-api-key: l}}",
		"match: {hosts: [\"*.com\"], paths: [/login], path_parameters: exact}", "except: {paths: [/health]}", "match: {networks: [office]}", "match: {paths: [/login], path_reading: literal}"}
	keyed = []string{"[ip]", "[ip]", "[ip]", "[\"network:24/48\"]", "[\"label:provider\"]", "[host]", "[path]", "[ip, path]", "[\"header:x-api-key\"]",
		"[\"cookie:sid\"]", "[{first: [\"header:x-api-key\", ip]}]", "[{first: [\"label:provider\", ip]}]", "[ip, \"query:q\"]"}
	actions = []string{"block", "block", "log", "shadow_ban", "close", "shed"}
	paths   = []string{"/login", "/", "/x/../login", "//login", "/login;a", "/api/./x", `/api\x`, "/%6Cogin", "/health/../login", "/./health",
		strings.Repeat("/.", 200) + "/login", strings.Repeat("/.", 400), "/" + strings.Repeat("%61", 100)}
)

// Whatever is looked up first, decisions are those of a search through all rules in their order.
func TestDecisionsDoNotDependOnTheOrderOfLookups(t *testing.T) {
	refused, unusual := 0, 0
	defer func() {
		if !t.Failed() && (refused == 0 || unusual == 0) {
			t.Errorf("%d requests were refused and %d had unusual paths: the test covers too little", refused, unusual)
		}
	}()
	dir := t.TempDir()
	for name, text := range map[string]string{"providers.txt": "192.0.2.0/25 a\n", "plans.csv": "ip,1m\n192.0.2.1,1000\n"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		text := "networks: {office: [192.0.2.0/30]}\nlabels: {provider: {file: providers.txt}}\nallow: [192.0.2.200]\ndeny: [192.0.2.201]\nrules:\n"
		for i := range rapid.IntRange(1, 6).Draw(t, "rules") {
			characteristics, action := rapid.SampledFrom(keyed).Draw(t, "characteristics"), rapid.SampledFrom(actions).Draw(t, "action")
			if action == "shed" {
				characteristics = rapid.SampledFrom([]string{"[\"network:24/48\"]", "[\"network:16/32\"]", "[\"label:provider\"]"}).Draw(t, "shared")
			}
			text += fmt.Sprintf("- {id: r%d, characteristics: %s, limits: [{threshold: 5, period: 1m}], action: %s", i, characteristics, action)
			if part := rapid.SampledFrom(matches).Draw(t, "match"); part != "" {
				text += ", " + part
			}
			if action != "shed" && rapid.IntRange(0, 3).Draw(t, "counts") == 0 {
				text += ", count_while_mitigated: true"
			}
			if action != "shed" && rapid.IntRange(0, 3).Draw(t, "refused") == 0 {
				text += ", count_refused: true"
			}
			if characteristics == "[ip]" && rapid.Bool().Draw(t, "overrides") {
				text += ", overrides: plans.csv"
			}
			text += "}\n"
		}
		file := filepath.Join(dir, "rules.yaml")
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		set, err := rulefile.Load(file)
		if err != nil {
			t.Fatalf("%v\n%s", err, text)
		}
		secret, err := counter.NewSecret("a secret of the property")
		if err != nil {
			t.Fatal(err)
		}
		table, reg, now := mitigation.New(mitigation.Options{}), prometheus.NewRegistry(), time.Unix(1e9, 0)
		l, err := limit.New(limit.Options{Secret: secret, Rules: set, Table: table, Registerer: reg, Queue: 64}, nil)
		if err != nil {
			t.Fatal(err)
		}
		sample := func(counter.Key) bool { return false }
		if share := rapid.SampledFrom([]float64{0, 0.3, 1}).Draw(t, "share of the decision log"); share > 0 {
			log := decision.New(decision.Options{Secret: secret, Share: share})
			l.LogTo(log)
			sample = log.Samples
		}
		draw := func() (req rule.Request) {
			req.Addr = netip.AddrFrom4([4]byte{192, 0, 2, rapid.SampledFrom([]byte{1, 1, 2, 130, 200, 201}).Draw(t, "client")})
			req.Method = rapid.SampledFrom([]string{"GET", "POST"}).Draw(t, "method")
			req.Host = rapid.SampledFrom([]string{"example.com", "other.org"}).Draw(t, "host")
			req.Path = rapid.SampledFrom(paths).Draw(t, "path")
			req.Query = rapid.SampledFrom([]string{"", "q=a", "q=a&q=b"}).Draw(t, "query")
			req.Header = map[string][]string{"X-Api-Key": rapid.SampledFrom([][]string{nil, {"k"}, {"k", "l"}}).Draw(t, "API key"),
				"Cookie": rapid.SampledFrom([][]string{nil, {"sid=a; sid=b"}}).Draw(t, "cookie")}
			req.Malformed = rapid.IntRange(0, 9).Draw(t, "malformed") == 0
			return req
		}
		for range rapid.IntRange(0, 6).Draw(t, "records") {
			req := draw()
			req.Canonicalize(rule.ClientPrefix{})
			for _, r := range set.Rules() {
				keys := r.Keys(nil, &req)
				for i := range keys.Len() {
					if rapid.Bool().Draw(t, "mitigated") {
						continue
					}
					lifetime := time.Duration(rapid.IntRange(1, 3).Draw(t, "lifetime")) * time.Minute
					record := mitigation.Record{Key: secret.Tag(keys.At(i)), Start: now.UnixMicro(), Lifetime: lifetime, Deadline: now.Add(lifetime),
						ByHand: rapid.Bool().Draw(t, "by hand"), Lifted: rapid.IntRange(0, 5).Draw(t, "lifted") == 0}
					record.Why = exceeded
					if rapid.Bool().Draw(t, "few") {
						record.Why.Cur = 100 // exceeds the rule's threshold, not that of the override
					}
					table.Merge(record, now)
				}
			}
		}
		acted := map[string]uint64{}
		for range rapid.IntRange(1, 4).Draw(t, "requests") {
			req := draw()
			want := plainly(l, table, secret, sample, req, now)
			before := metricsOf(t, reg)
			look := req
			logged := l.Logged(&look, now)
			for key, n := range want.Acted {
				acted[key] += 2 * n
			}
			d := l.Decide(&req, now)
			got := outcome{Verdict: d.Verdict, Deadline: d.Deadline(), Acted: want.Acted}
			for _, k := range logged {
				got.Logged = append(got.Logged, fmt.Sprint(k.Rule.ID, " ", k.Key, " ", k.Mitigated))
			}
			if d.Rule != nil {
				got.Rule = d.Rule.ID
			}
			for r, key := range d.Counts {
				got.Counts = append(got.Counts, fmt.Sprint(r.ID, " ", key))
			}
			for name, v := range metricsOf(t, reg) {
				switch v - before[name] {
				case 0:
				case 1:
					if rest, ok := strings.CutSuffix(name, " bystander"); ok && rest == got.Rule {
						got.Requests += " bystander"
					} else {
						got.Requests = name + got.Requests
					}
				default:
					t.Fatalf("%s grew by %v", name, v-before[name])
				}
			}
			if diff := gocmp.Diff(want, got, cmpopts.EquateEmpty(), cmpopts.SortSlices(strings.Compare)); diff != "" {
				t.Fatalf("%s\nrequest %+v\n(-plain +fast):\n%s", text, req, diff)
			}
			if d.Verdict.Refused() {
				refused++
				if len(req.Path) > 9 {
					unusual++
				}
			}
			if !d.Verdict.Refused() {
				check := req
				check.Canonicalize(rule.ClientPrefix{})
				if check.Path != req.Path {
					t.Fatalf("the path of a request that passes is %q, want %q", req.Path, check.Path)
				}
			}
		}
		table.Expire(now.Add(time.Hour), func(r mitigation.Record) {
			if r.Acted != acted[r.Key.String()] {
				t.Fatalf("%s\na record has acted on %d requests, want %d", text, r.Acted, acted[r.Key.String()])
			}
		})
		if problems, err := testutil.GatherAndLint(reg); err != nil || len(problems) > 0 {
			t.Fatal(problems, err)
		}
	})
}
