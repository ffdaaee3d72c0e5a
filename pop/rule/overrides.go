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

	"go.yaml.in/yaml/v4"

	"github.com/edgelimit/edge/counter"
	"github.com/edgelimit/edge/internal/strictyaml"
)

// overrides are the keys of a rule with limits of their own.
type overrides struct {
	secret counter.Secret         // of this table alone, so that no client can choose a key that looks like another
	plans  map[counter.Key]uint16 // index in rules, by key
	rules  []*Rule                // the rule with other thresholds; the first is nil, for exempt keys
	exempt int                    // number of exempt keys
}

// maxPlans is the maximum number of different limits in a file.
const maxPlans = math.MaxUint16

// exempt is what a file says of keys that are neither counted nor mitigated.
const exempt = "exempt"

// overridesUse is a rule that names a file with overrides.
type overridesUse struct {
	rule *Rule
	place
}

// Base returns the rule of a file that r is, or whose overrides make r of it.
func (r *Rule) Base() *Rule {
	if r.base != nil {
		return r.base
	}
	return r
}

// Override returns the rule that counts requests of r under a key, as [Rule.Keys] returns it: r, or r
// with the limits that its overrides give the key. It is nil if they exempt the key. Override does not
// allocate.
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

// Overridden returns r with each of the limits that its overrides give keys, and how many keys they
// have and exempt.
func (s *Set) Overridden(r *Rule) (plans []*Rule, keys, exempt int) {
	o := s.overrides[r]
	if o == nil {
		return nil, 0, 0
	}
	return o.rules[1:], len(o.plans), o.exempt
}

// overrides reads the name of a file.
func (r *reader) overridesFile(n *yaml.Node, rule *Rule) {
	rule.Overrides = r.fileName(n, "overrides", "plans.csv")
	r.plans = append(r.plans, overridesUse{rule, r.place(n)})
}

// overrides reads the files of the rules with overrides.
func (l *loader) overrides() map[*Rule]*overrides {
	all := map[*Rule]*overrides{}
	for _, use := range l.plans {
		r := use.rule
		file, text, ok := l.open(r.Overrides, use.place, "write a rule for each plan")
		if !ok {
			continue
		}
		r.Overrides = file
		o, err := newOverrides()
		if err != nil {
			l.fail(use.place, "", "%v", err)
			continue
		}
		l.errs = append(l.errs, o.readAll(r, text)...)
		all[r] = o
	}
	return all
}

func newOverrides() (*overrides, error) {
	secret, err := counter.NewSecret(rand.Text())
	return &overrides{secret: secret, rules: []*Rule{nil}}, err
}

// readAll reads a file: a line that names the columns, then one for each key, with its values and
// the thresholds of its limits. It returns what is wrong.
func (o *overrides) readAll(r *Rule, text []byte) (errs Errors) {
	lines := csv.NewReader(bytes.NewReader(bytes.TrimPrefix(text, []byte("\xef\xbb\xbf"))))
	lines.Comment, lines.FieldsPerRecord, lines.ReuseRecord, lines.TrimLeadingSpace = '#', -1, true, true
	fail := func(line, column int, hint, format string, args ...any) {
		errs = append(errs, &Error{File: r.Overrides, Line: line, Column: column, Message: fmt.Sprintf(format, args...), Hint: hint})
	}
	columns := r.columns()
	known := map[string]uint16{exempt: 0}
	o.plans = make(map[counter.Key]uint16, bytes.Count(text, []byte("\n")))
	named := false
	for len(errs) < strictyaml.Enough {
		fields, err := lines.Read()
		if wrong := new(csv.ParseError); errors.As(err, &wrong) {
			fail(wrong.Line, wrong.Column, "", "%v", wrong.Err)
			continue
		}
		if err == io.EOF {
			break
		}
		for i := range fields {
			fields[i] = strings.TrimSpace(fields[i])
		}
		line, _ := lines.FieldPos(0)
		if !named {
			if named = true; !slices.Equal(fields, columns) {
				fail(line, 1, "write "+strings.Join(columns, ","), "the first line does not name the columns of rule %s", r.ID)
				break
			}
			continue
		}
		thresholds := fields[min(len(r.Characteristics), len(fields)):]
		isExempt := len(thresholds) > 0 && thresholds[0] == exempt && strings.Join(thresholds[1:], "") == ""
		if len(fields) != len(columns) && !(isExempt && len(fields) < len(columns)) {
			fail(line, 1, "write "+strings.Join(columns, ",")+", or exempt after the key", "%d values instead of %d", len(fields), len(columns))
			continue
		}
		plan := exempt
		if !isExempt {
			plan = strings.Join(thresholds, ",")
		}
		index, found := known[plan]
		if !found {
			rule, at, hint, err := r.with(thresholds)
			if err != nil {
				_, column := lines.FieldPos(len(r.Characteristics) + at)
				fail(line, column, hint, "%v", err)
				continue
			}
			if len(o.rules) > maxPlans {
				fail(line, 1, "give more keys the same limits", "there are more than %d different limits", maxPlans)
				break
			}
			index = uint16(len(o.rules))
			known[strings.Clone(plan)] = index
			o.rules = append(o.rules, rule)
		}
		key, err := r.keyOf(fields)
		if err != nil {
			hint := ""
			if wrong := new(PrefixError); errors.As(err, &wrong) {
				hint = wrong.hint
			}
			fail(line, 1, hint, "%v", err)
			continue
		}
		tag := o.secret.Tag(key)
		if _, twice := o.plans[tag]; twice {
			fail(line, 1, "leave one of them out", "this key is listed twice")
			continue
		}
		if o.plans[tag] = index; isExempt {
			o.exempt++
		}
	}
	if !named && len(errs) == 0 {
		fail(0, 0, "write "+strings.Join(columns, ",")+" in the first line", "the file is empty")
	}
	return errs
}

// columns returns the names of the columns in a file with r's overrides: its characteristics, and
// the periods of its limits.
func (r *Rule) columns() (names []string) {
	for _, c := range r.Characteristics {
		names = append(names, c.String())
	}
	for _, l := range r.Limits {
		names = append(names, FormatDuration(l.Period))
	}
	return names
}

// with returns r with other thresholds; an empty one stays as it is. After an error at is the
// index of the threshold that is wrong, and hint says what to write.
func (r *Rule) with(thresholds []string) (other *Rule, at int, hint string, err error) {
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
			return nil, i, fmt.Sprintf("write a whole number from 1 to %d, in plain decimal digits, or exempt", MaxThreshold), fmt.Errorf("a threshold cannot be %s", strictyaml.Quote(text))
		}
		if layout := l.Counted().Layout; n > layout.MaxThreshold() {
			return nil, i, "set fewer sub_windows in the rule", fmt.Errorf("a threshold cannot be %d with %d sub-windows, which are for thresholds up to %d", n, l.SubWindows, layout.MaxThreshold())
		}
		l.Threshold = n
	}
	return other, 0, "", nil
}

// keyOf returns the key of requests that have these values of r's characteristics. The value of ip is
// an address, for the client that it is by default, or a client's network.
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
