package main

import (
	"fmt"

	"github.com/spf13/pflag"
)

// fail returns an error about the named flag.
func fail(name, hint, format string, args ...any) error {
	return usageError{fmt.Errorf("--%s: %s", name, fmt.Sprintf(format, args...)), hint}
}

// within returns an error if the value of the named flag is not between 1 and most.
func within(name string, value, most int64) error {
	if value >= 1 && value <= most {
		return nil
	}
	return fail(name, "", "%d is not between 1 and %d", value, most)
}

// wrongValue describes why text is not a valid value of f.
func wrongValue(f *pflag.Flag, text string, err error) string {
	switch f.Value.Type() {
	case "duration":
		return fmt.Sprintf("%q is not a duration with its unit, such as 300ms, 5s or 1h30m", text)
	case "int", "int64", "uint64":
		return fmt.Sprintf("%q is not a whole number, or too large", text)
	case "float64":
		return fmt.Sprintf("%q is not a number", text)
	case "bool":
		return fmt.Sprintf("%q is neither true nor false", text)
	}
	return err.Error()
}

// listVar defines a flag with several values, which are separated by commas or newlines, or given
// by repeating the flag.
func listVar(flags *pflag.FlagSet, values *[]string, name, usage string) {
	flags.Func(name, usage, func(text string) error {
		texts, err := splitList(text)
		*values = append(*values, texts...)
		return err
	})
}
