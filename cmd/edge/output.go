package main

import (
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/edgelimit/edge/analysis"
	"github.com/edgelimit/edge/analysis/reading"
	"github.com/edgelimit/edge/internal/chart"
	"github.com/edgelimit/edge/internal/prose"
	"github.com/edgelimit/edge/internal/version"
	"github.com/edgelimit/edge/pop/setting"
)

// A reporter writes the result of a command in the form that its flags select.
type reporter struct {
	asJSON    bool
	markdown  bool
	anonymize bool
	key       string
	html      string

	// set by open
	stdout io.Writer
	page   *os.File       // nil if none is wanted
	name   analysis.Namer // nil if clients keep their names
}

// settings returns the settings that all reports have.
func (r *reporter) settings() []setting.Setting {
	return []setting.Setting{
		{Group: "the report", Name: "json", Value: setting.Bool(&r.asJSON, false), Help: "write JSON"},
		{Name: "markdown", Value: setting.Bool(&r.markdown, false), Help: "write Markdown, for example for a pull request", Contradicts: "json"},
		{Name: "html", Value: setting.Text(&r.html, "", pageName), Help: "also write a page with plots to this `file`"},
	}
}

// open prepares to write answers to stdout and the page. It opens the page now, so that errors are reported before a
// long log is read.
func (r *reporter) open(stdout io.Writer) (err error) {
	r.stdout = stdout
	if r.anonymize {
		r.name = analysis.Pseudonyms([]byte(r.key))
	}
	r.page, err = createFile(r.html)
	return err
}

// createFile opens a file for writing, unless name is empty. The file keeps its contents until
// writeFile.
func createFile(name string) (*os.File, error) {
	if name == "" {
		return nil, nil
	}
	return os.OpenFile(name, os.O_WRONLY|os.O_CREATE, 0o644)
}

// writeFile replaces the contents of file, which may be nil.
func writeFile(file *os.File, write func(io.Writer) error) error {
	if file == nil {
		return nil
	}
	if err := file.Truncate(0); err != nil && !errors.Is(err, syscall.EINVAL) { // pipes cannot be truncated
		return errors.Join(err, file.Close())
	}
	return errors.Join(write(file), file.Close())
}

// commandLine returns a command in shell syntax, without secrets.
func commandLine(args []string) string {
	words := []string{filepath.Base(args[0])}
	secret := false
	for _, word := range args[1:] {
		name, _, assigned := strings.Cut(word, "=")
		isSecret := slices.Contains([]string{"--anonymize-key", "--header", "-H", "--body"}, name)
		switch {
		case secret:
			word = "…"
		case isSecret && assigned:
			word = name + "=…"
		case strings.HasPrefix(word, "-H") && len(word) > 2:
			word = "-H…"
		default:
			word = shellQuote(word)
		}
		secret = isSecret && !assigned && !secret
		words = append(words, word)
	}
	return strings.Join(words, " ")
}

// plainWord matches words that a shell does not interpret.
var plainWord = regexp.MustCompile(`^[\w@%+=:,./…-]+$`)

// shellQuoteAll returns words in shell syntax, each after a space. There is at least one.
func shellQuoteAll(words []string) string {
	return " " + strings.Join(prose.Texts(words, shellQuote), " ")
}

func shellQuote(word string) string {
	if plainWord.MatchString(word) {
		return word
	}
	return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
}

// pageName checks the name of a page, so that a log given by mistake is not overwritten.
func pageName(name string) error {
	if strings.HasSuffix(name, ".html") {
		return nil
	}
	return errors.New("must end in .html")
}

// write writes a report about in.
func (r *reporter) write(in *input, report chart.Document) error {
	read := in.log.Stats()
	return r.emit(reading.Names(read), read, report)
}

// emit writes a report about input. read describes what was read from it.
func (r *reporter) emit(input string, read any, report chart.Document) error {
	report.Run = chart.Run{Input: input, Command: commandLine(os.Args), Version: version.String(), Date: time.Now().UTC().Truncate(time.Second), Log: read}
	err := writeFile(r.page, report.WriteHTML)
	switch {
	case r.asJSON:
		return errors.Join(err, writeJSON(r.stdout, report, "  "))
	case r.markdown:
		return errors.Join(err, report.WriteMarkdown(r.stdout))
	}
	return errors.Join(err, report.WriteText(r.stdout))
}

// writeJSON writes v as JSON, on one line if indent is empty.
func writeJSON(w io.Writer, v any, indent string) error {
	var b strings.Builder
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	e.SetIndent("", indent)
	err := e.Encode(v)
	return errors.Join(err, writePrintable(w, b.String()))
}
