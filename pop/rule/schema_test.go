package rule_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/edgelimit/edge/counter"
	"github.com/edgelimit/edge/pop/rule"
	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/santhosh-tekuri/jsonschema/v6"
	"go.yaml.in/yaml/v4"
	"pgregory.net/rapid"
)

// schema returns Schema, ready to validate and as a value.
func schema(t *testing.T) (*jsonschema.Schema, map[string]any) {
	t.Helper()
	value, err := jsonschema.UnmarshalJSON(bytes.NewReader(rule.Schema))
	if err != nil {
		t.Fatalf("Schema is not JSON: %v", err)
	}
	c := jsonschema.NewCompiler()
	if err := c.AddResource("rules.json", value); err != nil {
		t.Fatal(err)
	}
	compiled, err := c.Compile("rules.json")
	if err != nil {
		t.Fatalf("Schema is not a schema: %v", err)
	}
	return compiled, value.(map[string]any)
}

// at returns what is in a JSON value at a path of keys.
func at(t *testing.T, value any, path ...string) any {
	t.Helper()
	for _, key := range path {
		object, ok := value.(map[string]any)
		if !ok || object[key] == nil {
			t.Fatalf("the schema has no %q in %q", key, path)
		}
		value = object[key]
	}
	return value
}

// words returns the strings of a JSON array.
func words(value any) []string {
	var list []string
	for _, each := range value.([]any) {
		list = append(list, each.(string))
	}
	return list
}

func TestSchemaHasTheKeysOfTheParser(t *testing.T) {
	_, root := schema(t)
	for object, keys := range rule.FieldNames() {
		definition := any(root)
		if object != "" {
			definition = at(t, root, "$defs", object)
		}
		if object == "characteristic" { // the other choices are strings
			choices := at(t, definition, "anyOf").([]any)
			definition = choices[len(choices)-1]
		}
		var want, required []string
		for key, need := range keys {
			want = append(want, key)
			if need {
				required = append(required, key)
			}
		}
		var got []string
		for key := range at(t, definition, "properties").(map[string]any) {
			got = append(got, key)
		}
		sorted := cmpopts.SortSlices(strings.Compare)
		if diff := cmp.Diff(want, got, sorted); diff != "" {
			t.Errorf("keys of %q (-parser +schema):\n%s", object, diff)
		}
		var needed []string
		if len(required) > 0 {
			needed = words(at(t, definition, "required"))
		}
		if diff := cmp.Diff(required, needed, sorted, cmpopts.EquateEmpty()); diff != "" {
			t.Errorf("required keys of %q (-parser +schema):\n%s", object, diff)
		}
		if more := at(t, definition, "additionalProperties"); more != false {
			t.Errorf("additionalProperties of %q = %v, want false", object, more)
		}
	}
}

