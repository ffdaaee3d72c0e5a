package operate

import (
	"encoding/json"
	"net/netip"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/edgelimit/edge/internal/golden"
	"github.com/edgelimit/edge/rule"
)

// object is a JSON object; its keys are written in order.
type object = map[string]any

// The description has every route of the API with its parameters, answers and their fields, as the
// code has them.
func TestOpenAPI(t *testing.T) {
	got, err := json.MarshalIndent(describeAPI(t), "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	golden.Check(t, "openapi.json", append(got, '\n'))
	page, err := os.ReadFile("../docs/api.md")
	if err != nil {
		t.Fatal(err)
	}
	for i := range routes {
		if path := strings.ReplaceAll(routes[i].path, "{key}", "KEY"); !strings.Contains(string(page), "`"+path+"`") {
			t.Errorf("docs/api.md does not mention %s", path)
		}
	}
}

// describeAPI returns the description of the routes.
func describeAPI(t *testing.T) object {
	t.Helper()
	schemas := object{}
	paths := object{}
	for i := range routes {
		r := &routes[i]
		if paths[r.path] == nil {
			paths[r.path] = object{}
		}
		operation := object{
			"operationId": r.name(),
			"summary":     r.summary,
			"parameters":  parameters(t, r),
			"responses":   responses(t, r, schemas),
		}
		if r.change {
			operation["security"] = []object{{"token": []string{}}}
		}
		paths[r.path].(object)[strings.ToLower(r.method)] = operation
	}
	schemaOf(t, reflect.TypeFor[failure](), schemas)
	return object{
		"openapi": "3.1.0",
		"info": object{
			"title":       "edge: the API of a node for its operators",
			"version":     "v1",
			"description": "Operations that change something need a token, Authorization: Bearer TOKEN. If the listener is not on the loopback interface, so do all others. Parameters of POST may also be a form in the body. Fields and parameters may be added.",
		},
		"servers":    []object{{"url": "http://127.0.0.1:9190"}},
		"security":   []object{{}, {"token": []string{}}},
		"paths":      paths,
		"components": object{"schemas": schemas, "securitySchemes": object{"token": object{"type": "http", "scheme": "bearer"}}},
	}
}

func responses(t *testing.T, r *route, schemas object) object {
	content := func(schema object) object { return object{"application/json": object{"schema": schema}} }
	failed := func(text string) object {
		return object{"description": text, "content": content(object{"$ref": "#/components/schemas/failure"})}
	}
	all := object{
		"200": object{"description": "done", "content": content(schemaOf(t, r.result, schemas))},
		"400": failed("a parameter is invalid, or the operation is not possible"),
		"401": failed("missing or invalid token"),
		"403": failed("the request names another host, or comes from another site's page"),
		"503": failed("too many concurrent requests"),
	}
	if r.params.NumField() > 0 && !r.unfailing() {
		all["404"] = failed("there is nothing by that name")
	}
	return all
}

// unfailing reports whether the parameters of r name nothing.
func (r *route) unfailing() bool { return r.params == reflect.TypeFor[why]() }

func parameters(t *testing.T, r *route) []object {
	all := []object{}
	for i := range r.params.NumField() {
		f := r.params.Field(i)
		name, doc := f.Tag.Get("query"), f.Tag.Get("doc")
		if name == "" || doc == "" {
			t.Errorf("%s %s: parameter %s has no name or no doc", r.method, r.path, f.Name)
		}
		p := object{"name": name, "in": "query", "description": doc, "schema": parameterOf(t, f)}
		if strings.Contains(r.path, "{"+name+"}") {
			p["in"], p["required"] = "path", true
		}
		if f.Tag.Get("required") != "" {
			p["required"] = true
		}
		if name == "*" {
			p["name"], p["style"], p["explode"] = "values", "form", true
		}
		all = append(all, p)
	}
	return all
}

func parameterOf(t *testing.T, f reflect.StructField) object {
	s := object{"type": "string"}
	switch f.Type {
	case reflect.TypeFor[bool]():
		s = object{"type": "boolean"}
	case reflect.TypeFor[int]():
		s = object{"type": "integer", "minimum": 1}
		if most := f.Tag.Get("max"); most != "" {
			s["maximum"] = json.Number(most)
		}
	case reflect.TypeFor[map[string]string]():
		s = object{"type": "object", "additionalProperties": object{"type": "string"}}
	case reflect.TypeFor[string](), reflect.TypeFor[netip.Prefix](), reflect.TypeFor[time.Duration]():
	default:
		t.Errorf("parameter %s has the type %v", f.Name, f.Type)
	}
	return enumerated(s, f)
}

func enumerated(s object, f reflect.StructField) object {
	if values := f.Tag.Get("enum"); values != "" {
		s["enum"] = strings.Split(strings.Replace(values, "ACTIONS", strings.Join(rule.ActionNames(), ","), 1), ",")
	}
	return s
}

// schemaOf returns the schema of the JSON of a type; structs with a name are in schemas.
func schemaOf(t *testing.T, of reflect.Type, schemas object) object {
	switch of {
	case reflect.TypeFor[time.Time]():
		return object{"type": "string", "format": "date-time"}
	case reflect.TypeFor[json.RawMessage]():
		return object{"type": "object"}
	}
	switch of.Kind() {
	case reflect.String:
		return object{"type": "string"}
	case reflect.Bool:
		return object{"type": "boolean"}
	case reflect.Int, reflect.Int64:
		return object{"type": "integer"}
	case reflect.Uint64:
		return object{"type": "integer", "minimum": 0}
	case reflect.Float64:
		return object{"type": "number"}
	case reflect.Pointer:
		return schemaOf(t, of.Elem(), schemas)
	case reflect.Slice:
		return object{"type": "array", "items": schemaOf(t, of.Elem(), schemas)}
	case reflect.Map:
		return object{"type": "object", "additionalProperties": schemaOf(t, of.Elem(), schemas)}
	case reflect.Struct:
	default:
		t.Fatalf("no schema for %v", of)
	}
	reference := object{"$ref": "#/components/schemas/" + of.Name()}
	if schemas[of.Name()] != nil {
		return reference
	}
	s, fields, required := object{"type": "object", "additionalProperties": false}, object{}, []string{}
	schemas[of.Name()] = s
	for i := range of.NumField() {
		f := of.Field(i)
		name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		if name == "" {
			t.Errorf("field %s of %v has no name in JSON", f.Name, of)
		}
		field := enumerated(schemaOf(t, f.Type, schemas), f)
		if doc := f.Tag.Get("doc"); doc != "" {
			field["description"] = doc
		}
		fields[name] = field
		if options == "" {
			required = append(required, name)
		}
	}
	slices.Sort(required)
	s["properties"], s["required"] = fields, required
	return reference
}
