package operate

import (
	"fmt"
	"net/netip"
	"net/url"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/edgelimit/edge/internal/prose"
	"github.com/edgelimit/edge/rule"
)

// Parameters of an operation are the fields of a struct. The tags of a field are the name of its parameter (query), its
// description (doc), its values (enum) and its maximum (max); required marks a parameter that must not be missing. The
// field whose name is * is a map, which takes all other parameters.

// An Invalid error describes an invalid parameter.
type Invalid string

func (i Invalid) Error() string { return string(i) }

// decode sets the fields of into, a struct, to the values of a query.
func decode(values url.Values, into reflect.Value) error {
	var known []string
	var rest reflect.Value
	for i := range into.NumField() {
		tag := into.Type().Field(i).Tag
		name := tag.Get("query")
		if name == "*" {
			rest = into.Field(i)
			continue
		}
		known = append(known, name)
		text := values.Get(name)
		if text == "" && tag.Get("required") != "" {
			return Invalid(name + " is missing: " + tag.Get("doc"))
		}
		if values.Has(name) {
			if problem := decodeOne(text, into.Field(i), tag); problem != "" {
				return Invalid(fmt.Sprintf("%s: %q %s", name, text, problem))
			}
		}
	}
	more := map[string]string{}
	for name, all := range values {
		switch {
		case len(all) > 1:
			return Invalid(fmt.Sprintf("%s is given %d times", name, len(all)))
		case slices.Contains(known, name):
		case !rest.IsValid():
			text := "this operation takes no parameters"
			if len(known) > 0 {
				text = "valid parameters are " + strings.Join(known, ", ")
			}
			return Invalid(fmt.Sprintf("unknown parameter %q: %s", name, text))
		default:
			more[name] = all[0]
		}
	}
	if rest.IsValid() {
		rest.Set(reflect.ValueOf(more))
	}
	return nil
}

// decodeOne sets a field from text, or returns what is wrong with text.
func decodeOne(text string, into reflect.Value, tag reflect.StructTag) (problem string) {
	switch to := into.Addr().Interface().(type) {
	case *string:
		*to = text
		if enum, ok := tag.Lookup("enum"); ok && text != "" && !slices.Contains(strings.Split(enum, ","), text) {
			return "is not one of " + strings.ReplaceAll(enum, ",", ", ")
		}
	case *bool:
		if !set(to)(strconv.ParseBool(text)) {
			return "is not true or false"
		}
	case *int:
		most, _ := strconv.Atoi(tag.Get("max")) // each int has a max
		if !set(to)(strconv.Atoi(text)) || *to < 1 || *to > most {
			return fmt.Sprintf("is not a whole number from 1 to %d", most)
		}
	case *time.Duration:
		if !set(to)(prose.ParseDuration(text, 0)) || *to <= 0 {
			return "is not a duration such as 90s, 2h or 1d"
		}
	case *netip.Prefix:
		if !set(to)(ParseClient(text)) {
			return "is not an address or a network such as 203.0.113.0/24"
		}
	default:
		panic(fmt.Sprintf("operate: no parameter can be a %T", to))
	}
	return ""
}

// set returns a function that sets a field to a parser's result, and reports whether the parser succeeded.
func set[T any](to *T) func(v T, err error) bool {
	return func(v T, err error) bool {
		*to = v
		return err == nil
	}
}

// ParseClient parses the address or the network of clients.
func ParseClient(text string) (netip.Prefix, error) {
	if addr, err := netip.ParseAddr(text); err == nil {
		addr = rule.ClientPrefix{}.Unmap(addr.WithZone(""))
		return netip.PrefixFrom(addr, addr.BitLen()), nil
	}
	return netip.ParsePrefix(text)
}
