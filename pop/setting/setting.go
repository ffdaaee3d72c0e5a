// Package setting declares the settings of a command as rows of a table. A row sets a field, and has its
// default, its bounds and its help. The command edge reads their values.
package setting

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/edgelimit/edge/internal/prose"
)

// A Setting is a row of a table of settings. It is the only declaration of a setting: flag, variable, key in a
// file, default, checks, help and sample are derived from it.
type Setting struct {
	Name  string // as in its flag, with hyphens
	Short string // of the flag; optional
	Value Value  // type, default, bounds, unit, and the field that it sets
	Help  string // a noun phrase; a text in backquotes stands for the value

	Needs       []string // settings without which it has no effect; a|b means one of them
	Contradicts string   // a setting that must not be set as well; a|b means neither of them

	// Sample is the value in a sample file, as YAML, if it is not the default. If it begins with #, the setting
	// is commented out.
	Sample string

	Group  string // heading before this setting in a sample
	Single bool   // differs between nodes, so commands that run several nodes do not have it
	Secret bool   // the value is never shown
}

// A Value is the type of a setting, with the field that it sets.
type Value struct {
	Type    string   // text, bool, list, map, duration, the unit of a number, or removed
	Default string   // as settings write it
	Words   []string // the values, or common ones, for completion

	set   func(texts []string) error
	given func() bool
	check func() (text string, err error) // may be nil
}

// Set sets the field from texts: exactly one, or any number for a list or map. Its errors, and those of
// Check, are of type *[Error].
func (s Setting) Set(texts []string) error {
	return s.about(strings.Join(texts, ","), s.Value.set(texts))
}

// Given reports whether the field is not zero.
func (s Setting) Given() bool { return s.Value.given() }

// Check checks the field, and gives a number its default if it is zero, and zero if it is off.
func (s Setting) Check() error {
	if s.Value.check == nil {
		return nil
	}
	return s.about(s.Value.check())
}

// about returns err as an error about s, and about value unless err already has a value.
func (s Setting) about(value string, err error) error {
	if err == nil {
		return nil
	}
	e := about(value, err)
	e.Setting = s.Name
	if s.Secret {
		e.Value = ""
	}
	return e
}

// An Error is an invalid or missing setting, with a hint.
type Error struct {
	Setting string // name of the setting
	Value   string // the value as shown; empty if it is secret or long
	Problem string // such as: must be 1 to 16; empty if the setting is missing
	Other   string // name of another setting, which ends the sentence of Problem; optional
	Instead string // name of a setting that would do as well as Other; optional
	Hint    string // optional
}

// about returns err as an Error, about value unless err already quotes it.
func about(value string, err error) *Error {
	e := new(Error)
	if errors.As(err, &e) {
		return e
	}
	e = FileError("", err)
	value = password.ReplaceAllString(value, "://…@")
	quoted := strconv.Quote(value)
	_, problem, named := strings.Cut(e.Problem, quoted+": ")
	switch {
	case named:
		e.Problem = problem
	case strings.Contains(e.Problem, quoted):
		return e
	}
	if _, err := strconv.ParseFloat(value, 64); err == nil {
		quoted = value
	}
	e.Value = quoted
	return e
}

// FileError returns err as an Error about a setting that names files. If one is missing, the hint says where it was
// looked for.
func FileError(setting string, err error) *Error {
	e := &Error{Setting: setting, Problem: prose.Message(err), Hint: prose.Hint(err)}
	file, ok := errors.AsType[*fs.PathError](err)
	if ok && errors.Is(err, fs.ErrNotExist) && !filepath.IsAbs(file.Path) {
		if dir, err := os.Getwd(); err == nil {
			e.Hint = "names of files are relative to the current directory, " + dir
		}
	}
	return e
}

// Error returns the error with the settings' names.
func (e *Error) Error() string {
	return "pop: " + e.Text(func(name string) string { return name })
}

// Text returns the error without its hint. shown returns the form in which to show a setting's name.
func (e *Error) Text(shown func(name string) string) string {
	problem := e.Problem
	if e.Other != "" {
		problem += " " + shown(e.Other)
	}
	switch {
	case problem == "":
		return "missing setting " + e.Setting
	case e.Value != "":
		return fmt.Sprintf("invalid %s %s: %s", shown(e.Setting), e.Value, problem)
	case e.Other != "":
		return shown(e.Setting) + " " + problem
	}
	return fmt.Sprintf("invalid %s: %s", shown(e.Setting), problem)
}

