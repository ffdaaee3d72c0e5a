package judge

import (
	"encoding/csv"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/edgelimit/edge/rule"
)

// overrides reads the overrides file of a rule. It returns, for each key in the file, the rule with the key's limits.
func overrides(r *rule.Rule) (map[string]*rule.Rule, error) {
	f, err := os.Open(r.Overrides)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	lines := csv.NewReader(f)
	lines.Comment, lines.FieldsPerRecord, lines.TrimLeadingSpace = '#', -1, true
	records, err := lines.ReadAll()
	if err != nil {
		return nil, err
	}
	plans := make(map[string]*rule.Rule, len(records))
	for _, fields := range records[min(1, len(records)):] {
		key := r.ID
		for i, c := range r.Characteristics {
			if len(c.First) > 0 {
				c = c.First[0]
			}
			key += " " + c.String() + strconv.Quote(written(r, c, strings.TrimSpace(fields[i])))
		}
		other := *r
		other.Limits = slices.Clone(r.Limits)
		for i, text := range fields[len(r.Characteristics):] {
			if n, err := strconv.ParseUint(strings.TrimSpace(text), 10, 64); err == nil { // else the rule's threshold applies
				other.Limits[i].Threshold = n
			}
		}
		plans[key] = &other
	}
	return plans, nil
}
