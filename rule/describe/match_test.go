package describe_test

import (
	"strings"
	"testing"

	"github.com/edgelimit/edge/rule/describe"
)

func TestDescribeConditions(t *testing.T) {
	set := parse(t, withKeys("match: {paths: ['/users/*/login', '*.php'], headers: {User-Agent: ['Curl*', '~^a'], authorization: absent}, query: {export: present}}",
		"except: [{cookies: {beta: '1'}}, {methods: [GET], headers: {x: absent}}]"))
	const want = "Requests for /users/*/login or *.php with the header user-agent like curl* or ~^a, without the header authorization and with the query parameter export, " +
		"except those with the cookie beta like 1 and GET requests without the header x, are counted for each client address"
	if got := describe.Counting(set.Rules()[0]); got != want {
		t.Errorf("Counting() = %q, want %q", got, want)
	}
}

func TestNotesAboutMatches(t *testing.T) {
	const chosen = "Clients choose their headers, cookies and parameters: those that do not send what match names, or send what except names, escape this rule."
	for _, test := range []struct {
		keys []string
		want []string
	}{
		{[]string{"match: {headers: {x: a, y: absent}}"}, []string{chosen}},
		{[]string{"except: {cookies: {x: a}}"}, []string{chosen}},
		{[]string{"except: {paths: ['/*']}"}, []string{"This rule never applies: all of its requests are excepted (those for /*)."}},
		{[]string{"except: {paths: ['/static/*']}"}, nil},
		{[]string{"match: {paths: [/a, /b]}", "except: {paths: [/a, /b, /c]}"}, []string{"This rule never applies: all of its requests are excepted (those for /a, /b or /c)."}},
		{[]string{"match: {paths: [/a, /b]}", "except: {paths: [/a]}"}, nil},
		{[]string{"match: {headers: {x: absent}}", "except: {headers: {x: absent}}"},
			[]string{"This rule never applies: all of its requests are excepted (those without the header x).", chosen}},
		{[]string{"match: {headers: {x: a}}", "except: {headers: {x: a}}"}, []string{chosen}},
		{[]string{"match: {headers: {cookie: absent}, cookies: {a: b}}"},
			[]string{"This rule never applies: no request without the header cookie comes with the cookie a like b.", chosen}},
		{[]string{"match: {headers: {cookie: absent}, cookies: {a: absent}}"}, []string{chosen}},
		{[]string{"match: {paths: [/api/v1, /api/v2/*]}", "except: {paths: ['/api/*']}"}, []string{"This rule never applies: all of its requests are excepted (those for /api/*)."}},
		{[]string{"match: {paths: ['/api*']}", "except: {paths: ['/api/*']}"}, nil},
		{[]string{"match: {paths: ['/a/b/c']}", "except: {paths: ['/a/*/c*', '*.js']}"},
			[]string{"The exception *.js also exempts paths such as /login/x.js, which some origins answer as /login: name a directory, such as /static/*."}},
		{[]string{"except: [{headers: {x: present}}, {headers: {x: absent}}]"},
			[]string{"This rule never applies: all of its requests are excepted (those with the header x, and all others).", chosen}},
		{[]string{"except: [{headers: {x: present}}, {headers: {x: absent}, paths: [/a]}, {headers: {y: absent}}]"}, []string{chosen}},
		{[]string{"except: {paths: ['*.min.js']}"},
			[]string{"The exception *.min.js also exempts paths such as /login/x.min.js, which some origins answer as /login: name a directory, such as /static/*."}},
		{[]string{"match: {headers: {x: ['^a', '~^a', 'a.b*']}}"},
			[]string{chosen, "The pattern ^a of the header x is text in which only * is special: begin it with ~ if it is an expression.",
				"Expressions (~) take about 60 ns of CPU time for each byte, patterns with * 1 ns. If those of all rules read more than 4096 bytes of long values in a request, match applies, and an exception does not."}},
	} {
		set := parse(t, withKeys(test.keys...))
		if got, want := strings.Join(describe.Notes(set, set.Rules()[0]), "\n"), strings.Join(test.want, "\n"); got != want {
			t.Errorf("notes of %s:\n%s\nwant:\n%s", test.keys, got, want)
		}
	}
	set := parse(t, "rules: [{id: a, match: {headers: {x: absent}}, characteristics: [{header: x, missing: skip}], limits: [{threshold: 5, period: 1m}]}]")
	const want = "This rule never applies: it skips requests without the header x, and matches no others."
	if notes := describe.Notes(set, set.Rules()[0]); notes[0] != want {
		t.Errorf("the first note is %q, want %q", notes[0], want)
	}
}

// A rule with conditions does not limit clients that make up values under other rules.
func TestConditionsBoundNothing(t *testing.T) {
	set := parse(t, withCharacteristics("[cookie:a]")+"- {id: b, match: {headers: {x: a}}, characteristics: [ip], limits: [{threshold: 5, period: 1m}]}\n")
	if notes := strings.Join(describe.Notes(set, set.Rules()[0]), "\n"); !strings.Contains(notes, "no other rule limits it") {
		t.Errorf("rule b limits requests without the header x, as the notes say:\n%s", notes)
	}
}

// A rule limits another one's clients if it matches all of their requests, by a wildcard or by the same networks.
func TestWiderRulesBound(t *testing.T) {
	for match, bounds := range map[string]bool{"hosts: ['*.example.com']": true, "hosts: [b.example.com]": false, "paths: ['/a/*']": true,
		"paths: ['/b/*']": false, "paths: ['/a/*'], path_case: exact": false, "path_case: exact": true, "networks: [x]": true, "networks: [y]": false, "headers: {x: present}": true, "headers: {x: a}": false} {
		set := parse(t, "networks: {x: [192.0.2.0/24], y: [198.51.100.0/24]}\nrules:\n"+
			"- {id: a, match: {hosts: [a.example.com], paths: [/a/b], networks: [x], headers: {x: a}}, characteristics: [cookie:a], limits: [{threshold: 5, period: 1m}]}\n"+
			"- {id: b, match: {"+match+"}, characteristics: [ip], limits: [{threshold: 5, period: 1m}]}\n")
		notes := strings.Join(describe.Notes(set, set.Rules()[0]), "\n")
		if got := strings.Contains(notes, "rule b, by client address, limits it"); got != bounds {
			t.Errorf("match %s: the notes say that the rule limits another one: %t, want %t", match, got, bounds)
		}
	}
}

// A host that an exception with a wildcard covers is never counted.
func TestNotesAboutExceptedHosts(t *testing.T) {
	for except, never := range map[string]bool{"*.example.com": true, "a.example.com": true, "*.a.example.com": false, "example.com": false} {
		set := parse(t, withKeys("match: {hosts: [a.example.com]}", "except: {hosts: ['"+except+"']}"))
		notes := strings.Join(describe.Notes(set, set.Rules()[0]), "\n")
		if got := strings.Contains(notes, "This rule never applies: all of its requests are excepted (those to "+except); got != never {
			t.Errorf("except %s: the notes say that the rule never applies: %t, want %t", except, got, never)
		}
	}
}