// CheckTogether returns an error for each given setting that lacks one that it needs, or contradicts another.
func CheckTogether(rows []Setting, given func(Setting) bool) error {
	var errs []error
	isGiven := func(name string) bool {
		return slices.ContainsFunc(rows, func(s Setting) bool { return s.Name == name && given(s) })
	}
	for _, s := range rows {
		if !given(s) {
			continue
		}
		for other := range strings.SplitSeq(s.Contradicts, "|") {
			if isGiven(other) {
				errs = append(errs, Conflict(rows, s.Name, "contradicts", other))
			}
		}
		for _, need := range s.Needs {
			need, instead, _ := strings.Cut(need, "|")
			if !isGiven(need) && !isGiven(instead) {
				err := Conflict(rows, s.Name, "needs", need)
				err.Instead = instead
				errs = append(errs, err)
			}
		}
	}
	return errors.Join(errs...)
}

// Conflict returns an error about a setting, and another one that it needs or contradicts. The hint describes the
// flag of the other one, or of the setting itself if it is missing.
func Conflict(rows []Setting, setting, problem, other string) *Error {
	row := rows[slices.IndexFunc(rows, func(s Setting) bool { return s.Name == cmp.Or(other, setting) })]
	sample, _, _ := strings.Cut(strings.Trim(row.Sample, "#[]"), ", ") // of a list, one element
	hint := strings.TrimSpace("--" + row.Name + " " + sample)
	return &Error{Setting: setting, Problem: problem, Other: other, Hint: hint + " (" + strings.ReplaceAll(row.Help, "`", "") + ")"}
}

// password matches the user and the password in a URL, which no message shows.
var password = regexp.MustCompile(`://[^/]*@`)

// CheckSecret returns an error unless only the owner and the group of a file with a secret can read it, and only its
// owner can write it. The group may read it, because secrets that systemd or Kubernetes mount belong to root.
func CheckSecret(file string) error {
	info, err := os.Stat(file)
	if err != nil {
		return err
	}
	if mode := info.Mode(); mode.IsRegular() && mode.Perm()&0o027 != 0 {
		err = fmt.Errorf("%s holds a secret but has mode %04o: only its owner and its group may read it, and only its owner may write it: "+
			"chmod g-wx,o= %[1]s (for a mounted secret, mode 0440)", file, mode.Perm())
	}
	return err
}

// ReadSecret reads a file that passes CheckSecret, at most its first MiB.
func ReadSecret(file string) (string, error) {
	f, err := os.Open(file)
	if err != nil {
		return "", err
	}
	defer f.Close()
	if err := CheckSecret(file); err != nil {
		return "", err
	}
	text, err := io.ReadAll(io.LimitReader(f, 1<<20))
	return string(text), err
}

// ListOf returns a Value that is a list. parse parses each element.
func ListOf[T any](to *[]T, parse func(string) (T, error)) Value {
	return Value{Type: "list", given: func() bool { return len(*to) > 0 }, set: func(texts []string) error {
		list := make([]T, len(texts))
		for i, text := range texts {
			var err error
			if list[i], err = parse(text); err != nil {
				return about(text, err)
			}
		}
		*to = list
		return nil
	}}
}

// List returns a Value that is a list of texts. check returns an error if one is invalid; it may be nil.
func List(to *[]string, check func(string) error) Value {
	v := ListOf(to, checked(check))
	v.check = func() (string, error) { return "", v.set(*to) }
	return v
}

// Map returns a Value that is a map, given as texts KEY=VALUE, which form describes. parse checks a pair: it returns
// the key as it is stored, or an error.
func Map(to *map[string]string, form string, parse func(key, value string) (string, error)) Value {
	return Value{Type: "map", given: func() bool { return len(*to) > 0 }, set: func(texts []string) error {
		all := make(map[string]string, len(texts))
		for _, text := range texts {
			key, value, ok := strings.Cut(text, "=")
			key, err := parse(key, value)
			if _, twice := all[key]; !ok || twice {
				err = fmt.Errorf("must be %s, each once", form)
			}
			if err != nil {
				return about(text, err)
			}
			all[key] = value
		}
		*to = all
		return nil
	}}
}

