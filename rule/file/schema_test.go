package file_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/edgelimit/edge/counter"
	"github.com/edgelimit/edge/internal/strictyaml"
	rulefile "github.com/edgelimit/edge/rule/file"
	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/santhosh-tekuri/jsonschema/v6"
	"go.yaml.in/yaml/v4"
	"pgregory.net/rapid"
)

// schema returns Schema, compiled and as a JSON value.
func schema(t *testing.T) (*jsonschema.Schema, map[string]any) {
	t.Helper()
	value, err := jsonschema.UnmarshalJSON(bytes.NewReader(rulefile.Schema))
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

// objects are files that contain an object with one key, by the object's name in the schema.
var objects = map[string]string{
	"": "{%s}", "rule": "rules: [{%s}]", "match": "rules: [{match: {%s}}]", "exception": "rules: [{except: {%s}}]",
	"network_file": "networks: {a: {%s}}", "count": "rules: [{count: {%s}}]", "characteristic": "rules: [{characteristics: [{%s}]}]",
	"limit": "rules: [{limits: [{%s}]}]", "response": "rules: [{response: {%s}}]",
}

// definition returns an object of the schema.
func definition(t *testing.T, root map[string]any, object string) map[string]any {
	t.Helper()
	of := any(root)
	if object != "" {
		of = at(t, root, "$defs", object)
	}
	if object == "characteristic" { // the other choices are strings
		choices := at(t, of, "anyOf").([]any)
		of = choices[len(choices)-1]
	}
	return of.(map[string]any)
}

// The parser's errors list the keys and the words that it knows.
func TestSchemaHasTheKeysAndWordsOfTheParser(t *testing.T) {
	_, root := schema(t)
	between := regexp.MustCompile(`, | and | or `)
	sorted := cmpopts.SortSlices(strings.Compare)
	for object, file := range objects {
		of := definition(t, root, object)
		errorOf := func(pair string) string {
			_, err := rulefile.Parse("r.yaml", fmt.Appendf(nil, file, pair))
			return fmt.Sprint(err)
		}
		said := errorOf("zzzzzzzzzz: 0")
		keys := regexp.MustCompile(`unknown key "zzzzzzzzzz" in (.*) \(the keys are (.*)\)`).FindStringSubmatch(said)
		if keys == nil {
			t.Fatalf("the error of an unknown key of %q does not list keys: %s", object, said)
		}
		properties := at(t, of, "properties").(map[string]any)
		if diff := cmp.Diff(between.Split(keys[2], -1), slices.Collect(maps.Keys(properties)), sorted); diff != "" {
			t.Errorf("keys of %q (-parser +schema):\n%s", object, diff)
		}
		var required, needed []string
		for _, has := range regexp.MustCompile(": "+keys[1]+` has no (\w+) `).FindAllStringSubmatch(said, -1) {
			required = append(required, has[1])
		}
		if len(required) > 0 {
			needed = words(at(t, of, "required"))
		}
		if diff := cmp.Diff(required, needed, sorted); diff != "" {
			t.Errorf("required keys of %q (-parser +schema):\n%s", object, diff)
		}
		if more := at(t, of, "additionalProperties"); more != false {
			t.Errorf("additionalProperties of %q = %v, want false", object, more)
		}
		for key, property := range properties {
			if enum, ok := property.(map[string]any)["enum"]; ok && key != "sub_windows" { // a word or a number
				list := regexp.MustCompile(`: ` + key + ` is a list, not a string \(write (.*)\)`).FindStringSubmatch(errorOf(key + ": []"))
				if list == nil {
					t.Errorf("%s of %q is not a choice", key, object)
				} else if diff := cmp.Diff(between.Split(list[1], -1), words(enum), sorted); diff != "" {
					t.Errorf("words of %s of %q (-parser +schema):\n%s", key, object, diff)
				}
			}
		}
	}
	for i, each := range at(t, root, "$defs", "limit", "allOf").([]any) {
		layout, _ := counter.LayoutOf(counter.MaxFields - i)
		got := fmt.Sprintln(at(t, each, "if", "properties", "sub_windows", "const"), at(t, each, "then", "properties", "threshold", "maximum"))
		if want := fmt.Sprintln(layout.Fields, layout.MaxThreshold()); got != want {
			t.Errorf("the greatest threshold for sub-windows is %s, want %s", got, want)
		}
	}
}

// load returns the root of a YAML document, or nil if there is none that a schema could look at.
func load(text string) *yaml.Node {
	docs, err := strictyaml.Documents([]byte(strings.TrimPrefix(text, "\ufeff")), 2)
	if err != nil || len(docs) != 1 {
		return nil
	}
	return docs[0].Content[0]
}

// document returns the JSON value of a YAML document as editors see it: without tags and spellings,
// and with only the last of duplicate keys. It returns false if there is no such value.
func document(n *yaml.Node, depth int) (any, bool) {
	if n == nil || depth > 20 { // it contains itself
		return nil, false
	}
	switch n.Kind {
	case yaml.AliasNode:
		return document(n.Alias, depth+1)
	case yaml.SequenceNode:
		list := []any{}
		for _, each := range n.Content {
			v, ok := document(each, depth+1)
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
			v, ok := document(n.Content[i+1], depth+1)
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

func TestSchemaAcceptsValidFiles(t *testing.T) {
	schema, _ := schema(t)
	for _, test := range valid {
		doc, ok := document(load(test.text), 0)
		if !ok {
			t.Errorf("%s: %q is not a document", test.name, test.text)
		} else if err := schema.Validate(doc); err != nil {
			t.Errorf("%s: the schema refuses %q: %v", test.name, test.text, err)
		}
	}
}

func TestSchemaRefusesInvalidFiles(t *testing.T) {
	schema, _ := schema(t)
	for _, test := range invalid {
		doc, ok := document(load(test.text), 0)
		if !ok {
			if test.onlyParser != noDocument {
				t.Errorf("%s: %q is not a document, and its row does not say so", test.name, test.text)
			}
			continue
		}
		switch err := schema.Validate(doc); {
		case test.onlyParser == "" && err == nil:
			t.Errorf("%s: the schema accepts %q, which the parser refuses:\n%s", test.name, test.text, test.want)
		case test.onlyParser != "" && err != nil && test.onlyParser != noDocument:
			t.Errorf("%s: the schema refuses %q, although %s: %v", test.name, test.text, test.onlyParser, err)
		}
	}
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
	"present", "absent", `"~a("`, `"~"`, "{accept: present}", "{accept: [a], Accept: [b]}", `"*.php"`, `"*/a"`, `"/*/a"`, `"/**"`,
	"auto", "2", "3", "4", "6", "96", "97", "384", "385", "6145", "196609", "402653185", "weighted", "fixed", "whole_oldest",
}

// all returns n and everything in it, except for keys.
func all(n *yaml.Node) []*yaml.Node {
	list := []*yaml.Node{n}
	for i, each := range n.Content {
		if n.Kind == yaml.SequenceNode || i%2 == 1 {
			list = append(list, all(each)...)
		}
	}
	return list
}

// mutate changes one thing in the document root.
func mutate(t *rapid.T, root *yaml.Node, names []string) {
	n := rapid.SampledFrom(all(root)).Draw(t, "at")
	edge := func() *yaml.Node { return load(rapid.SampledFrom(edges).Draw(t, "edge")) }
	key := func() *yaml.Node {
		return &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: rapid.SampledFrom(names).Draw(t, "key")}
	}
	width := 1 // nodes per element
	if n.Kind == yaml.MappingNode {
		width = 2
	}
	if len(n.Content) == 0 || rapid.IntRange(0, 2).Draw(t, "replace") == 0 {
		*n = *edge()
		return
	}
	i := width * rapid.IntRange(0, len(n.Content)/width-1).Draw(t, "child")
	switch rapid.IntRange(0, 3).Draw(t, "change") {
	case 0: // drop
		n.Content = slices.Delete(n.Content, i, i+width)
	case 1: // twice
		n.Content = append(n.Content, n.Content[i:i+width]...)
	case 2: // another key
		if width == 2 {
			n.Content[i] = key()
		}
	default: // one more
		if width == 2 {
			n.Content = append(n.Content, key())
		}
		n.Content = append(n.Content, edge())
	}
}

// onlyParser has words from the messages and hints of errors that no schema can find.
var onlyParser = []string{
	" twice",                                                            // after values are made canonical
	"there is already ", "there are already ", " is already listed at ", // IDs and networks
	"another limit of this rule", "a sub-window lasts", // periods
	"is tagged", "is the date", // tags
	"in plain decimal digits", // spellings of numbers
	"must be from",            // lengths of periods
	"there is no network set", "there are no labels", "rules that are not in a file cannot",
	"matches no request",                                    // paths
	"address within", "24 or 2001:db8::/32, or one address", // networks
	`is not a host (write a name such as example.com or "*.example.com", or an address)`, // IPv6
	"write a type such as text/html", // parameters
	"a rule with sub_windows cannot", // auto may be 1
	"cannot have the pattern", "is not an expression",
}

// shared are rules with characteristics that clients share, and with alternatives.
var shared = []string{
	"rules: [{id: a, characteristics: [network:32/56], limits: [{threshold: 5, period: 1m}]}]",
	"rules: [{id: a, characteristics: [network:24/48, host], limits: [{threshold: 5, period: 1m}], min_clients: 2, action: shed}]",
	"rules: [{id: a, characteristics: [{first: [cookie:sid, {header: x, missing: skip}, ip]}], limits: [{threshold: 5, period: 1m}]}]",
	"rules: [{id: a, characteristics: [host], limits: [{threshold: 5, period: 1m}], action: shed, count: {cost: 2}}]",
	"rules: [{id: a, match: {headers: {accept: [a, '~b']}, query: {a: present}, paths: ['/a/*/b', '*.php']}, except: {cookies: {a: absent}}, characteristics: [ip], limits: [{threshold: 5, period: 1m}]}]",
}

func TestSchemaAgreesWithTheParser(t *testing.T) {
	schema, root := schema(t)
	texts := slices.Clone(shared)
	for _, test := range valid {
		if len(test.text) < 4096 && !strings.ContainsAny(test.text, "&*%") {
			texts = append(texts, test.text)
		}
	}
	names := []string{"host", "x", ""}
	for object := range objects {
		names = slices.AppendSeq(names, maps.Keys(at(t, definition(t, root, object), "properties").(map[string]any)))
	}
	slices.Sort(names)
	rapid.Check(t, func(t *rapid.T) {
		root := load(rapid.SampledFrom(texts).Draw(t, "valid document"))
		for range rapid.IntRange(1, 10).Draw(t, "changes") {
			mutate(t, root, names)
			text, err := yaml.Marshal(root)
			if err != nil {
				t.Fatal(err)
			}
			checkAgreement(t, schema, string(text))
		}
	})
}

// repeatsKey reports whether a mapping in n has the same key twice.
func repeatsKey(n *yaml.Node, depth int) bool {
	if depth > 20 { // it contains itself
		return false
	}
	seen := map[string]bool{}
	for i, inner := range n.Content {
		if n.Kind == yaml.MappingNode && i%2 == 0 {
			if seen[inner.Value] {
				return true
			}
			seen[inner.Value] = true
		}
		if repeatsKey(inner, depth+1) {
			return true
		}
	}
	return false
}

// checkAgreement checks that the schema refuses text if and only if the parser does, except for
// errors that only the parser can find.
func checkAgreement(t *rapid.T, schema *jsonschema.Schema, text string) {
	doc, ok := document(load(text), 0)
	if !ok {
		t.Fatalf("%s is not a document", text)
	}
	refused := schema.Validate(doc)
	_, err := rulefile.Parse("r.yaml", []byte(text))
	if err == nil && refused != nil {
		t.Fatalf("the parser accepts %s, but the schema refuses it: %v", text, refused)
	}
	if repeatsKey(load(text), 0) { // the schema sees only one of them, which may be valid
		if err == nil {
			t.Fatalf("the parser accepts %s, in which a key is repeated", text)
		}
		return
	}
	if err == nil || refused != nil {
		return
	}
	var errs rulefile.Errors
	if !errors.As(err, &errs) {
		t.Fatal(err)
	}
	for _, e := range errs {
		if !slices.ContainsFunc(onlyParser, func(words string) bool { return strings.Contains(e.Error(), words) }) {
			t.Errorf("the schema accepts %s, but the parser refuses it: %v", text, e)
		}
	}
}
