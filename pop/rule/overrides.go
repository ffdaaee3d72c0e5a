package rule

import (
	"bytes"
	"crypto/rand"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"math"
	"net/netip"
	"slices"
	"strings"

	"github.com/edgelimit/edge/counter"
	"github.com/edgelimit/edge/internal/strictyaml"
)

// overrides are the keys of a rule that have limits of their own.
type overrides struct {
	secret counter.Secret         // not used for anything else, so that clients cannot choose colliding keys
	plans  map[counter.Key]uint16 // by key, an index in rules
	rules  []*Rule                // the rule with other thresholds; the first is nil, for exempt keys
	exempt int                    // number of exempt keys
}

// maxPlans is the maximum number of different limits in a file.
const maxPlans = math.MaxUint16

// exempt is written in place of thresholds for keys that are neither counted nor mitigated.
const exempt = "exempt"

// overridesUse is a rule that names a file with overrides.
type overridesUse struct {
	rule *Rule
	place
}

// Base returns the rule that r is in its file: r, unless r has the limits of a key.
func (r *Rule) Base() *Rule {
	if r.base != nil {
		return r.base
	}
	return r
}

// Override returns the rule that counts requests of r under a key from [Rule.Keys]: r, or r with the
// limits of the key in its overrides. It returns nil if the key is exempt. Override does not allocate.
func (s *Set) Override(r *Rule, key []byte) *Rule {
	if r.Overrides == "" {
		return r
	}
	o := s.overrides[r]
	if o == nil {
		return r
	}
	plan, found := o.plans[o.secret.Tag(key)]
	if !found {
		return r
	}
	return o.rules[plan]
}

// Overridden returns r with each of the limits in its overrides, the number of keys in them, and how many
// of these are exempt.
func (s *Set) Overridden(r *Rule) (plans []*Rule, keys, exempt int) {
	o := s.overrides[r]
	if o == nil {
		return nil, 0, 0
	}
	return o.rules[1:], len(o.plans), o.exempt
}

// overrides reads the files with overrides.
func (l *loader) overrides() map[*Rule]*overrides {
	all := map[*Rule]*overrides{}
	for _, use := range l.plans {
		r := use.rule
		file, text, ok := l.open(r.Overrides, use.place, "write a rule for each plan")
		if !ok {
			continue
		}
		r.Overrides = file
		secret, err := counter.NewSecret(rand.Text())
		if err != nil {
			l.fail(use.place, "", "%v", err)
			continue
		}
		all[r] = &overrides{secret: secret, rules: []*Rule{nil}}
		l.errs = append(l.errs, all[r].readAll(r, text)...)
	}
	return all
}

// readAll reads a file: a line with the names of the columns, then a line for each key, with its values
// and thresholds. It returns the errors in the file.
func (o *overrides) readAll(r *Rule, text []byte) (errs Errors) {
	lines := csv.NewReader(bytes.NewReader(bytes.TrimPrefix(text, []byte("\xef\xbb\xbf"))))
	lines.Comment, lines.FieldsPerRecord, lines.ReuseRecord, lines.TrimLeadingSpace = '#', -1, true, true
	fail := func(line, column int, hint, format string, args ...any) {
		errs = append(errs, &Error{File: r.Overrides, Line: line, Column: column, Message: fmt.Sprintf(format, args...), Hint: hint})
	}
	columns := r.columns()
	form := "write " + strings.Join(columns, ",")
	o.plans = make(map[counter.Key]uint16, bytes.Count(text, []byte("\n")))
	known := map[string]uint16{exempt: 0}
	for named := false; len(errs) < strictyaml.Enough; {
		values, err := lines.Read()
		if err == io.EOF {
			if !named && len(errs) == 0 {
				fail(0, 0, form+" in the first line", "the file is empty")
			}
			break
		}
		if wrong, ok := errors.AsType[*csv.ParseError](err); ok {
			fail(wrong.Line, wrong.Column, "", "%v", wrong.Err)
			continue
		}
		for i := range values {
			values[i] = strings.TrimSpace(values[i])
		}
		switch line, column := lines.FieldPos(0); {
		case !named && !slices.Equal(values, columns):
			fail(line, column, form, "the first line does not name the columns of rule %s", r.ID)
			return errs
		case !named:
			named = true
		case len(values) > len(columns) || len(values) < len(columns) && !isExempt(r, values):
			fail(line, column, form+", or exempt after the key", "%d values instead of %d", len(values), len(columns))
		default:
			if at, err := o.add(r, known, values); err != nil {
				line, column = lines.FieldPos(at)
				fail(line, column, hintOf(err), "%v", err)
			}
		}
	}
	return errs
}

