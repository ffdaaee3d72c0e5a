package accesslog

// Stats is what was read by the last call of Arrivals or Entries, so far.
type Stats struct {
	Lines     int64
	Entries   int64
	Malformed int64 // lines that are neither an entry, nor blank, nor a comment
	Bytes     int64 // of text
	Steps     int64 // how often an entry is older than the one before it in the input
	Unnamed   int64 // entries whose client is "-"

	First, Last int64 // the oldest and newest entry's time, if there are entries

	Samples []Sample // the first malformed lines
	Files   []FileStats
}

// FileStats is what was read of one file.
type FileStats struct {
	Name        string
	Format      string // see Formats
	Compression string // "gzip", "zstd", "bzip2", or nothing
	Torn        bool   // what is compressed ends early: what could be read was
	Lines       int64
	Entries     int64
	Malformed   int64
	Bytes       int64 // of text

	// Proxied says that nearly all of the first lines are of one private client, while their last text in
	// quotes looks like X-Forwarded-For. Pattern is an Options.Format that reads the clients from there,
	// if one was found.
	Proxied bool
	Pattern string
}

// A Sample is a malformed line.
type Sample struct {
	File   string
	Line   int64  // from 1
	Reason string // of our own words alone
	Text   string // the line's first 200 bytes
}

// Stats returns what was read so far. It may be called from what Arrivals and Entries
// call.
func (l *Log) Stats() Stats { return l.stats }

// count adds what b says to the file that it is of.
func (s *Stats) count(b *block, samples int) {
	f := &s.Files[b.file]
	for _, sample := range b.samples {
		if len(s.Samples) == samples {
			break
		}
		sample.File = f.Name
		sample.Line += f.Lines + 1
		s.Samples = append(s.Samples, sample)
	}
	entries := int64(len(b.arrivals))
	f.Lines += b.lines
	f.Entries += entries
	f.Malformed += b.malformed
	f.Bytes += b.size
	f.Torn = f.Torn || b.torn
	s.Lines += b.lines
	s.Malformed += b.malformed
	s.Bytes += b.size
	s.Unnamed += b.unnamed
	if entries == 0 {
		return
	}
	s.Steps += b.steps
	oldest, newest := b.arrivals[0].Time, b.arrivals[entries-1].Time
	if s.Entries == 0 {
		s.First, s.Last = oldest, newest
	}
	s.First, s.Last = min(s.First, oldest), max(s.Last, newest)
	s.Entries += entries
}
