package analysis

import (
	"bytes"
	"cmp"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
)

// ReportOptions configures how a report names clients. The zero value is usable.
type ReportOptions struct {
	// Top is the maximum number of clients and paths in a list. If zero, 10.
	Top int

	// Name returns the name of a client in the report. If nil, the report uses the name in the log.
	Name Namer
}

func (o *ReportOptions) setDefaults() error {
	if o.Top < 0 {
		return errors.New("analysis: Top must not be negative")
	}
	o.Top = cmp.Or(o.Top, 10)
	if o.Name == nil {
		o.Name = func(name string) string { return name }
	}
	return nil
}

// A Namer returns the name in a report for a client's name in a log. Every client name, header, cookie and query
// parameter value in a report has passed through it. It must return the same result for the same name, and be safe
// for concurrent use.
//
// Hosts and paths are shown as they are. They may contain personal data too, such as /users/jane: check them
// before you publish a report.
type Namer func(name string) string

// Pseudonyms returns a Namer that replaces each name with client- and 64 bits, in hexadecimal, of
// HMAC-SHA-256(key, name). With the same key a name has the same pseudonym in every report. Without the key,
// names cannot be recovered from pseudonyms, not even by trying all addresses. If key is empty, a random key is
// used and forgotten.
func Pseudonyms(key []byte) Namer {
	if len(key) == 0 {
		key = make([]byte, sha256.Size)
		_, _ = rand.Read(key) // Read never fails
	}
	key = bytes.Clone(key)
	return func(name string) string {
		mac := hmac.New(sha256.New, key)
		mac.Write([]byte(name))
		return "client-" + hex.EncodeToString(mac.Sum(nil)[:8])
	}
}
