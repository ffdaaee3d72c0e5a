package edge_test

import (
	"bytes"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// phrases are patterns that must not come back, with what to write instead. Each line that matches contains hint,
// which is much faster to find.
var phrases = []struct{ hint, pattern, instead string }{
	{" none", `\b(is|are|be|was|were) none\b`, `say what is wrong: "invalid", "unknown", "missing", "empty"`},
	{"want of", `\bfor want of\b`, `"because no … was free", "without"`},
	{"so ", `\bso many\b|\b(after|until|for|comes|lasts?|takes?) so long\b`, `"this many", "that long"`},
	{"reckon", `\breckon`, `"count", "expect", "compute"`},
	{"own making", `\bown making\b`, `"generated", "our own"`},
	{" on with", `\bgo(es)? on with\b`, `"continue"`},
	{" no sense", `\bmakes? no sense\b`, `"is invalid", "cannot be decoded", "contradicts"`},
	{"elsewise", `\belsewise\b`, `"otherwise"`},
	{"ever", `\b(whosoever|whoever|whomever)\b`, `"a client that …"`},
	{"so that", `\bit is so that\b`, `state the condition`},
	{" said", `\b(is|are|was|were|be) (not )?said( [^t]|[.,:;]|$)`, `name who says it: "logged", "reported", "the report says"`},
	{"is to be", `\bwhat is to be\b`, `"what to …"`},
	{"Who ", `(^|// |^# |[.:;] )Who (is|was|has|does|[a-z]+s) [^?]*$`, `name the subject: "a client that …"`},
}

// No file contains any of the phrases.
func TestEnglish(t *testing.T) {
	forbidden := make([]*regexp.Regexp, len(phrases))
	for i, p := range phrases {
		forbidden[i] = regexp.MustCompile(p.pattern)
	}
	there := regexp.MustCompile(`\b([Tt]here|if|If|unless|but) (is|are|be|was|were) none\b`)
	err := filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && path != "." && strings.HasPrefix(d.Name(), "."):
			return filepath.SkipDir
		case d.IsDir() || path == "english_test.go",
			!slices.Contains([]string{".go", ".md", ".txt", ".yaml", ".html", ".js", ".css"}, filepath.Ext(path)):
			return nil
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		for i, line := range bytes.Split(text, []byte("\n")) {
			for j, p := range phrases {
				if !bytes.Contains(line, []byte(p.hint)) {
					continue
				}
				if found := forbidden[j].Find(there.ReplaceAll(line, nil)); found != nil {
					t.Errorf("%s:%d: %q: write %s", path, i+1, found, p.instead)
				}
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}