// Parsed returns a Value that parse parses. kind is its type or unit, and def its default.
func Parsed[T any](kind string, to *T, def string, parse func(string) (T, error)) Value {
	v := Value{Type: kind, Default: def, given: func() bool { return !reflect.ValueOf(*to).IsZero() }, set: func(texts []string) error {
		if len(texts) != 1 {
			return fmt.Errorf("must be a single value, not %d", len(texts))
		}
		v, err := parse(texts[0])
		if err == nil {
			*to = v
		}
		return err
	}}
	v.check = func() (text string, err error) {
		if v.given() {
			text = fmt.Sprint(*to)
			_, err = parse(text)
		}
		return text, err
	}
	return v
}

// Text returns a Value that is a text. check returns an error if it is invalid; it may be nil.
func Text(to *string, def string, check func(string) error) Value {
	return Parsed("text", to, def, checked(check))
}

// checked returns a parser that returns its text, or the error of check.
func checked(check func(string) error) func(string) (string, error) {
	return func(text string) (string, error) {
		if check == nil {
			return text, nil
		}
		return text, check(text)
	}
}

// Choices returns v with its values, or common ones, for completion.
func (v Value) Choices(words ...string) Value {
	v.Words = words
	return v
}

// Bool returns a Value that is true or false.
func Bool(to *bool, def bool) Value {
	return Parsed("bool", to, strconv.FormatBool(def), func(text string) (bool, error) {
		v, err := strconv.ParseBool(text)
		if err != nil {
			err = errors.New("must be true or false")
		}
		return v, err
	})
}

// Int returns a Value that is an integer from low to high, in a unit. If low is 0, the value 0 turns the feature off.
// The field is then -1 if it is off, and 0 stands for the default.
func Int[T int | int64](to *T, def, low, high T, unit string) Value {
	return bounded(unit, to, def, strconv.FormatInt(int64(def), 10), low == 0, Whole(low, high))
}

// Duration returns a Value that is a duration from low to high. If low is 0, the value 0 turns the feature off. The
// field is then -1 if it is off, and 0 stands for the default.
func Duration(to *time.Duration, def, low, high time.Duration) Value {
	return bounded("duration", to, def, span(def), low == 0, Span(low, high))
}

// bounded returns a Value that parse parses. text is def in the form that parse accepts.
func bounded[T int | int64 | time.Duration](kind string, to *T, def T, text string, canBeOff bool, parse func(string) (T, error)) Value {
	v := Parsed(kind, to, text, func(text string) (T, error) {
		v, err := parse(text)
		if v == 0 {
			v = -1 // off
		}
		return v, err
	})
	check := v.check
	v.check = func() (text string, err error) {
		switch {
		case *to == 0:
			*to = def
		case *to < 0 && canBeOff:
			*to = 0
			return "", nil
		}
		return check()
	}
	return v
}

// Whole returns a parser of whole numbers from low to high, which must not be negative.
func Whole[T int | int64 | uint64](low, high T) func(string) (T, error) {
	form := fmt.Sprintf("whole number from %d to %d", low, high)
	if uint64(high) >= math.MaxInt {
		form = fmt.Sprintf("whole number, %d or more", low)
	}
	return func(text string) (T, error) {
		v, err := strconv.ParseUint(text, 10, 64)
		if err != nil || v < uint64(low) || v > uint64(high) {
			return low, errors.New("must be a " + form)
		}
		return T(v), nil
	}
}

// Number returns a parser of numbers from low to high.
func Number(low, high float64) func(string) (float64, error) {
	return func(text string) (float64, error) {
		v, err := strconv.ParseFloat(text, 64)
		if err != nil || !(low <= v && v <= high) { // NaN is neither
			return low, fmt.Errorf("must be a number from %v to %.0f", low, high)
		}
		return v, nil
	}
}

// Span returns a parser of durations from low to high.
func Span(low, high time.Duration) func(string) (time.Duration, error) {
	return func(text string) (time.Duration, error) {
		d, err := prose.ParseDuration(text, 0)
		if err != nil || d < low || d > high {
			return low, fmt.Errorf("must be a duration from %s to %s, such as 300ms, 5s, 1h30m or 1d", span(low), span(high))
		}
		return d, nil
	}
}

// span returns d as Span parses it.
func span(d time.Duration) string {
	if d%time.Millisecond != 0 {
		return d.String()
	}
	return prose.Duration(d)
}