// isExempt reports whether a line of the file exempts its key.
func isExempt(r *Rule, values []string) bool {
	n := len(r.Characteristics)
	return len(values) > n && values[n] == exempt && strings.Join(values[n+1:], "") == ""
}

// add adds the key in a line of the file. known has the indexes of thresholds in o.rules. After an error,
// at is the index of the invalid value.
func (o *overrides) add(r *Rule, known map[string]uint16, values []string) (at int, err error) {
	thresholds := values[len(r.Characteristics):]
	plan := exempt
	if !isExempt(r, values) {
		plan = strings.Join(thresholds, ",")
	}
	index, found := known[plan]
	if !found {
		if len(o.rules) > maxPlans {
			return 0, &ValueError{fmt.Sprintf("there are more than %d different limits", maxPlans), "give more keys the same limits"}
		}
		rule, at, err := r.with(thresholds)
		if err != nil {
			return len(r.Characteristics) + at, err
		}
		index = uint16(len(o.rules))
		known[strings.Clone(plan)] = index
		o.rules = append(o.rules, rule)
	}
	key, err := r.keyOf(values)
	if err != nil {
		return 0, err
	}
	tag := o.secret.Tag(key)
	if _, twice := o.plans[tag]; twice {
		return 0, &ValueError{"this key is listed twice", "remove one of them"}
	}
	o.plans[tag] = index
	if plan == exempt {
		o.exempt++
	}
	return 0, nil
}

// columns returns the names of the columns in a file with r's overrides: the characteristics and the
// periods of the limits.
func (r *Rule) columns() (names []string) {
	for _, c := range r.Characteristics {
		names = append(names, c.String())
	}
	for _, l := range r.Limits {
		names = append(names, FormatDuration(l.Period))
	}
	return names
}

// with returns r with other thresholds. Empty ones leave r's. After an error, at is the index of the
// invalid threshold.
func (r *Rule) with(thresholds []string) (other *Rule, at int, err error) {
	copied := *r
	other = &copied
	other.base, other.Limits = r, slices.Clone(r.Limits)
	for i, text := range thresholds {
		l := &other.Limits[i]
		if text == "" {
			continue
		}
		n, ok := strictyaml.ParseDigits(text)
		if !ok || n < 1 || n > MaxThreshold {
			return nil, i, &ValueError{fmt.Sprintf("a threshold cannot be %s", strictyaml.Quote(text)),
				fmt.Sprintf("write a whole number from 1 to %d, in plain decimal digits, or exempt", MaxThreshold)}
		}
		if most := l.Counted().Layout.MaxThreshold(); n > most {
			return nil, i, &ValueError{fmt.Sprintf("a threshold cannot be %d with %d sub-windows, which have room for thresholds up to %d", n, l.SubWindows, most),
				"set fewer sub_windows in the rule"}
		}
		l.Threshold = n
	}
	return other, 0, nil
}

// keyOf returns the key of requests with the given values of r's characteristics. The value of ip is an
// address, which belongs to a client of the default [ClientPrefix], or a client's network.
func (r *Rule) keyOf(values []string) ([]byte, error) {
	var bits ClientPrefix
	i := -1
	var wrong error
	req, err := r.RequestFrom(func(c *Characteristic) (string, bool) {
		i++
		if c.Kind != IP || !strings.Contains(values[i], "/") {
			return values[i], true
		}
		var prefix netip.Prefix
		prefix, wrong = ParsePrefix(values[i])
		bits = ClientPrefix{IPv4: prefix.Bits(), IPv6: prefix.Bits()}
		return prefix.Addr().String(), true
	})
	if wrong != nil {
		return nil, fmt.Errorf("%s %w", strictyaml.Quote(values[i]), wrong)
	}
	if err != nil {
		return nil, err
	}
	req.Canonicalize(bits)
	keys := r.Keys(nil, &req)
	if keys.Len() != 1 {
		return nil, errors.New("no request has this key")
	}
	return keys.At(0), nil
}