func TestSchemaHasTheWordsAndBoundsOfTheParser(t *testing.T) {
	_, root := schema(t)
	defs := at(t, root, "$defs")
	choices := at(t, defs, "characteristic", "anyOf").([]any)
	mapping := choices[len(choices)-1]
	want := rule.Words()
	for _, test := range []struct {
		name string
		want []string
		got  any
	}{
		{"actions", want["action"], at(t, defs, "rule", "properties", "action", "enum")},
		{"ways to fail", want["on_failure"], at(t, defs, "rule", "properties", "on_failure", "enum")},
		{"estimates", want["estimate"], at(t, defs, "limit", "properties", "estimate", "enum")},
		{"ways to read paths", want["path_reading"], at(t, defs, "match", "properties", "path_reading", "enum")},
		{"ways to treat case", want["exact"], at(t, defs, "match", "properties", "path_case", "enum")},
		{"ways to treat trailing slashes", want["exact"], at(t, defs, "match", "properties", "path_trailing_slash", "enum")},
		{"ways to treat parameters", want["exact"], at(t, defs, "match", "properties", "path_parameters", "enum")},
		{"characteristics without name", want["unnamed"], at(t, choices[0], "enum")},
		{"ways to treat requests without a value", want["missing"], at(t, mapping, "properties", "missing", "enum")},
	} {
		if diff := cmp.Diff(test.want, words(test.got), cmpopts.SortSlices(strings.Compare)); diff != "" {
			t.Errorf("%s (-parser +schema):\n%s", test.name, diff)
		}
	}
	for i, each := range at(t, defs, "limit", "allOf").([]any) {
		layout, _ := counter.LayoutOf(counter.MaxFields - i)
		got := fmt.Sprintln(at(t, each, "if", "properties", "sub_windows", "const"), at(t, each, "then", "properties", "threshold", "maximum"))
		if want := fmt.Sprintln(layout.Fields, layout.MaxThreshold()); got != want {
			t.Errorf("the greatest threshold for sub-windows is %s, want %s", got, want)
		}
	}
	for _, kind := range want["named"] {
		at(t, mapping, "properties", kind)
	}
	for _, test := range []struct {
		want int64
		path []string
	}{
		{1, []string{"limit", "properties", "threshold", "minimum"}},
		{rule.MaxThreshold, []string{"limit", "properties", "threshold", "maximum"}},
		{rule.MinStatus, []string{"status", "minimum"}},
		{rule.MaxStatus, []string{"status", "maximum"}},
		{rule.MaxBody, []string{"response", "properties", "body", "maxLength"}},
	} {
		if got := at(t, defs, test.path...); fmt.Sprint(got) != fmt.Sprint(test.want) {
			t.Errorf("%s = %v, want %d", strings.Join(test.path, "."), got, test.want)
		}
	}
	if got, want := at(t, defs, "rule", "properties", "id", "pattern").(string), fmt.Sprintf("{0,%d}$", rule.MaxID-1); !strings.HasSuffix(got, want) {
		t.Errorf("pattern of id = %s, want one that ends in %s", got, want)
	}
}

// document returns the JSON value of a YAML document as editors see it: without tags and spellings,
// with the last of equal keys. It reports false if there is none.
func document(text string) (any, bool) {
	loader, err := yaml.NewLoader(strings.NewReader(strings.TrimPrefix(text, "\ufeff")))
	if err != nil {
		return nil, false
	}
	var doc, second yaml.Node
	if loader.Load(&doc) != nil || loader.Load(&second) == nil {
		return nil, false
	}
	return value(doc.Content[0], 0)
}

func value(n *yaml.Node, depth int) (any, bool) {
	if depth > 20 {
		return nil, false // it holds itself
	}
	switch n.Kind {
	case yaml.AliasNode:
		return value(n.Alias, depth+1)
	case yaml.SequenceNode:
		list := []any{}
		for _, each := range n.Content {
			v, ok := value(each, depth+1)
			if !ok {
				return nil, false
			}
			list = append(list, v)
		}
		return list, true
	case yaml.MappingNode:
		object := map[string]any{}
		for i := 0; i < len(n.Content); i += 2 {
			key := n.Content[i]
			if key.Kind == yaml.AliasNode {
				key = key.Alias
			}
			v, ok := value(n.Content[i+1], depth+1)
			if !ok || key.Kind != yaml.ScalarNode {
				return nil, false
			}
			object[key.Value] = v
		}
		return object, true
	}
	if tag := n.ShortTag(); tag == "!!int" || tag == "!!float" || tag == "!!bool" || tag == "!!null" {
		var v any
		if err := n.Decode(&v); err != nil {
			return n.Value, true
		}
		switch v := v.(type) {
		case float64:
			if math.IsInf(v, 0) || math.IsNaN(v) {
				return nil, true // JSON has no such number
			}
			return json.Number(strconv.FormatFloat(v, 'f', -1, 64)), true
		case int, int64, uint64:
			return json.Number(fmt.Sprint(v)), true
		default:
			return v, true
		}
	}
	return n.Value, true
}

func TestSchemaPassesWhatIsValid(t *testing.T) {
	schema, _ := schema(t)
	for _, test := range valid {
		doc, ok := document(test.text)
		if !ok {
			t.Errorf("%s: %q is no document", test.name, test.text)
		} else if err := schema.Validate(doc); err != nil {
			t.Errorf("%s: the schema refuses %q: %v", test.name, test.text, err)
		}
	}
}

