package prose

import "fmt"

// Phrases are the parts of a text, or remarks that each stand alone.
type Phrases []string

// Add appends a phrase.
func (p *Phrases) Add(format string, args ...any) { *p = append(*p, fmt.Sprintf(format, args...)) }

// AddIf appends a phrase if it applies.
func (p *Phrases) AddIf(applies bool, format string, args ...any) {
	if applies {
		p.Add(format, args...)
	}
}
