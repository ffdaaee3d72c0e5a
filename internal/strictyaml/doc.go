// Package strictyaml reads the YAML files that people write for edge: rules and their tests, traffic
// mixes, settings. It never reinterprets a value, such as 012 or yes, and ignores no key. It collects
// all errors of a file, each with file:line:column, what is wrong and what to do about it.
package strictyaml