func TestSchemaRefusesWhatIsInvalid(t *testing.T) {
	schema, _ := schema(t)
	for _, test := range invalid {
		doc, ok := document(test.text)
		if !ok {
			if test.onlyParser != noDocument {
				t.Errorf("%s: %q is no document, and its row does not say so", test.name, test.text)
			}
			continue
		}
		switch err := schema.Validate(doc); {
		case test.onlyParser == "" && err == nil:
			t.Errorf("%s: the schema passes %q, which the parser refuses:\n%s", test.name, test.text, test.want)
		case test.onlyParser != "" && err != nil && test.onlyParser != noDocument:
			t.Errorf("%s: the schema refuses %q, although %s: %v", test.name, test.text, test.onlyParser, err)
		}
	}
}

// A tree is a YAML document that is easy to change.
type tree struct {
	scalar string // as it stands in the file; empty for collections
	keys   []string
	kids   []*tree // values of the keys, or elements where there are none
	list   bool
}

func treeOf(n *yaml.Node) *tree {
	switch n.Kind {
	case yaml.AliasNode:
		return treeOf(n.Alias)
	case yaml.SequenceNode, yaml.MappingNode:
		c := &tree{list: n.Kind == yaml.SequenceNode}
		for i, each := range n.Content {
			if !c.list && i%2 == 0 {
				c.keys = append(c.keys, each.Value)
			} else {
				c.kids = append(c.kids, treeOf(each))
			}
		}
		return c
	}
	if n.ShortTag() == "!!str" {
		return &tree{scalar: quoted(n.Value)}
	}
	return &tree{scalar: n.Value}
}

// quoted returns s as YAML and JSON quote it.
func quoted(s string) string {
	b, err := json.Marshal(s)
	if err != nil {
		panic(err)
	}
	return string(b)
}

func (c *tree) String() string {
	if c.scalar != "" {
		return c.scalar
	}
	var parts []string
	for i, kid := range c.kids {
		if c.list {
			parts = append(parts, kid.String())
		} else {
			parts = append(parts, quoted(c.keys[i])+": "+kid.String())
		}
	}
	if c.list {
		return "[" + strings.Join(parts, ", ") + "]"
	}
	return "{" + strings.Join(parts, ", ") + "}"
}

// all returns c and everything in it.
func (c *tree) all() []*tree {
	list := []*tree{c}
	for _, kid := range c.kids {
		list = append(list, kid.all()...)
	}
	return list
}

// edges are values close to valid ones.
var edges = []string{
	"null", "true", "[]", "{}", `""`, "0", "1", "-1", "5", "199", "200", "204", "429", "599", "600", "9007199254740992", "9007199254740993",
	"1.5", "5.0", "1e3", "010", "0x10", "1_000", "+1", ".inf", "2024-01-31", "~", "on", "no", `"5"`, `"0"`,
	"0s", "1s", "1m", "60s", "7d", "7d1s", "8d", "500ms", "1w", `"60"`, "01m", "1h1h", "1m1h",
	"a", "A", "a b", `"-a"`, "block", "log", "shadow_ban", "close", "Block", "open", "local", "closed", "skip", "share",
	"ip", "host", "path", "method", "IP", "header:x", "header:Host", "cookie:a", "query:a b", `"header:"`, "header", "ip:x", `"query:"`, "Host",
	"{header: x}", "{header: X, missing: skip}", "{cookie: a, query: b}", "{missing: skip}", "{header: host}",
	"GET", "get", "GET POST", "/", `"/*"`, `"*"`, "/a", "/a/../b", "//", "/%41", `"/a?b"`, "a/b", "/.x", `"/.*"`,
	"example.com", "EXAMPLE.com", "example.com:80", `"*.example.com"`, `"*example.com"`, ".example.com", "bücher.example", `"[::1]"`, `"[0::1]"`, `"[:::1]"`, `"[1.2.3.4]"`, `"::1"`,
	"192.0.2.0/24", "192.0.2.1/24", "192.0.2.0/33", "192.0.2.300", "text/html", "text", `"text/html; a"`, `"text/html\n"`,
	"{threshold: 5, period: 1m}", "{threshold: 5, period: 60s}", "{threshold: 6, period: 1m}",
	"auto", "2", "3", "4", "6", "96", "97", "384", "385", "6145", "196609", "402653185", "weighted", "fixed", "whole_oldest",
}

