package accesslog

import (
	"bytes"
	"time"
)

// Stats describes what the last call to Arrivals or Entries has read so far.
type Stats struct {
	Files     []FileStats `json:"files"`
	Lines     int64       `json:"lines"`
	Entries   int64       `json:"requests"`
	Malformed int64       `json:"malformed"`                 // lines that are neither an entry, nor blank, nor a comment
	Samples   []Sample    `json:"malformed_lines,omitempty"` // the first of them
	Unnamed   int64       `json:"unnamed"`                   // entries whose client is "-"

	First, Last int64 `json:"-"` // times of the oldest and newest entry, if there are entries
}

// FileStats describes what was read from one file.
type FileStats struct {
	Name        string `json:"name"`
	Format      string `json:"format"`                // see Formats
	Compression string `json:"compression,omitempty"` // "gzip", "zstd", "bzip2" or ""
	Lines       int64  `json:"lines"`
	Entries     int64  `json:"requests"`
	Malformed   int64  `json:"malformed"`

	BrokenOff bool `json:"broken_off,omitempty"` // the file is compressed and incomplete: it was read up to where it breaks off

	// Proxied reports whether the clients of the first lines seem to be proxies: most lines have another, public
	// address, as in X-Forwarded-For, and the clients have private addresses or are few in comparison.
	Proxied bool `json:"-"`

	Dates Order `json:"-"`
}

// A Sample is a malformed line.
type Sample struct {
	File   string `json:"file"`
	Line   int64  `json:"line"`           // from 1
	Reason string `json:"reason"`         // never quotes the line
	Text   string `json:"text,omitempty"` // the line's first 200 bytes
}

// Stats returns what was read so far. It may be called from the functions that Arrivals and
// Entries call.
func (l *Log) Stats() Stats { return l.stats }

// Rest returns what the first malformed lines look like: the format of most of them, or a guess.
func (l *Log) Rest() string {
	t := trial{location: time.UTC}
	for _, sample := range l.stats.Samples {
		if line := bytes.TrimSpace([]byte(sample.Text)); len(line) > 0 {
			t.lines = append(t.lines, line)
		}
	}
	if format, _, n := t.detect(); n*2 > len(t.lines) {
		return format
	}
	return guessOf(nil, t.lines).what
}

// count adds the results of b to the totals and to those of its file.
func (s *Stats) count(b *block) {
	f := &s.Files[b.file]
	for _, sample := range b.samples {
		if len(s.Samples) == maxSamples {
			break
		}
		sample.File = f.Name
		sample.Line += f.Lines + 1
		s.Samples = append(s.Samples, sample)
	}
	entries := int64(len(b.items))
	f.Lines += b.lines
	f.Entries += entries
	f.Malformed += b.malformed
	f.BrokenOff = b.brokenOff
	f.Dates = f.Dates.or(b.dates)
	s.Lines += b.lines
	s.Malformed += b.malformed
	s.Unnamed += b.unnamed
	if entries == 0 {
		return
	}
	oldest, newest := b.items[0].time, b.items[entries-1].time
	if s.Entries == 0 {
		s.First, s.Last = oldest, newest
	}
	s.First, s.Last = min(s.First, oldest), max(s.Last, newest)
	s.Entries += entries
}
