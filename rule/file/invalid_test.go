package file_test

import (
	"fmt"
	"strings"
)

// withKeys returns a file with a rule that has more keys, one per line.
func withKeys(lines ...string) string {
	return "rules:\n- id: a\n  characteristics: [ip]\n  limits: [{threshold: 5, period: 1m}]\n  " + strings.Join(lines, "\n  ") + "\n"
}

// withID, withLimits and withCharacteristics return a file with a rule that has the given value.
func withID(id string) string {
	return "rules:\n- id: " + id + "\n  characteristics: [ip]\n  limits: [{threshold: 5, period: 1m}]\n"
}

func withLimits(limits string) string {
	return "rules:\n- id: a\n  characteristics: [ip]\n  limits: " + limits + "\n"
}

func withCharacteristics(characteristics string) string {
	return "rules:\n- id: a\n  characteristics: " + characteristics + "\n  limits: [{threshold: 5, period: 1m}]\n"
}

// numbered returns a list of n elements, which differ in their number.
func numbered(format string, n int) string {
	var list []string
	for i := range n {
		list = append(list, fmt.Sprintf(format, i))
	}
	return strings.Join(list, ", ")
}

// Reasons why the schema accepts what the parser refuses.
const (
	noDocument = "there is no document that a schema could look at"
	spelling   = "a schema sees a number, not how it is spelled"
	duplicate  = "a schema sees one of two equal keys"
	tagged     = "a schema sees no tags"
	unique     = "a schema cannot compare parts of values, or values after they are made canonical"
	shape      = "a pattern that tells them apart would be unreadable"
	size       = "a schema counts characters, not bytes"
)