// mutate changes one thing in the document root.
func mutate(t *rapid.T, root *tree, names []string) {
	c := rapid.SampledFrom(root.all()).Draw(t, "at")
	edge := func() *tree { return &tree{scalar: rapid.SampledFrom(edges).Draw(t, "edge")} }
	if len(c.kids) == 0 || rapid.IntRange(0, 2).Draw(t, "replace") == 0 {
		*c = *edge()
		return
	}
	i := rapid.IntRange(0, len(c.kids)-1).Draw(t, "child")
	switch rapid.IntRange(0, 3).Draw(t, "change") {
	case 0: // drop
		c.kids = slices.Delete(c.kids, i, i+1)
		if !c.list {
			c.keys = slices.Delete(c.keys, i, i+1)
		}
	case 1: // twice
		c.kids = append(c.kids, c.kids[i])
		if !c.list {
			c.keys = append(c.keys, c.keys[i])
		}
	case 2: // another key
		if !c.list {
			c.keys[i] = rapid.SampledFrom(names).Draw(t, "key")
		}
	default: // one more
		c.kids = append(c.kids, edge())
		if !c.list {
			c.keys = append(c.keys, rapid.SampledFrom(names).Draw(t, "key"))
		}
	}
}

// onlyParser has words of the messages and hints of errors that no schema can find.
var onlyParser = []string{
	" twice",                                           // after values are made canonical
	" already, at ",                                    // IDs and networks
	"another limit of this rule", "a sub-window lasts", // periods
	"is tagged", "is the date", // tags
	"in plain decimal digits", // spellings of numbers
	"it is from",              // lengths of periods
	"there is no network set", "there are no labels", "rules that are not in a file cannot",
	"matches no request",                                       // paths
	"address inside of", "24 or 2001:db8::/32, or one address", // networks
	`is not a host (write a name such as example.com or "*.example.com", or an address)`, // IPv6
	"write a type such as text/html", // parameters
	"a rule with sub_windows cannot", // auto may be 1
}

// shared are rules with characteristics that clients share, and with alternatives.
var shared = []string{
	"rules: [{id: a, characteristics: [network:24/48, host], limits: [{threshold: 5, period: 1m}], min_clients: 2, action: shed}]",
	"rules: [{id: a, characteristics: [{first: [cookie:sid, {header: x, missing: skip}, ip]}], limits: [{threshold: 5, period: 1m}]}]",
	"rules: [{id: a, characteristics: [host], limits: [{threshold: 5, period: 1m}], action: shed, count: {cost: 2}}]",
}

func TestSchemaAgreesWithTheParser(t *testing.T) {
	schema, _ := schema(t)
	var roots []func() *tree
	for _, test := range valid {
		if len(test.text) < 4096 {
			roots = append(roots, func() *tree { return treeOf(rule.Root([]byte(strings.TrimPrefix(test.text, "\ufeff")))) })
		}
	}
	for _, text := range shared {
		roots = append(roots, func() *tree { return treeOf(rule.Root([]byte(text))) })
	}
	names := []string{"host", "x", ""}
	for _, keys := range rule.FieldNames() {
		for key := range keys {
			names = append(names, key)
		}
	}
	slices.Sort(names)
	rapid.Check(t, func(t *rapid.T) {
		root := rapid.SampledFrom(roots).Draw(t, "valid document")()
		for range rapid.IntRange(1, 10).Draw(t, "changes") {
			mutate(t, root, names)
			checkAgreement(t, schema, root.String()+"\n")
		}
	})
}

// checkAgreement checks that the schema refuses text if and only if the parser does, except for
// errors that only the parser can find.
func checkAgreement(t *rapid.T, schema *jsonschema.Schema, text string) {
	doc, ok := document(text)
	if !ok {
		t.Fatalf("%s is no document", text)
	}
	refused := schema.Validate(doc)
	_, err := rule.Parse("r.yaml", []byte(text))
	if err == nil && refused != nil {
		t.Fatalf("the parser reads %s, the schema refuses it: %v", text, refused)
	}
	if err == nil || refused != nil || strings.Contains(err.Error(), " twice, first in line ") { // of equal keys the schema sees one
		return
	}
	var errs rule.Errors
	if !errors.As(err, &errs) {
		t.Fatal(err)
	}
	for _, e := range errs {
		if !slices.ContainsFunc(onlyParser, func(words string) bool { return strings.Contains(e.Error(), words) }) {
			t.Errorf("the schema passes %s, the parser refuses it: %v", text, e)
		}
	}
}
