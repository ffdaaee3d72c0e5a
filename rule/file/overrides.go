package file

import (
	"bytes"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"slices"
	"strings"

	"github.com/edgelimit/edge/internal/prose"
	"github.com/edgelimit/edge/internal/strictyaml"
	"github.com/edgelimit/edge/rule"
)

// overridesUse is a rule that names a file with overrides.
type overridesUse struct {
	rule *rule.Rule
	place
}

func (l *loader) readOverrides() {
	for _, use := range l.plans {
		if file, text, ok := l.open(use.rule.Overrides, use.place, "write a rule for each plan"); ok {
			use.rule.Overrides = file
			keys := rule.NewOverrides(use.rule, bytes.Count(text, []byte("\n")))
			o := overridesReader{loader: l, rule: use.rule, overrides: keys, plans: map[string]uint16{}}
			o.read(text)
		}
	}
}

type overridesReader struct {
	*loader
	rule      *rule.Rule
	overrides *rule.Overrides
	plans     map[string]uint16 // by thresholds as in the file
	lines     *csv.Reader
}

// read reads the file: a line with the names of the columns, then a line for each key, with its values and
// thresholds.
func (o *overridesReader) read(text []byte) {
	o.lines = csv.NewReader(bytes.NewReader(bytes.TrimPrefix(text, []byte("\xef\xbb\xbf"))))
	o.lines.Comment, o.lines.FieldsPerRecord, o.lines.ReuseRecord, o.lines.TrimLeadingSpace = '#', -1, true, true
	columns := slices.Concat(prose.Texts(o.rule.Characteristics, rule.Characteristic.String),
		prose.Texts(o.rule.Limits, func(l rule.Limit) string { return rule.FormatDuration(l.Period) }))
	form, before := "write "+strings.Join(columns, ","), len(o.errs)
	for named := false; len(o.errs) < before+strictyaml.Enough; {
		values, err := o.lines.Read()
		if err == io.EOF {
			if !named && len(o.errs) == before {
				o.loader.fail(place{file: o.rule.Overrides}, form+" as the first line", "the file is empty")
			}
			return
		}
		if wrong, ok := errors.AsType[*csv.ParseError](err); ok {
			o.loader.fail(place{o.rule.Overrides, int32(wrong.Line), int32(wrong.Column)}, "", "%v", wrong.Err)
			continue
		}
		for i := range values {
			values[i] = strings.TrimSpace(values[i])
		}
		switch {
		case !named && !slices.Equal(values, columns):
			o.fail(0, form, "the first line does not name the columns of rule %s", o.rule.ID)
			return
		case !named:
			named = true
		case len(values) != len(columns):
			o.fail(0, form, "%d values instead of %d", len(values), len(columns))
		default:
			o.add(values, strings.Join(values[len(o.rule.Characteristics):], ","))
		}
	}
}

// fail adds an error about a value of the line that was read last.
func (o *overridesReader) fail(value int, hint, format string, args ...any) {
	line, column := o.lines.FieldPos(value)
	o.loader.fail(place{o.rule.Overrides, int32(line), int32(column)}, hint, format, args...)
}

// add adds the key in a line with the given thresholds.
func (o *overridesReader) add(values []string, thresholds string) {
	plan, ok := o.plans[thresholds]
	if !ok {
		limits, ok := o.limits(values)
		if !ok {
			return
		}
		if plan, ok = o.overrides.AddPlan(limits); !ok {
			o.fail(0, "give more keys the same limits", "there are more than %d different limits", len(o.plans))
			return
		}
		o.plans[strings.Clone(thresholds)] = plan
	}
	if key, err := keyOf(o.rule, values); err != nil {
		o.fail(0, prose.Hint(err), "%v", err)
	} else if !o.overrides.Add(key, plan) {
		o.fail(0, "remove one of them", "this key is listed twice")
	}
}

// limits returns the limits in a line. An empty threshold keeps that of the rule.
func (o *overridesReader) limits(values []string) (limits []rule.Limit, ok bool) {
	limits = slices.Clone(o.rule.Limits)
	for i, l := range limits {
		value := len(o.rule.Characteristics) + i
		text := values[value]
		if text == "" {
			continue
		}
		n, ok := strictyaml.ParseDigits(text)
		if !ok || n < 1 || n > rule.MaxThreshold {
			o.fail(value, fmt.Sprintf("write a whole number from 1 to %d, in plain decimal digits", rule.MaxThreshold),
				"a threshold cannot be %s", prose.Quote(text))
			return nil, false
		}
		if most := l.Counted().Layout.MaxThreshold(); n > most {
			o.fail(value, "set fewer sub_windows in the rule",
				"a threshold cannot be %d with %d sub-windows, which have room for thresholds up to %d", n, l.SubWindows, most)
			return nil, false
		}
		limits[i].Threshold = n
	}
	return limits, true
}

// keyOf returns the key of requests with the given values of r's characteristics. The value of ip is a client's
// network, or an address, which stands for a client of the default [rule.ClientPrefix].
func keyOf(r *rule.Rule, values []string) ([]byte, error) {
	var bits rule.ClientPrefix
	i := -1
	var wrong error
	req, err := r.RequestFrom(func(c *rule.Characteristic) (string, bool) {
		i++
		if c.Kind != rule.IP || !strings.Contains(values[i], "/") {
			return values[i], true
		}
		var prefix netip.Prefix
		prefix, wrong = rule.ParsePrefix(values[i])
		bits = rule.ClientPrefix{IPv4: prefix.Bits(), IPv6: prefix.Bits()}
		return prefix.Addr().String(), true
	})
	if wrong != nil {
		return nil, fmt.Errorf("%s %w", prose.Quote(values[i]), wrong)
	}
	if err != nil {
		return nil, err
	}
	req.Canonicalize(bits)
	keys := r.Keys(nil, &req)
	if keys.Len() != 1 || req.Malformed {
		return nil, errors.New("no request has this key")
	}
	return keys.At(0), nil
}