// invalid are files that the parser refuses, with all of its errors. Those that have a
// reason in onlyParser pass the schema.
var invalid = []struct {
	name, text string
	onlyParser string
	want       string
}{
	// Not YAML, or not one document.
	{"empty file", "", noDocument, `r.yaml: the file is empty (write "rules: []" to have no rules)`},
	{"only a comment", "# nothing\n", noDocument, `r.yaml: the file is empty (write "rules: []" to have no rules)`},
	{"only null", "~\n", "", `r.yaml: the file is empty (write "rules: []" to have no rules)`},
	{"second document", "rules: []\n---\nrules: []\n", noDocument, "r.yaml:2:1: a second document begins here (write one document into each file)"},
	{"second document that is broken", "rules: []\n---\nallow: [1.2.3.4\n", noDocument, "r.yaml:3:16: not YAML: while parsing a flow sequence at 3:8: did not find expected ',' or ']' (check quotes, brackets and indentation)"},
	{"bracket not closed", "allow: [192.0.2.1\ndeny: []\n", noDocument, "r.yaml:2:5: not YAML: while parsing a flow sequence at 1:8: did not find expected ',' or ']' (check quotes, brackets and indentation)"},
	{"bracket not closed at the end of the file", "allow: [192.0.2.1, \n\n", noDocument, "r.yaml:1:19: not YAML: while parsing a flow node at 3:1: did not find expected node content (check quotes, brackets and indentation)"},
	{"bracket in place of a value", "allow: ]\n", noDocument, "r.yaml:1:8: not YAML: while parsing a block node at 1:8: did not find expected node content (check quotes, brackets and indentation)"},
	{"quote not closed", "allow:\n- \"192.0.2.1\n- 192.0.2.2\n", noDocument, "r.yaml:3:12: not YAML: while scanning a quoted scalar at 2:3: found unexpected end of stream (check quotes, brackets and indentation)"},
	{"tab indents a key", "rules:\n- id: a\n\tcharacteristics: [ip]\n", noDocument, "r.yaml:3:1: not YAML: while scanning a plain scalar at 2:7: found a tab character that violates indentation (indent with spaces instead of tabs)"},
	{"tab indents a list", "rules:\n\t- id: a\n", noDocument, "r.yaml:2:1: not YAML: while scanning for the next token at 2:1: found character that cannot start any token (indent with spaces instead of tabs)"},
	{"key too far left", "rules:\n  - id: a\n characteristics: [ip]\n", noDocument, "r.yaml:3:2: not YAML: while parsing a block mapping at 1:1: did not find expected key (check quotes, brackets and indentation)"},
	{"two colons on a line", withKeys("action: block: 429"), noDocument, "r.yaml:5:16: not YAML: mapping values are not allowed in this context (check quotes, brackets and indentation)"},
	{"wildcard host without quotes", withKeys("match: {hosts: [*.example.com]}"), noDocument, "r.yaml:5:19: not YAML: unknown anchor '.example.com' referenced (put a value that begins with * in quotes)"},
	{"NUL byte", "rules: []\n# \x00\n", noDocument, `r.yaml:2:3: the file cannot contain "\x00" (save the file as UTF-8, without control characters)`},
	{"invalid UTF-8", "rules: [] # caf\xe9\n", noDocument, `r.yaml:1:16: the file cannot contain "\xe9" (save the file as UTF-8, without control characters)`},
	{"line break of another system", "rules: []\r# a\r", noDocument, `r.yaml:1:10: the file cannot contain "\r" (save the file as UTF-8, without control characters)`},
	{"byte order mark does not count as a column", "\ufeffruels: []\n", "", `r.yaml:1:1: unknown key "ruels" in the file (did you mean rules?)`},
	{"CRLF does not count as a column", "rules: []\r\nallow: [x]\r\n", "", `r.yaml:2:9: "x" is not a network (write a network such as 192.0.2.0/24 or 2001:db8::/32, or one address)`},

	// The file.
	{"a list, not a mapping", "- id: a\n", "", `r.yaml:1:1: the file is a list, not a mapping (begin it with the line "rules:")`},
	{"a string, not a mapping", "rules\n", "", `r.yaml:1:1: the file is a single value, not a mapping (begin it with the line "rules:")`},
	{"tagged mapping", "!rules {}\n", tagged, `r.yaml:1:1: the file is tagged !rules, not a mapping (begin it with the line "rules:")`},
	{"unknown key with a likely one", "rulse: []\n", "", `r.yaml:1:1: unknown key "rulse" in the file (did you mean rules?)`},
	{"unknown key in upper case", "Rules: []\n", "", `r.yaml:1:1: unknown key "Rules" in the file (did you mean rules?)`},
	{"unknown key unlike any", "zones: []\n", "", `r.yaml:1:1: unknown key "zones" in the file (the keys are rules, allow, deny, networks and labels)`},
	{"key twice", "rules: []\nallow: []\nrules: []\n", duplicate, "r.yaml:3:1: rules is in the file twice, first on line 1 (remove one of them)"},
	{"key that is a list", "? [rules]\n: []\n", noDocument, "r.yaml:1:3: a key of the file is a list (the keys are rules, allow, deny, networks and labels)"},
	{"key that is an alias of another", "allow: [&rules 192.0.2.1]\n*rules : []\n", "", `r.yaml:2:1: unknown key "192.0.2.1" in the file (the keys are rules, allow, deny, networks and labels)`},
	{"merged mapping", withKeys("<<: {action: log}"), "", `r.yaml:5:3: unknown key "<<" in this rule (the keys are id, match, except, count, characteristics, limits, overrides, mitigation_timeout, count_while_mitigated, count_refused, min_clients, action, response, ratelimit_headers, on_failure and enabled)`},
	{"rules empty", "rules:\n", "", `r.yaml:1:7: rules is empty, not a list (begin every rule with "- id:")`},
	{"rules is a mapping", "rules:\n  id: a\n", "", `r.yaml:2:3: rules is a mapping, not a list (begin every rule with "- id:")`},
	{"rules is tagged as a set", "rules: !!set {}\n", "", `r.yaml:1:8: rules is tagged !!set, not a list (begin every rule with "- id:")`},
	{"rule is a string", "rules: [login]\n", "", `r.yaml:1:9: this rule is the string "login", not a mapping (write {id: …, characteristics: …, limits: …}; give a node's settings with --config, or alone to edge check, and test cases with --test)`},
	{"settings of a node with one file", "name: a\nrules: rules.yaml\norigin: http://a\n", "", `r.yaml:2:8: this rule is the string "rules.yaml", not a mapping (write {id: …, characteristics: …, limits: …}; give a node's settings with --config, or alone to edge check, and test cases with --test)`},
	{"settings of a node", "name: a\nrules: [rules.yaml]\norigin: http://a\n", "", `r.yaml:2:9: this rule is the string "rules.yaml", not a mapping (write {id: …, characteristics: …, limits: …}; give a node's settings with --config, or alone to edge check, and test cases with --test)`},
	{"second rule is a string", "rules: [{}, login]\nzones: []\n", "", `r.yaml:1:9: this rule has no id (write id: and a stable name, such as login)
r.yaml:1:9: this rule has no characteristics (write characteristics: [ip] to count each client separately)
r.yaml:1:9: this rule has no limits (write limits: [{threshold: 50, period: 1m}])
r.yaml:1:13: this rule is the string "login", not a mapping (write {id: …, characteristics: …, limits: …})
r.yaml:2:1: unknown key "zones" in the file (the keys are rules, allow, deny, networks and labels)`},
	{"rule is null", "rules:\n-\n", "", "r.yaml:2:2: this rule is empty, not a mapping (write {id: …, characteristics: …, limits: …})"},
	{"rule is a list that holds itself", "rules: &r [*r]\n", noDocument, "r.yaml:1:12: not YAML: the value of &r contains itself (write a value in place of the alias)"},
	{"list of exceptions that holds itself", withKeys("except: &x [*x]"), noDocument, "r.yaml:5:15: not YAML: the value of &x contains itself (write a value in place of the alias)"},
	{"characteristic that holds itself", "rules:\n- id: a\n  characteristics: [&x {first: [*x, ip]}]\n  limits: [{threshold: 1, period: 1m}]\n", noDocument,
		"r.yaml:3:33: not YAML: the value of &x contains itself (write a value in place of the alias)"},

	// Allow and deny.
	{"allow is an address", "allow: 192.0.2.1\n", "", `r.yaml:1:8: allow is the string "192.0.2.1", not a list (write [192.0.2.0/24])`},
	{"allow is a mapping", "allow: {ip: 192.0.2.1}\n", "", "r.yaml:1:8: allow is a mapping, not a list (write [192.0.2.0/24])"},
	{"network with bits beyond its prefix", "allow: [192.0.2.1/24]\n", shape, `r.yaml:1:9: "192.0.2.1/24" is an address within a network (write 192.0.2.0/24 for the network, 192.0.2.1 for the address)`},
	{"IPv6 network with bits beyond its prefix", "deny: [\"2001:db8::1/32\"]\n", shape, `r.yaml:1:8: "2001:db8::1/32" is an address within a network (write 2001:db8::/32 for the network, 2001:db8::1 for the address)`},
	{"network with too long a prefix", "allow: [192.0.2.0/33]\n", shape, `r.yaml:1:9: "192.0.2.0/33" is not a network (write a network such as 192.0.2.0/24 or 2001:db8::/32, or one address)`},
	{"network with four digits of prefix", "allow: [192.0.2.0/0024]\n", "", `r.yaml:1:9: "192.0.2.0/0024" is not a network (write a network such as 192.0.2.0/24 or 2001:db8::/32, or one address)`},
	{"IPv4 network in IPv6 spelling with more than IPv4", "allow: [\"::ffff:0.0.0.0/95\"]\n", shape, `r.yaml:1:9: "::ffff:0.0.0.0/95" begins like an IPv4 network written as IPv6, but is larger (write IPv4 networks as 192.0.2.0/24, or as ::ffff:192.0.2.0/120 with at least 96 bits)`},
	{"key with hyphens and with underscores", withKeys("mitigation-timeout: 1m", "mitigation_timeout: 1m"), "", `r.yaml:5:3: unknown key "mitigation-timeout" in this rule (did you mean mitigation_timeout?)`},
	{"address with a leading zero", "allow: [192.0.2.010]\n", shape, `r.yaml:1:9: "192.0.2.010" is not a network (write a network such as 192.0.2.0/24 or 2001:db8::/32, or one address)`},
	{"address with a zone", "deny: [\"fe80::1%eth0\"]\n", "", `r.yaml:1:8: "fe80::1%eth0" is not a network (write a network such as 192.0.2.0/24 or 2001:db8::/32, or one address)`},
	{"name in place of an address", "allow: [localhost]\n", "", `r.yaml:1:9: "localhost" is not a network (write a network such as 192.0.2.0/24 or 2001:db8::/32, or one address)`},
	{"number in place of an address", "allow: [10]\n", "", `r.yaml:1:9: an entry of allow is the number 10, not a string (quote it: "10")`},
	{"list in place of an address", "allow: [[192.0.2.1]]\n", "", "r.yaml:1:9: an entry of allow is a list, not a string"},
	{"empty entry", "allow: [192.0.2.1, '']\n", "", `r.yaml:1:20: "" is not a network (write a network such as 192.0.2.0/24 or 2001:db8::/32, or one address)`},
	{"network twice in a list", "allow:\n- 192.0.2.0/24\n- 192.0.2.0/24\n", unique, "r.yaml:3:3: 192.0.2.0/24 is already listed at r.yaml:2 (list a network once, in allow or in deny; of several that contain an address, the longest prefix wins)"},
	{"network in both lists", "allow: [192.0.2.1]\ndeny: [198.51.100.0/24, 192.0.2.1/32]\n", unique, "r.yaml:2:25: 192.0.2.1/32 is already listed at r.yaml:1 (list a network once, in allow or in deny; of several that contain an address, the longest prefix wins)"},
	{"IPv4 network in IPv6 spelling, too", "allow: [192.0.2.0/24]\ndeny: [\"::ffff:192.0.2.0/120\"]\n", unique, "r.yaml:2:8: 192.0.2.0/24 is already listed at r.yaml:1 (list a network once, in allow or in deny; of several that contain an address, the longest prefix wins)"},

	// Networks.
	{"networks is a list", "networks: [192.0.2.0/24]\n", "", "r.yaml:1:11: networks is a list, not a mapping (write networks: {office: [192.0.2.0/24], crawlers: {file: crawlers.txt}})"},
	{"network set with a wrong name", "networks: {-a: [192.0.2.0/24]}\n", "", `r.yaml:1:12: the name of a network set cannot be "-a" (an ID has 1 to 64 letters, digits, dots, hyphens and underscores, and begins with a letter or digit)`},
	{"network set without networks", "networks: {a: []}\n", "", "r.yaml:1:15: a network set is an empty list (list its networks)"},
	{"network set is a string", "networks: {a: a.txt}\n", "", `r.yaml:1:15: a network set is the string "a.txt", not a list (write a list: [192.0.2.0/24], or {file: networks.txt})`},
	{"network set with no network", "networks: {a: [192.0.2.1, x]}\n", "", `r.yaml:1:27: "x" is not a network (write a network such as 192.0.2.0/24 or 2001:db8::/32, or one address)`},
	{"network set twice", "networks:\n  a: [192.0.2.1]\n  b: [192.0.2.1]\n  a: [192.0.2.2]\n", duplicate, "r.yaml:4:3: there is already a network set a at r.yaml:2 (names must be unique across all files)"},
	{"network set with an unknown key", "networks: {a: {files: a.txt}}\n", "", `r.yaml:1:16: unknown key "files" in this network set (did you mean file?)`},
	{"network set of a file without a name", "networks: {a: {file: ''}}\n", "", "r.yaml:1:22: the name of the file is empty (write a name such as networks.txt)"},
	{"network set of a file, for rules that are in none", "networks: {a: {file: a.txt}}\n", unique, "r.yaml:1:22: rules that are not in a file cannot name one (list the networks: [192.0.2.0/24])"},
	{"match of an unknown network set", withKeys("match: {networks: [ofice]}") + "networks: {office: [192.0.2.1]}\n", unique, `r.yaml:5:22: there is no network set "ofice" (did you mean office?)`},
	{"an exception for a network set in a file without sets", withKeys("except: {networks: [office]}"), unique, `r.yaml:5:23: there is no network set "office" (write networks: at the beginning of a line, and a list or a file below it for each name)`},
	{"match of a network", withKeys("match: {networks: [192.0.2.0/24]}") + "networks: {office: [192.0.2.1], crawlers: [192.0.2.2]}\n", unique, `r.yaml:5:22: there is no network set "192.0.2.0/24" (choose from office and crawlers)`},
	{"match of no network set", withKeys("match: {networks: []}"), "", "r.yaml:5:21: networks is an empty list (leave networks out to match every network)"},

	// Rules.
	{"rule without anything", "rules: [{}]\n", "", lines(
		"r.yaml:1:9: this rule has no id (write id: and a stable name, such as login)",
		"r.yaml:1:9: this rule has no characteristics (write characteristics: [ip] to count each client separately)",
		"r.yaml:1:9: this rule has no limits (write limits: [{threshold: 50, period: 1m}])",
	)},
	{"rule without id", "rules:\n- characteristics: [ip]\n  limits: [{threshold: 5, period: 1m}]\n", "", "r.yaml:2:3: this rule has no id (write id: and a stable name, such as login)"},
	{"rule without characteristics", "rules:\n- id: a\n  limits: [{threshold: 5, period: 1m}]\n", "", "r.yaml:2:3: this rule has no characteristics (write characteristics: [ip] to count each client separately)"},
	{"rule without limits", "rules:\n- id: a\n  characteristics: [ip]\n", "", "r.yaml:2:3: this rule has no limits (write limits: [{threshold: 50, period: 1m}])"},
	{"unknown key with a transposition", withKeys("mitigation_timeuot: 1m"), "", `r.yaml:5:3: unknown key "mitigation_timeuot" in this rule (did you mean mitigation_timeout?)`},
	{"unknown key without underscore", withKeys("mitigationtimeout: 1m"), "", `r.yaml:5:3: unknown key "mitigationtimeout" in this rule (did you mean mitigation_timeout?)`},
	{"unknown key that belongs deeper", withKeys("paths: [/login]"), "", `r.yaml:5:3: unknown key "paths" in this rule (the keys are id, match, except, count, characteristics, limits, overrides, mitigation_timeout, count_while_mitigated, count_refused, min_clients, action, response, ratelimit_headers, on_failure and enabled)`},
	{"key of a rule twice", withKeys("action: log", "action: block"), duplicate, "r.yaml:6:3: action is in this rule twice, first on line 5 (remove one of them)"},
	{"key that is a number", withKeys("1: 2"), "", `r.yaml:5:3: unknown key "1" in this rule (the keys are id, match, except, count, characteristics, limits, overrides, mitigation_timeout, count_while_mitigated, count_refused, min_clients, action, response, ratelimit_headers, on_failure and enabled)`},
	{"enabled is not a truth value", withKeys("enabled: maybe"), "", `r.yaml:5:12: enabled is the string "maybe", not true or false (write enabled: false to disable the rule)`},
	{"enabled is empty", withKeys("enabled:"), "", `r.yaml:5:11: enabled is empty, not true or false (write enabled: false to disable the rule)`},
	{"mistake in a disabled rule", withKeys("enabled: false", "action: blok"), "", `r.yaml:6:11: action cannot be "blok" (did you mean block?)`},
	{"ID of a disabled rule", withKeys("enabled: false") + "- {id: a, characteristics: [ip], limits: [{threshold: 5, period: 1m}]}\n", "a schema cannot compare IDs", "r.yaml:6:8: there is already a rule a at r.yaml:2 (IDs must be unique across all files)"},
	{"ID twice", "rules:\n- {id: a, characteristics: [ip], limits: [{threshold: 5, period: 1m}]}\n- {id: a, characteristics: [ip], limits: [{threshold: 5, period: 1m}]}\n", unique, "r.yaml:3:8: there is already a rule a at r.yaml:2 (IDs must be unique across all files)"},
	{"rule twice by alias", "rules: [&a {id: a, characteristics: [ip], limits: [{threshold: 5, period: 1m}]}, *a]\n", unique, "r.yaml:1:17: there is already a rule a at r.yaml:1 (IDs must be unique across all files)"},
	{"ID empty", withID(""), "", "r.yaml:2:6: id is empty, not a string"},
	{"ID of no letters", withID(`""`), "", `r.yaml:2:7: id cannot be "" (an ID has 1 to 64 letters, digits, dots, hyphens and underscores, and begins with a letter or digit)`},
	{"ID with a space", withID("log in"), "", `r.yaml:2:7: id cannot be "log in" (an ID has 1 to 64 letters, digits, dots, hyphens and underscores, and begins with a letter or digit)`},
	{"ID that begins with a hyphen", withID("-a"), "", `r.yaml:2:7: id cannot be "-a" (an ID has 1 to 64 letters, digits, dots, hyphens and underscores, and begins with a letter or digit)`},
	{"ID of 65 bytes", withID(strings.Repeat("a", 65)), "", `r.yaml:2:7: id cannot be "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"… (an ID has 1 to 64 letters, digits, dots, hyphens and underscores, and begins with a letter or digit)`},
	{"ID with an umlaut", withID("höhe"), "", `r.yaml:2:7: id cannot be "höhe" (an ID has 1 to 64 letters, digits, dots, hyphens and underscores, and begins with a letter or digit)`},
	{"ID that is a number", withID("404"), "", `r.yaml:2:7: id is the number 404, not a string (quote it: "404")`},
	{"ID that is an octal number", withID("010"), "", `r.yaml:2:7: id is the number 010, not a string (quote it: "010")`},
	{"ID that is a float", withID("1e3"), "", `r.yaml:2:7: id is the number 1e3, not a string (quote it: "1e3")`},
	{"ID that is a date", withID("2024-01-31"), tagged, `r.yaml:2:7: id is the date 2024-01-31, not a string (quote it: "2024-01-31")`},
	{"ID that is a truth value", withID("true"), "", `r.yaml:2:7: id is the truth value true, not a string (quote it: "true")`},
	{"ID that is a list", withID("[a]"), "", "r.yaml:2:7: id is a list, not a string"},
	{"ID of another type", withID("!!binary YWJj"), tagged, `r.yaml:2:7: id is tagged !!binary, not a string (quote it: "YWJj")`},

	// Match.
	{"match empty", withKeys("match:"), "", "r.yaml:5:9: match is empty, not a mapping (write match: {hosts: [example.com], methods: [POST], paths: [/login]})"},
	{"match is a list", withKeys("match: [/login]"), "", "r.yaml:5:10: match is a list, not a mapping (write match: {hosts: [example.com], methods: [POST], paths: [/login]})"},
	{"unknown key in match", withKeys("match: {host: [a.com]}"), "", `r.yaml:5:11: unknown key "host" in match (did you mean hosts?)`},
	{"hosts is a string", withKeys("match: {hosts: example.com}"), "", `r.yaml:5:18: hosts is the string "example.com", not a list (write a list: [example.com])`},
	{"hosts is a wildcard", withKeys(`match: {hosts: "*.example.com"}`), "", `r.yaml:5:18: hosts is the string "*.example.com", not a list (write a list: [example.com])`},
	{"hosts is an empty list", withKeys("match: {hosts: []}"), "", "r.yaml:5:18: hosts is an empty list (leave hosts out to match every host)"},
	{"host is a number", withKeys("match: {hosts: [127.1]}"), "", `r.yaml:5:19: host is the number 127.1, not a string (quote it: "127.1")`},
	{"host is a star", withKeys(`match: {hosts: ["*"]}`), "", `r.yaml:5:19: "*" is not a host (write a name without a port, in ASCII, such as example.com or "*.example.com", or an address, with brackets if it is IPv6)`},
	{"host with a port", withKeys("match: {hosts: [example.com:443]}"), "", `r.yaml:5:19: "example.com:443" is not a host (write a name without a port, in ASCII, such as example.com or "*.example.com", or an address, with brackets if it is IPv6)`},
	{"host with a scheme", withKeys("match: {hosts: [https://example.com/]}"), "", `r.yaml:5:19: "https://example.com/" is not a host (write a name without a port, in ASCII, such as example.com or "*.example.com", or an address, with brackets if it is IPv6)`},
	{"host with a star inside", withKeys("match: {hosts: [www.*.com]}"), "", `r.yaml:5:19: "www.*.com" is not a host (write a name without a port, in ASCII, such as example.com or "*.example.com", or an address, with brackets if it is IPv6)`},
	{"host with two stars", withKeys(`match: {hosts: ["*.*.com"]}`), "", `r.yaml:5:19: "*.*.com" is not a host (write a name without a port, in ASCII, such as example.com or "*.example.com", or an address, with brackets if it is IPv6)`},
	{"host that begins with a dot", withKeys("match: {hosts: [.example.com]}"), "", `r.yaml:5:19: ".example.com" is not a host (write a name without a port, in ASCII, such as example.com or "*.example.com", or an address, with brackets if it is IPv6)`},
	{"host with two final dots", withKeys("match: {hosts: [example.com..]}"), "", `r.yaml:5:19: "example.com.." is not a host (write a name without a port, in ASCII, such as example.com or "*.example.com", or an address, with brackets if it is IPv6)`},
	{"host with an umlaut", withKeys("match: {hosts: [bücher.example]}"), "", `r.yaml:5:19: "bücher.example" is not a host (write a name without a port, in ASCII, such as example.com or "*.example.com", or an address, with brackets if it is IPv6)`},
	{"host with a space", withKeys("match: {hosts: [exam ple.com]}"), "", `r.yaml:5:19: "exam ple.com" is not a host (write a name without a port, in ASCII, such as example.com or "*.example.com", or an address, with brackets if it is IPv6)`},
	{"host with a line break", withKeys(`match: {hosts: ["a.com\n"]}`), "", `r.yaml:5:19: "a.com\n" is not a host (write a name without a port, in ASCII, such as example.com or "*.example.com", or an address, with brackets if it is IPv6)`},
	{"host empty", withKeys(`match: {hosts: [""]}`), "", `r.yaml:5:19: "" is not a host (write a name without a port, in ASCII, such as example.com or "*.example.com", or an address, with brackets if it is IPv6)`},
	{"host too long", withKeys("match: {hosts: [" + strings.Repeat("a.", 126) + "aa]}"), shape, `r.yaml:5:19: "a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a."… is not a host (write a name without a port, in ASCII, such as example.com or "*.example.com", or an address, with brackets if it is IPv6)`},
	{"IPv6 host without brackets", withKeys(`match: {hosts: ["2001:db8::1"]}`), "", `r.yaml:5:19: "2001:db8::1" is not a host (write a name without a port, in ASCII, such as example.com or "*.example.com", or an address, with brackets if it is IPv6)`},
	{"IPv6 host with a port", withKeys(`match: {hosts: ["[2001:db8::1]:443"]}`), "", `r.yaml:5:19: "[2001:db8::1]:443" is not a host (write a name without a port, in ASCII, such as example.com or "*.example.com", or an address, with brackets if it is IPv6)`},
	{"IPv6 host with a zone", withKeys(`match: {hosts: ["[fe80::1%25eth0]"]}`), "", `r.yaml:5:19: "[fe80::1%25eth0]" is not a host (write a name without a port, in ASCII, such as example.com or "*.example.com", or an address, with brackets if it is IPv6)`},
	{"IPv4 host in brackets", withKeys(`match: {hosts: ["[192.0.2.1]"]}`), shape, `r.yaml:5:19: "[192.0.2.1]" is not a host (write a name without a port, in ASCII, such as example.com or "*.example.com", or an address, with brackets if it is IPv6)`},
	{"host twice", withKeys("match: {hosts: [a.com, b.com, a.com]}"), "", `r.yaml:5:33: "a.com" is in hosts twice (remove one of them)`},
	{"host twice in different cases", withKeys("match: {hosts: [a.com, A.COM.]}"), unique, `r.yaml:5:26: "a.com" is in hosts twice (remove one of them)`},
	{"host twice among many", withKeys("match: {hosts: [a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r, A]}"), unique, `r.yaml:5:73: "a" is in hosts twice (remove one of them)`},
	{"method in lower case", withKeys("match: {methods: [get]}"), "", `r.yaml:5:21: "get" is not a method (write a whole method in capital letters, such as GET or POST)`},
	{"method with a space", withKeys("match: {methods: [GET POST]}"), "", `r.yaml:5:21: "GET POST" is not a method (write a whole method in capital letters, such as GET or POST)`},
	{"method with a star", withKeys("match: {methods: [P*]}"), "", `r.yaml:5:21: "P*" is not a method (write a whole method in capital letters, such as GET or POST)`},
	{"method is a string", withKeys("match: {methods: GET}"), "", `r.yaml:5:20: methods is the string "GET", not a list (write a list: [POST])`},
	{"method is null", withKeys("match: {methods: [~]}"), "", "r.yaml:5:21: method is empty, not a string"},
	{"method twice", withKeys("match: {methods: [GET, GET]}"), "", `r.yaml:5:26: "GET" is in methods twice (remove one of them)`},
	{"path without slash", withKeys("match: {paths: [login]}"), "", `r.yaml:5:19: "login" is not a path (write a path that begins with a slash, without a query; a * stands for anything)`},
	{"path empty", withKeys(`match: {paths: [""]}`), "", `r.yaml:5:19: "" is not a path (write a path that begins with a slash, without a query; a * stands for anything)`},
	{"path with a query", withKeys(`match: {paths: ["/search?q=*"]}`), "", `r.yaml:5:19: "/search?q=*" is not a path (write a path that begins with a slash, without a query; a * stands for anything)`},
	{"path with a fragment", withKeys(`match: {paths: ["/a#b"]}`), "", `r.yaml:5:19: "/a#b" is not a path (write a path that begins with a slash, without a query; a * stands for anything)`},
	{"path with two stars", withKeys("match: {paths: [/a/**]}"), "", `r.yaml:5:19: "/a/**" has two stars in succession (write one *: it stands for anything, including slashes at the end of a path)`},
	{"path with a star before a slash", withKeys("match: {paths: ['*/login']}"), "", `r.yaml:5:19: "*/login" begins with a *, so that it is about the last segment (write the end of a segment, such as "*.php", or begin with a slash)`},
	{"path with stars on both sides", withKeys("match: {paths: ['*.php*']}"), "", `r.yaml:5:19: "*.php*" begins with a *, so that it is about the last segment (write the end of a segment, such as "*.php", or begin with a slash)`},
	{"path with a star before an escape", withKeys("match: {paths: ['*%2ephp']}"), unique, `r.yaml:5:19: "*%2ephp" matches no request (write it as it is matched, decoded and without empty or dot segments: "*.php")`},
	{"headers as a list", withKeys("match: {headers: [accept]}"), "", `r.yaml:5:20: headers is a list, not a mapping (write headers: {example: ["a*"]}, or {example: present}, or {example: absent})`},
	{"cookies empty", withKeys("match: {cookies: {}}"), "", `r.yaml:5:20: cookies is empty (write cookies: {example: ["a*"]}, or {example: present}, or {example: absent})`},
	{"header of the host", withKeys("match: {headers: {Host: example.com}}"), "", `r.yaml:5:21: the host is a separate characteristic, not a header (write host or, in a match, hosts: [example.com])`},
	{"header that is not a name", withKeys("match: {headers: {'a b': present}}"), "", `r.yaml:5:21: "a b" is not the name of a header (names have no spaces, colons, commas, brackets or quotes)`},
	{"query parameter without a name", withKeys("match: {query: {'': present}}"), "", `r.yaml:5:19: the name of the query parameter is empty (write the name)`},
	{"header twice", withKeys("match: {headers: {accept: present, Accept: absent}}"), unique, `r.yaml:5:38: "Accept" is in headers twice (write one list of patterns)`},
	{"condition that is true", withKeys("except: {query: {debug: true}}"), "", `r.yaml:5:27: query:debug is the truth value true, not a pattern (write present, absent, or patterns in quotes: ["a*", "b"])`},
	{"condition that is null", withKeys("except: {query: {debug: }}"), "", `r.yaml:5:27: query:debug is empty, not a pattern (write present, absent, or patterns in quotes: ["a*", "b"])`},
	{"condition that is a number", withKeys("except: {cookies: {beta: 1}}"), "", `r.yaml:5:28: cookie:beta is the number 1, not a string (quote it: "1")`},
	{"condition that is an empty list", withKeys("except: {cookies: {beta: []}}"), "", `r.yaml:5:28: cookie:beta is an empty list (write present or absent)`},
	{"absent among patterns", withKeys("match: {headers: {accept: [absent]}}"), "", `r.yaml:5:30: absent is not in a list of patterns (write absent without brackets, or "~^absent$" for the word itself)`},
	{"pattern twice, but for letter case", withKeys("match: {headers: {accept: [A, a]}}"), unique, `r.yaml:5:33: "a" is in header:accept twice (remove one of them)`},
	{"expression invalid", withKeys("match: {headers: {accept: '~a('}}"), "a schema cannot parse expressions", `r.yaml:5:29: header:accept cannot have the pattern ~a(: error parsing regexp: missing closing ): ` + "`(?i)a(`" + ` (write at most 256 bytes: text in which * stands for anything or, after a ~, an RE2 expression)`},
	{"expression of nginx", withKeys("match: {headers: {accept: '~*a'}}"), "a schema cannot parse expressions", `r.yaml:5:29: "~*a" is not an expression (letter case never counts in headers, and elsewhere (?i) after the ~ turns it off)`},
	{"pattern too long", withKeys("match: {query: {a: [" + strings.Repeat("a", 257) + "]}}"), "", `r.yaml:5:23: query:a cannot have the pattern "` + strings.Repeat("a", 60) + `"…: the pattern has 257 bytes, more than 256 (write at most 256 bytes: text in which * stands for anything or, after a ~, an RE2 expression)`},
	{"path with an escape", withKeys("match: {paths: [/caf%C3%A9]}"), shape, `r.yaml:5:19: "/caf%C3%A9" matches no request (write it as it is matched, decoded and without empty or dot segments: "/café")`},
	{"path with an escaped slash", withKeys("match: {paths: [/a%2fb*]}"), shape, `r.yaml:5:19: "/a%2fb*" matches no request (write it as it is matched, decoded and without empty or dot segments: "/a/b*")`},
	{"path with a dot segment", withKeys("match: {paths: [/a/../b]}"), shape, `r.yaml:5:19: "/a/../b" matches no request (write it as it is matched, decoded and without empty or dot segments: "/b")`},
	{"path with a doubled slash", withKeys("match: {paths: [/a//*]}"), shape, `r.yaml:5:19: "/a//*" matches no request (write it as it is matched, decoded and without empty or dot segments: "/a/*")`},
	{"path with a parameter", withKeys("match: {paths: [/a, '/b;c']}"), "", `r.yaml:5:23: "/b;c" matches no request (set path_parameters: exact in match; by default what follows a semicolon is ignored)`},
	{"count_while_mitigated is a string", withKeys("count_while_mitigated: yes"), "", `r.yaml:5:26: count_while_mitigated is the string "yes", not true or false (write count_while_mitigated: true to count requests of mitigated keys)`},
	{"count_while_mitigated with statuses", withKeys("count_while_mitigated: true", "count: {statuses: [401]}"), "", "r.yaml:5:26: a rule that counts by statuses cannot have count_while_mitigated (remove one of them: the origin does not answer refused requests)"},
	{"except empty", withKeys("except:"), "", "r.yaml:5:10: except is empty, not a mapping (write except: {paths: [/health]})"},
	{"except is a string", withKeys("except: /health"), "", `r.yaml:5:11: except is the string "/health", not a mapping (write except: {paths: [/health]})`},
	{"except of nothing", withKeys("except: {}"), "", "r.yaml:5:11: an empty exception would exempt every request (write except: {paths: [/health]})"},
	{"except of an empty list", withKeys("except: []"), "", "r.yaml:5:11: except is an empty list (omit except to exempt nothing)"},
	{"except of nothing in a list", withKeys("except: [{paths: [/a]}, {}]"), "", "r.yaml:5:27: an empty exception would exempt every request (write except: {paths: [/health]})"},
	{"except with a wrong path", withKeys("except: {paths: [health]}"), "", `r.yaml:5:20: "health" is not a path (write a path that begins with a slash, without a query; a * stands for anything)`},
	{"except with a key of match", withKeys("except: {paths: [/a], path_case: exact}"), "", `r.yaml:5:25: unknown key "path_case" in except (the keys are hosts, methods, paths, networks, headers, cookies and query)`},
	{"except with a parameter", withKeys("except: [{paths: ['/b;c']}]", "match: {path_case: exact}"), "", `r.yaml:5:21: "/b;c" matches no request (set path_parameters: exact in match; by default what follows a semicolon is ignored)`},
	{"path_case unknown", withKeys("match: {path_case: ignored}"), "", `r.yaml:5:22: path_case cannot be "ignored" (did you mean ignore?)`},
	{"path_reading unknown", withKeys("match: {path_reading: express}"), "", `r.yaml:5:25: path_reading cannot be "express" (write any, resolved, literal or url)`},
	{"path twice", withKeys("match: {paths: [/a, /b, /a]}"), "", `r.yaml:5:27: "/a" is in paths twice (remove one of them)`},

	// Count.
	{"count_while_mitigated with a cost header", withKeys("count_while_mitigated: true", "count: {cost_header: X-Cost}"), "", "r.yaml:5:26: a rule that counts by cost_header cannot have count_while_mitigated (remove one of them: the origin does not answer refused requests)"},
	{"count_refused is a number", withKeys("count_refused: 1"), "", "r.yaml:5:18: count_refused is the number 1, not true or false (write count_refused: true to count requests that other rules refuse)"},
	{"count_refused with a cost header", withKeys("count: {cost_header: X-Cost}", "count_refused: true"), "", "r.yaml:6:18: a rule that counts by cost_header cannot have count_refused (remove one of them: the origin does not answer refused requests)"},
	{"a path that is not one", withKeys(`count: {cost_json: "usage..total"}`), "", `r.yaml:5:22: cost_json cannot be "usage..total" (write the names of members of a JSON object, with dots between them, such as usage.total_tokens)`},
	{"two costs of the response", withKeys("count: {cost_header: X-Cost, cost_json: cost}"), "", "r.yaml:5:43: a rule cannot have both cost_header and cost_json (remove one of them)"},
	{"a reserve of 0", withKeys("count: {cost_header: X-Cost, reserve: 0}"), "", "r.yaml:5:41: reserve cannot be 0 (write a whole number from 1 to 1000000)"},
	{"a reserve of a fixed cost", withKeys("count: {cost: 10, reserve: 5}"), "", "r.yaml:5:30: a reserve is a part of the cost that the response has (add cost_header or cost_json, or write cost instead of reserve)"},
	{"a reserve by status", withKeys("count: {reserve: 1, statuses: [200], cost_json: cost}"), "", "r.yaml:5:20: a rule that counts by statuses cannot have a reserve (remove one of them: the status is not known yet when the reserve counts)"},
	{"count_while_mitigated with a cost in JSON", withKeys("count: {cost_json: cost}", "count_while_mitigated: true"), "", "r.yaml:6:26: a rule that counts by cost_json cannot have count_while_mitigated (remove one of them: the origin does not answer refused requests)"},
	{"an empty count", withKeys("count: {}"), "", "r.yaml:5:10: count is empty (leave count out to count every request once)"},
	{"count is a list", withKeys("count: [401]"), "", "r.yaml:5:10: count is a list, not a mapping (write count: {statuses: [401, 403]}, or count: {cost: 10})"},
	{"a cost of 0", withKeys("count: {cost: 0}"), "", "r.yaml:5:17: cost cannot be 0 (write a whole number from 1 to 1000000)"},
	{"a cost that is too great", withKeys("count: {cost: 1000001}"), "", "r.yaml:5:17: cost cannot be 1000001 (write a whole number from 1 to 1000000)"},
	{"a cost header that is not a name", withKeys(`count: {cost_header: "X Cost"}`), "", `r.yaml:5:24: cost_header cannot be "X Cost" (write the name of a header that the origin sends, such as X-Cost)`},
	{"statuses is a number", withKeys("count: {statuses: 401}"), "", "r.yaml:5:21: statuses is the number 401, not a list (write [401, 403])"},
	{"statuses is empty", withKeys("count: {statuses: []}"), "", "r.yaml:5:21: statuses is an empty list (leave count out to count every request)"},
	{"status 199", withKeys("count: {statuses: [199]}"), "", "r.yaml:5:22: a status cannot be 199 (write a whole number from 200 to 599)"},
	{"status 600", withKeys("count: {statuses: [200, 599, 600]}"), "", "r.yaml:5:32: a status cannot be 600 (write a whole number from 200 to 599)"},
	{"status class 1xx", withKeys("count: {statuses: [1xx]}"), "", `r.yaml:5:22: a status is the string "1xx", not a whole number (write a whole number from 200 to 599)`},
	{"status class 6xx", withKeys("count: {statuses: [6xx]}"), "", `r.yaml:5:22: a status is the string "6xx", not a whole number (write a whole number from 200 to 599)`},
	{"status class twice", withKeys("count: {statuses: [4xx, 4xx]}"), "", `r.yaml:5:27: the status 400 is listed twice (remove one of them)`},
	{"status in a class listed before it", withKeys("count: {statuses: [4xx, 404]}"), "a schema cannot compare a status with a class", `r.yaml:5:27: the status 404 is listed twice (remove one of them)`},
	{"status in a class listed after it", withKeys("count: {statuses: [404, 4xx]}"), "a schema cannot compare a status with a class", `r.yaml:5:27: the status 404 is listed twice (remove one of them)`},
	{"status in quotes", withKeys(`count: {statuses: ["401"]}`), "", `r.yaml:5:22: a status is the string "401", not a whole number (write it without quotes: 401)`},
	{"status twice", withKeys("count: {statuses: [401, 403, 401]}"), "", "r.yaml:5:32: the status 401 is listed twice (remove one of them)"},

	// Characteristics.
	{"characteristics is a string", withCharacteristics("ip"), "", `r.yaml:3:20: characteristics is the string "ip", not a list (write a list: [ip])`},
	{"characteristics is empty", withCharacteristics("[]"), "", "r.yaml:3:20: characteristics is an empty list (write [ip] to count each client separately, [host] to count each host separately)"},
	{"characteristic in upper case", withCharacteristics("[IP]"), "", `r.yaml:3:21: unknown characteristic "IP" (did you mean ip?)`},
	{"characteristic unknown", withCharacteristics("[country]"), "", `r.yaml:3:21: unknown characteristic "country" (write ip, host, path, method, header:NAME, cookie:NAME, query:NAME, label:NAME, network:24/48 or {first: [cookie:sid, ip]})`},
	{"characteristic with a typo", withCharacteristics("[haeder:x-api-key]"), "", `r.yaml:3:21: unknown characteristic "haeder:x-api-key" (did you mean header:x-api-key?)`},
	{"characteristic is a number", withCharacteristics("[1]"), "", `r.yaml:3:21: a characteristic is the number 1, not a string (quote it: "1")`},
	{"header without name", withCharacteristics("[header]"), "", `r.yaml:3:21: "header" is not a characteristic (write ip, host, path, method, header:NAME, cookie:NAME, query:NAME, label:NAME, network:24/48 or {first: [cookie:sid, ip]})`},
	{"header with an empty name", withCharacteristics(`["header:"]`), "", "r.yaml:3:21: the name of the header is empty (write the name)"},
	{"header with a space after the colon", withCharacteristics(`["header: x-api-key"]`), "", `r.yaml:3:21: " x-api-key" is not the name of a header (names have no spaces, colons, commas, brackets or quotes)`},
	{"header whose name has a line break", withCharacteristics(`["header:x\ny"]`), "", "r.yaml:3:21: \"x\\ny\" is not the name of a header (names have no spaces, colons, commas, brackets or quotes)"},
	{"host as a header", withCharacteristics("[header:Host]"), "", "r.yaml:3:21: the host is a separate characteristic, not a header (write host or, in a match, hosts: [example.com])"},
	{"host as a header in a mapping", withCharacteristics("[{header: hOST}]"), "", "r.yaml:3:30: the host is a separate characteristic, not a header (write host or, in a match, hosts: [example.com])"},
	{"query with an empty name", withCharacteristics(`["query:"]`), "", "r.yaml:3:21: the name of the query parameter is empty (write the name)"},
	{"cookie with an equals sign", withCharacteristics("[cookie:a=b]"), "", `r.yaml:3:21: "a=b" is not the name of a cookie (names have no spaces, colons, commas, brackets or quotes)`},
	{"ip with a name", withCharacteristics("[ip:v4]"), "", `r.yaml:3:21: "ip:v4" is not a characteristic (write ip, host, path, method, header:NAME, cookie:NAME, query:NAME, label:NAME, network:24/48 or {first: [cookie:sid, ip]})`},
	{"characteristic twice", withCharacteristics("[ip, host, ip]"), "", "r.yaml:3:31: ip is listed twice (remove one of them)"},
	{"header twice in two spellings", withCharacteristics("[header:x-api-key, {header: X-API-Key, missing: skip}]"), unique, "r.yaml:3:39: header:x-api-key is listed twice (remove one of them)"},
	{"characteristic of two kinds", withCharacteristics("[{header: a, cookie: b}]"), "", "r.yaml:3:41: this characteristic is both header and cookie (make it two characteristics)"},
	{"characteristic of no kind", withCharacteristics("[{missing: skip}]"), "", "r.yaml:3:21: this characteristic has no header, cookie or query (write {header: x-api-key, missing: skip})"},
	{"ip as a mapping", withCharacteristics("[{ip: skip}]"), "", `r.yaml:3:22: unknown key "ip" in this characteristic (the keys are header, cookie, query, first and missing)`},
	{"missing with a typo", withCharacteristics("[{header: a, missing: skp}]"), "", `r.yaml:3:42: missing cannot be "skp" (did you mean skip?)`},
	{"missing is a truth value", withCharacteristics("[{header: a, missing: false}]"), "", "r.yaml:3:42: missing is the truth value false, not a string (write share or skip)"},
	{"name is a number", withCharacteristics("[{header: 1}]"), "", `r.yaml:3:30: header is the number 1, not a string (quote it: "1")`},
	{"empty name in a mapping", withCharacteristics(`[{query: ""}]`), "", "r.yaml:3:29: the name of the query parameter is empty (write the name)"},

	// Limits.
	{"limits is a mapping", withLimits("{threshold: 5, period: 1m}"), "", "r.yaml:4:11: limits is a mapping, not a list (write a list: [{threshold: 50, period: 1m}])"},
	{"limits is empty", withLimits("[]"), "", "r.yaml:4:11: limits is an empty list (write [{threshold: 50, period: 1m}])"},
	{"limit is a string", withLimits("[5 in 1m]"), "", `r.yaml:4:12: this limit is the string "5 in 1m", not a mapping (write {threshold: 50, period: 1m})`},
	{"limit without threshold", withLimits("[{period: 1m}]"), "", "r.yaml:4:12: this limit has no threshold (write threshold: 50, the number of requests allowed)"},
	{"limit without period", withLimits("[{threshold: 5}]"), "", "r.yaml:4:12: this limit has no period (write period: 1m, the time that the threshold is for)"},
	{"unknown key in a limit", withLimits("[{treshold: 5, period: 1m}]"), "", `r.yaml:4:13: unknown key "treshold" in this limit (did you mean threshold?)`},
	{"threshold 0", withLimits("[{threshold: 0, period: 1m}]"), "", "r.yaml:4:24: threshold cannot be 0 (to turn the rule off, write enabled: false; to refuse everything, list networks in deny; otherwise write 1 or more)"},
	{"threshold 2^53 + 1", withLimits("[{threshold: 9007199254740993, period: 1m}]"), "", "r.yaml:4:24: threshold cannot be 9007199254740993 (write a whole number from 1 to 9007199254740992)"},
	{"threshold beyond 64 bits", withLimits("[{threshold: 99999999999999999999999999, period: 1m}]"), "", "r.yaml:4:24: threshold cannot be 99999999999999999999999999 (write a whole number from 1 to 9007199254740992)"},
	{"threshold negative", withLimits("[{threshold: -5, period: 1m}]"), "", "r.yaml:4:24: threshold cannot be -5 (write a whole number from 1 to 9007199254740992)"},
	{"threshold with a fraction", withLimits("[{threshold: 5.5, period: 1m}]"), "", "r.yaml:4:24: threshold cannot be 5.5 (write a whole number from 1 to 9007199254740992, in plain decimal digits)"},
	{"threshold with an empty fraction", withLimits("[{threshold: 5.0, period: 1m}]"), spelling, "r.yaml:4:24: threshold cannot be 5.0 (write a whole number from 1 to 9007199254740992, in plain decimal digits)"},
	{"threshold octal", withLimits("[{threshold: 010, period: 1m}]"), spelling, "r.yaml:4:24: threshold cannot be 010 (write a whole number from 1 to 9007199254740992, in plain decimal digits)"},
	{"threshold with underscores", withLimits("[{threshold: 1_000, period: 1m}]"), spelling, "r.yaml:4:24: threshold cannot be 1_000 (write a whole number from 1 to 9007199254740992, in plain decimal digits)"},
	{"threshold hexadecimal", withLimits("[{threshold: 0x10, period: 1m}]"), spelling, "r.yaml:4:24: threshold cannot be 0x10 (write a whole number from 1 to 9007199254740992, in plain decimal digits)"},
	{"threshold with an exponent", withLimits("[{threshold: 1e3, period: 1m}]"), spelling, "r.yaml:4:24: threshold cannot be 1e3 (write a whole number from 1 to 9007199254740992, in plain decimal digits)"},
	{"threshold with a plus sign", withLimits("[{threshold: +5, period: 1m}]"), spelling, "r.yaml:4:24: threshold cannot be +5 (write a whole number from 1 to 9007199254740992, in plain decimal digits)"},
	{"threshold infinite", withLimits("[{threshold: .inf, period: 1m}]"), "", "r.yaml:4:24: threshold cannot be .inf (write a whole number from 1 to 9007199254740992, in plain decimal digits)"},
	{"threshold in quotes", withLimits(`[{threshold: "5", period: 1m}]`), "", `r.yaml:4:24: threshold is the string "5", not a whole number (write it without quotes: 5)`},
	{"threshold in words", withLimits("[{threshold: five, period: 1m}]"), "", `r.yaml:4:24: threshold is the string "five", not a whole number (write a whole number from 1 to 9007199254740992)`},
	{"sub-windows in other words", withLimits("[{threshold: 50, period: 1m, sub_windows: many}]"), "", `r.yaml:4:53: sub_windows cannot be "many" (write auto, or a number from 1 to 6)`},
	{"seven sub-windows", withLimits("[{threshold: 50, period: 1m, sub_windows: 7}]"), "", "r.yaml:4:53: sub_windows cannot be 7 (write a whole number from 1 to 6)"},
	{"no sub-windows", withLimits("[{threshold: 50, period: 1m, sub_windows: 0}]"), "", "r.yaml:4:53: sub_windows cannot be 0 (write a whole number from 1 to 6)"},
	{"sub-windows are empty", withLimits("[{threshold: 50, period: 1m, sub_windows: }]"), "", "r.yaml:4:53: sub_windows is empty, not a whole number (write a whole number from 1 to 6)"},
	{"threshold above what six sub-windows hold", withLimits("[{threshold: 97, period: 1m, sub_windows: 6}]"), "", "r.yaml:4:53: sub_windows cannot be 6 with a threshold of 97 (6 sub-windows have 10 bits each, for thresholds up to 96: write auto, or at most 5)"},
	{"threshold above what two sub-windows hold", withLimits("[{sub_windows: 2, threshold: 402653185, period: 1m}]"), "", "r.yaml:4:26: sub_windows cannot be 2 with a threshold of 402653185 (2 sub-windows have 32 bits each, for thresholds up to 402653184: leave sub_windows out)"},
	{"sub-windows of less than a second", withLimits("[{sub_windows: 4, threshold: 50, period: 3s}]"), shape, "r.yaml:4:26: sub_windows cannot be 4 with a period of 3s (a sub-window lasts at least 1s, since clocks differ and counts arrive late: write auto, or at most 3)"},
	{"sub-windows of a second", withLimits("[{threshold: 50, period: 1s, sub_windows: 2}]"), shape, "r.yaml:4:53: sub_windows cannot be 2 with a period of 1s (a sub-window lasts at least 1s, since clocks differ and counts arrive late: leave sub_windows out)"},
	{"sub-windows of a fixed window", withLimits("[{threshold: 50, period: 1m, sub_windows: auto, estimate: fixed}]"), "", "r.yaml:4:53: a fixed window has no sub-windows (leave sub_windows out, or use another estimate)"},
	{"estimate in other words", withLimits("[{threshold: 50, period: 1m, estimate: exact}]"), "", `r.yaml:4:50: estimate cannot be "exact" (write weighted, fixed or whole_oldest)`},
	{"threshold empty", withLimits("[{threshold: , period: 1m}]"), "", "r.yaml:4:24: threshold is empty, not a whole number (write a whole number from 1 to 9007199254740992)"},
	{"period 0", withLimits("[{threshold: 5, period: 0}]"), "", "r.yaml:4:35: period cannot be 0 (must be from 1s to 7d)"},
	{"period 0s", withLimits("[{threshold: 5, period: 0s}]"), shape, "r.yaml:4:35: period cannot be 0s (must be from 1s to 7d)"},
	{"period of half a second", withLimits("[{threshold: 5, period: 500ms}]"), "", "r.yaml:4:35: period cannot be 500ms (write whole days, hours, minutes or seconds, such as 10s, 1m, 1h30m or 7d)"},
	{"period with a fraction", withLimits("[{threshold: 5, period: 1.5m}]"), "", "r.yaml:4:35: period cannot be 1.5m (write whole days, hours, minutes or seconds, such as 10s, 1m, 1h30m or 7d)"},
	{"period of eight days", withLimits("[{threshold: 5, period: 8d}]"), shape, "r.yaml:4:35: period cannot be 8d (must be from 1s to 7d: 7/8 of the threshold in 7d comes nearest)"},
	{"period of a month", withLimits("[{threshold: 5, period: 30d}]"), shape, "r.yaml:4:35: period cannot be 30d (must be from 1s to 7d: 7/30 of the threshold in 7d comes nearest)"},
	{"period by name", withLimits("[{threshold: 5, period: 1 Month}]"), "", "r.yaml:4:35: period cannot be \"1 Month\" (the longest period is 7d: write that, and a quarter of a month's threshold)"},
	{"period a second too long", withLimits("[{threshold: 5, period: 7d1s}]"), shape, "r.yaml:4:35: period cannot be 7d1s (must be from 1s to 7d)"},
	{"period beyond a century", withLimits("[{threshold: 5, period: 99999d}]"), shape, "r.yaml:4:35: period cannot be 99999d (write whole days, hours, minutes or seconds, such as 10s, 1m, 1h30m or 7d)"},
	{"period without unit", withLimits("[{threshold: 5, period: 60}]"), "", "r.yaml:4:35: period cannot be 60 (write whole days, hours, minutes or seconds, such as 10s, 1m, 1h30m or 7d)"},
	{"period without unit, in quotes", withLimits(`[{threshold: 5, period: "60"}]`), "", "r.yaml:4:35: period cannot be 60 (write whole days, hours, minutes or seconds, such as 10s, 1m, 1h30m or 7d)"},
	{"period negative", withLimits("[{threshold: 5, period: -1m}]"), "", "r.yaml:4:35: period cannot be -1m (write whole days, hours, minutes or seconds, such as 10s, 1m, 1h30m or 7d)"},
	{"period in words", withLimits("[{threshold: 5, period: 1 minute}]"), "", `r.yaml:4:35: period cannot be "1 minute" (write whole days, hours, minutes or seconds, such as 10s, 1m, 1h30m or 7d)`},
	{"period sexagesimal", withLimits("[{threshold: 5, period: 1:30}]"), "", "r.yaml:4:35: period cannot be 1:30 (write whole days, hours, minutes or seconds, such as 10s, 1m, 1h30m or 7d)"},
	{"period with units in the wrong order", withLimits("[{threshold: 5, period: 30m1h}]"), "", "r.yaml:4:35: period cannot be 30m1h (write whole days, hours, minutes or seconds, such as 10s, 1m, 1h30m or 7d)"},
	{"period with a unit twice", withLimits("[{threshold: 5, period: 1m1m}]"), "", "r.yaml:4:35: period cannot be 1m1m (write whole days, hours, minutes or seconds, such as 10s, 1m, 1h30m or 7d)"},
	{"period with a leading zero", withLimits("[{threshold: 5, period: 01m}]"), "", "r.yaml:4:35: period cannot be 01m (write whole days, hours, minutes or seconds, such as 10s, 1m, 1h30m or 7d)"},
	{"period in upper case", withLimits("[{threshold: 5, period: 1M}]"), "", "r.yaml:4:35: period cannot be 1M (write whole days, hours, minutes or seconds, such as 10s, 1m, 1h30m or 7d)"},
	{"period of weeks", withLimits("[{threshold: 5, period: 1w}]"), "", "r.yaml:4:35: period cannot be 1w (write whole days, hours, minutes or seconds, such as 10s, 1m, 1h30m or 7d)"},
	{"period empty", withLimits(`[{threshold: 5, period: ""}]`), "", `r.yaml:4:35: period cannot be "" (write whole days, hours, minutes or seconds, such as 10s, 1m, 1h30m or 7d)`},
	{"period is null", withLimits("[{threshold: 5, period: ~}]"), "", "r.yaml:4:35: period is empty, not a duration (write whole days, hours, minutes or seconds, such as 10s, 1m, 1h30m or 7d)"},
	{"period is a float", withLimits("[{threshold: 5, period: 1.5}]"), "", "r.yaml:4:35: period is the number 1.5, not a duration (write whole days, hours, minutes or seconds, such as 10s, 1m, 1h30m or 7d)"},
	{"period is a list", withLimits("[{threshold: 5, period: [1m]}]"), "", "r.yaml:4:35: period is a list, not a duration (write whole days, hours, minutes or seconds, such as 10s, 1m, 1h30m or 7d)"},
	{"period twice", withLimits("[{threshold: 5, period: 60s}, {threshold: 9, period: 1m}]"), unique, "r.yaml:4:64: another limit of this rule has the period 1m (a rule has one threshold for each period)"},

	// Actions and responses.
	{"mitigation timeout of eight days", withKeys("mitigation_timeout: 8d"), shape, "r.yaml:5:23: mitigation_timeout cannot be 8d (must be from 0 to 7d)"},
	{"mitigation timeout without unit", withKeys("mitigation_timeout: 600"), "", "r.yaml:5:23: mitigation_timeout cannot be 600 (write whole days, hours, minutes or seconds, such as 10s, 1m, 1h30m or 7d)"},
	{"mitigation timeout is null", withKeys("mitigation_timeout: ~"), "", "r.yaml:5:23: mitigation_timeout is empty, not a duration (write whole days, hours, minutes or seconds, such as 10s, 1m, 1h30m or 7d)"},
	{"action with a typo", withKeys("action: shadowban"), "", `r.yaml:5:11: action cannot be "shadowban" (did you mean shadow_ban?)`},
	{"action unknown", withKeys("action: challenge"), "", `r.yaml:5:11: action cannot be "challenge" (write log, shed, shadow_ban, block or close)`},
	{"action on", withKeys("action: on"), "", `r.yaml:5:11: action cannot be "on" (write log, shed, shadow_ban, block or close)`},
	{"action is a truth value", withKeys("action: true"), "", "r.yaml:5:11: action is the truth value true, not a string (write log, shed, shadow_ban, block or close)"},
	{"on_failure with a typo", withKeys("on_failure: close"), "", `r.yaml:5:15: on_failure cannot be "close" (did you mean closed?)`},
	{"on_failure unknown", withKeys("on_failure: pass"), "", `r.yaml:5:15: on_failure cannot be "pass" (write local, open or closed)`},
	{"on_failure is a list", withKeys("on_failure: [open]"), "", "r.yaml:5:15: on_failure is a list, not a string (write local, open or closed)"},
	{"on_failure misspelled", withKeys("on_falure: open"), "", `r.yaml:5:3: unknown key "on_falure" in this rule (did you mean on_failure?)`},
	{"response is a number", withKeys("response: 429"), "", "r.yaml:5:13: response is the number 429, not a mapping (write response: {status: 429, body: too many requests})"},
	{"unknown key in response", withKeys("response: {code: 429}"), "", `r.yaml:5:14: unknown key "code" in response (the keys are status, content_type, body, headers, origins and max_retry_after)`},
	{"unknown key in response with a likely one", withKeys("response: {content-typ: text/html}"), "", `r.yaml:5:14: unknown key "content-typ" in response (did you mean content_type?)`},
	{"response status 199", withKeys("response: {status: 199}"), "", "r.yaml:5:22: status cannot be 199 (write a whole number from 200 to 599)"},
	{"response status 600", withKeys("response: {status: 600}"), "", "r.yaml:5:22: status cannot be 600 (write a whole number from 200 to 599)"},
	{"response status in octal", withKeys("response: {status: 0644}"), spelling, "r.yaml:5:22: status cannot be 0644 (write a whole number from 200 to 599, in plain decimal digits)"},
	{"body is a number", withKeys("response: {body: 42}"), "", `r.yaml:5:20: body is the number 42, not a string (quote it: "42")`},
	{"body of 64 KiB and a byte", withKeys("response: {body: " + strings.Repeat("x", 64<<10+1) + "}"), "", "r.yaml:5:20: body has 65537 bytes (at most 65536 are allowed)"},
	{"body of 64 KiB and a byte in fewer characters", withKeys("response: {body: " + strings.Repeat("é", 32<<10) + "x}"), size, "r.yaml:5:20: body has 65537 bytes (at most 65536 are allowed)"},
	{"body of a status without one", withKeys("response: {status: 204, body: x}"), "", "r.yaml:5:33: a response of status 204 has no body (leave the body out, or use another status)"},
	{"body before a status without body", withKeys("response:", "  body: |", "    x", "  status: 304"), "", "r.yaml:6:11: a response of status 304 has no body (leave the body out, or use another status)"},
	{"placeholder with a hyphen", withKeys("response: {body: 'wait {retry-after} s'}"), shape, "r.yaml:5:20: unknown placeholder {retry-after} in body (use {id} or {retry_after})"},
	{"placeholders in capitals in a block", withKeys("response:", "  body: |", "    é {id}", "    {\"id\": \"{ID}\", \"retry\": {retryAfter}}"), shape,
		"r.yaml:6:11: unknown placeholder {ID} in body (use {id} or {retry_after})\nr.yaml:6:11: unknown placeholder {retryAfter} in body (use {id} or {retry_after})"},
	{"placeholder that betrays a shadow ban", withKeys("action: shadow_ban", "response: {body: 'hello {id}'}"), shape,
		"r.yaml:6:20: a shadow_ban must not be noticeable, but its body has {id} or {retry_after} (leave the placeholders out, or write action: block)"},
	{"header that the node sets", withKeys("response: {headers: {content-type: text/html}}"), "", "r.yaml:5:24: nodes and proxies set the header content-type themselves (write content_type)"},
	{"header for Retry-After", withKeys("response: {headers: {Retry-After: '60'}}"), "", "r.yaml:5:24: nodes and proxies set the header Retry-After themselves (write max_retry_after to bound it)"},
	{"header with a quota", withKeys("response: {headers: {X-RateLimit-Limit: '60'}}"), shape, "r.yaml:5:24: nodes and proxies set the header X-RateLimit-Limit themselves (leave it out)"},
	{"header of a hop", withKeys("response: {headers: {Connection: close}}"), "", "r.yaml:5:24: nodes and proxies set the header Connection themselves (leave it out)"},
	{"header with an underscore", withKeys("response: {headers: {X_A: b}}"), "", `r.yaml:5:24: the name of a header cannot be "X_A" (use letters, digits and hyphens, starting with a letter)`},
	{"header with a line break in its name", withKeys(`response: {headers: {"A\r\nB": b}}`), "", `r.yaml:5:24: the name of a header cannot be "A\r\nB" (use letters, digits and hyphens, starting with a letter)`},
	{"header with a line break", withKeys(`response: {headers: {A: "b\r\nSet-Cookie: c=d"}}`), "", `r.yaml:5:27: A cannot be "b\r\nSet-Cookie: c=d" (use printable ASCII characters, with no blank at either end)`},
	{"header that is empty", withKeys(`response: {headers: {A: ""}}`), "", `r.yaml:5:27: A cannot be "" (use printable ASCII characters, with no blank at either end)`},
	{"header that is a number", withKeys(`response: {headers: {A: 5}}`), "", `r.yaml:5:27: A is the number 5, not a string (quote it: "5")`},
	{"header twice", withKeys("response: {headers: {Vary: a, vary: b}}"), shape, "r.yaml:5:33: the header vary is in headers twice (remove one of them)"},
	{"headers are a list", withKeys("response: {headers: [Vary]}"), "", `r.yaml:5:23: headers is a list, not a mapping (write headers: {Access-Control-Allow-Origin: "*"})`},
	{"17 headers", withKeys("response: {headers: {" + seventeen + "}}"), "", "r.yaml:5:23: there are 17 headers with 119 bytes (at most 16 headers with 2048 bytes are allowed)"},
	{"headers of 2 KiB and a byte", withKeys("response: {headers: {A: " + strings.Repeat("b", 2044) + "}}"), size, "r.yaml:5:23: there are 1 headers with 2049 bytes (at most 16 headers with 2048 bytes are allowed)"},
	{"placeholder of a header, misspelled", withKeys(`response: {origins: ["https://a.example"], headers: {A: "{orgin}"}}`), "", "r.yaml:5:59: unknown placeholder {orgin} in header A (use {id} or {retry_after} or {origin})"},
	{"header that betrays a shadow ban", withKeys("action: shadow_ban", `response: {headers: {A: "x{retry_after}"}}`), shape,
		"r.yaml:6:27: a shadow_ban must not be noticeable, but its header A has {id} or {retry_after} (leave the placeholders out, or write action: block)"},
	{"origin without origins", withKeys(`response: {headers: {A: "{origin}"}}`), "", "r.yaml:5:23: headers have {origin}, but there are no origins (add origins: [https://app.example.com] to the response)"},
	{"origins without a header", withKeys("response: {origins: [https://app.example.com]}"), "",
		`r.yaml:5:23: the response has origins, but no header with {origin} (add Access-Control-Allow-Origin: "{origin}" to headers, or leave origins out)`},
	{"no origins", withKeys("response: {origins: []}"), "", "r.yaml:5:23: origins is an empty list (write [https://app.example.com])"},
	{"origin with a path", withKeys("response: {origins: [https://app.example.com/]}"), "", wrongOrigin("https://app.example.com/")},
	{"origin in capitals", withKeys("response: {origins: [https://App.example.com]}"), "", wrongOrigin("https://App.example.com")},
	{"every origin", withKeys(`response: {origins: ["*"]}`), "", wrongOrigin("*")},
	{"origin of every scheme", withKeys(`response: {origins: ["https://*"]}`), "", wrongOrigin("https://*")},
	{"origin with the default port", withKeys("response: {origins: ['https://app.example.com:443']}"), "", wrongOrigin("https://app.example.com:443")},
	{"origin twice", withKeys(`response: {headers: {A: "{origin}"}, origins: [https://a.example, https://a.example]}`), "", "r.yaml:5:69: the origin https://a.example is listed twice (remove one of them)"},
	{"no retry", withKeys("response: {max_retry_after: 0}"), "", "r.yaml:5:31: max_retry_after cannot be 0 (must be from 1s to 7d)"},
	{"quota as text", withKeys("ratelimit_headers: none"), "", `r.yaml:5:22: ratelimit_headers is the string "none", not true or false (write ratelimit_headers: false to keep the rule's quota out of RateLimit and X-RateLimit)`},
	{"content type empty", withKeys(`response: {content_type: ""}`), "", `r.yaml:5:28: content_type cannot be "" (write a type such as text/html or application/json)`},
	{"content type of one word", withKeys("response: {content_type: html}"), "", `r.yaml:5:28: content_type cannot be "html" (write a type such as text/html or application/json)`},
	{"content type with a line break", withKeys(`response: {content_type: "text/html\r\nSet-Cookie: a=b"}`), "", "r.yaml:5:28: content_type cannot be \"text/html\\r\\nSet-Cookie: a=b\" (write a type such as text/html or application/json)"},
	{"content type with a control character", withKeys(`response: {content_type: "text/html; a=\"\x01\""}`), "", "r.yaml:5:28: content_type cannot be \"text/html; a=\\\"\\x01\\\"\" (write a type such as text/html or application/json)"},
	{"content type with an umlaut", withKeys(`response: {content_type: "text/html; a=ü"}`), "", `r.yaml:5:28: content_type cannot be "text/html; a=ü" (write a type such as text/html or application/json)`},
	{"content type with a bad parameter", withKeys(`response: {content_type: "text/html; charset"}`), shape, `r.yaml:5:28: content_type cannot be "text/html; charset" (write a type such as text/html or application/json)`},
	{"content type with a blank in front", withKeys(`response: {content_type: " text/html"}`), "", `r.yaml:5:28: content_type cannot be " text/html" (write a type such as text/html or application/json)`},

	// Several errors, in the order of the file.
	{"errors in all parts", "deny: [x]\nrules:\n- id: a b\n  limits: [{threshold: 0, period: 1}]\n  action: blok\n- id: b\n  id: c\n  characteristics: [ip, {header: host}]\n  limits: [{period: 1m, threshold: x}, {threshold: 1, period: 1m}]\nallow: [y, deny]\nfoo: 1\n", "", lines(
		`r.yaml:1:8: "x" is not a network (write a network such as 192.0.2.0/24 or 2001:db8::/32, or one address)`,
		"r.yaml:3:3: this rule has no characteristics (write characteristics: [ip] to count each client separately)",
		`r.yaml:3:7: id cannot be "a b" (an ID has 1 to 64 letters, digits, dots, hyphens and underscores, and begins with a letter or digit)`,
		"r.yaml:4:24: threshold cannot be 0 (to turn the rule off, write enabled: false; to refuse everything, list networks in deny; otherwise write 1 or more)",
		"r.yaml:4:35: period cannot be 1 (write whole days, hours, minutes or seconds, such as 10s, 1m, 1h30m or 7d)",
		`r.yaml:5:11: action cannot be "blok" (did you mean block?)`,
		"r.yaml:7:3: id is in this rule twice, first on line 6 (remove one of them)",
		"r.yaml:8:34: the host is a separate characteristic, not a header (write host or, in a match, hosts: [example.com])",
		`r.yaml:9:36: threshold is the string "x", not a whole number (write a whole number from 1 to 9007199254740992)`,
		"r.yaml:9:63: another limit of this rule has the period 1m (a rule has one threshold for each period)",
		`r.yaml:10:9: "y" is not a network (write a network such as 192.0.2.0/24 or 2001:db8::/32, or one address)`,
		`r.yaml:10:12: "deny" is not a network (write a network such as 192.0.2.0/24 or 2001:db8::/32, or one address)`,
		`r.yaml:11:1: unknown key "foo" in the file (the keys are rules, allow, deny, networks and labels)`,
	)},
	{"errors in what several rules share", "rules:\n- id: a\n  characteristics: &c [ipp]\n  limits: &l [{threshold: 0, period: 1m}]\n- {id: b, characteristics: *c, limits: *l}\n", "", lines(
		`r.yaml:3:24: unknown characteristic "ipp" (write ip, host, path, method, header:NAME, cookie:NAME, query:NAME, label:NAME, network:24/48 or {first: [cookie:sid, ip]})`,
		"r.yaml:4:27: threshold cannot be 0 (to turn the rule off, write enabled: false; to refuse everything, list networks in deny; otherwise write 1 or more)",
	)},
	{"more errors than are shown", "allow: [" + strings.Repeat("x, ", 30) + "]\n", "", lines(
		`r.yaml:1:9: "x" is not a network (write a network such as 192.0.2.0/24 or 2001:db8::/32, or one address)`,
		`r.yaml:1:12: "x" is not a network (write a network such as 192.0.2.0/24 or 2001:db8::/32, or one address)`,
		`r.yaml:1:15: "x" is not a network (write a network such as 192.0.2.0/24 or 2001:db8::/32, or one address)`,
		`r.yaml:1:18: "x" is not a network (write a network such as 192.0.2.0/24 or 2001:db8::/32, or one address)`,
		`r.yaml:1:21: "x" is not a network (write a network such as 192.0.2.0/24 or 2001:db8::/32, or one address)`,
		`r.yaml:1:24: "x" is not a network (write a network such as 192.0.2.0/24 or 2001:db8::/32, or one address)`,
		`r.yaml:1:27: "x" is not a network (write a network such as 192.0.2.0/24 or 2001:db8::/32, or one address)`,
		`r.yaml:1:30: "x" is not a network (write a network such as 192.0.2.0/24 or 2001:db8::/32, or one address)`,
		`r.yaml:1:33: "x" is not a network (write a network such as 192.0.2.0/24 or 2001:db8::/32, or one address)`,
		`r.yaml:1:36: "x" is not a network (write a network such as 192.0.2.0/24 or 2001:db8::/32, or one address)`,
		`r.yaml:1:39: "x" is not a network (write a network such as 192.0.2.0/24 or 2001:db8::/32, or one address)`,
		`r.yaml:1:42: "x" is not a network (write a network such as 192.0.2.0/24 or 2001:db8::/32, or one address)`,
		`r.yaml:1:45: "x" is not a network (write a network such as 192.0.2.0/24 or 2001:db8::/32, or one address)`,
		`r.yaml:1:48: "x" is not a network (write a network such as 192.0.2.0/24 or 2001:db8::/32, or one address)`,
		`r.yaml:1:51: "x" is not a network (write a network such as 192.0.2.0/24 or 2001:db8::/32, or one address)`,
		`r.yaml:1:54: "x" is not a network (write a network such as 192.0.2.0/24 or 2001:db8::/32, or one address)`,
		`r.yaml:1:57: "x" is not a network (write a network such as 192.0.2.0/24 or 2001:db8::/32, or one address)`,
		`r.yaml:1:60: "x" is not a network (write a network such as 192.0.2.0/24 or 2001:db8::/32, or one address)`,
		`r.yaml:1:63: "x" is not a network (write a network such as 192.0.2.0/24 or 2001:db8::/32, or one address)`,
		`r.yaml:1:66: "x" is not a network (write a network such as 192.0.2.0/24 or 2001:db8::/32, or one address)`,
		"r.yaml: too many errors; the rest are not shown",
	)},
}

// lines returns the lines of an error with several.
func lines(lines ...string) string { return strings.Join(lines, "\n") }

// seventeen headers, in flow style.
const seventeen = "A0: b, A1: b, A2: b, A3: b, A4: b, A5: b, A6: b, A7: b, A8: b, A9: b, B0: b, B1: b, B2: b, B3: b, B4: b, B5: b, B6: b"

// wrongOrigin returns the error about an origin.
func wrongOrigin(text string) string {
	return fmt.Sprintf("r.yaml:5:24: an origin cannot be %q (write it as browsers do, such as https://app.example.com or https://*.example.com:8443: "+
		"in lower case, without a path or the default port)", text)
}
