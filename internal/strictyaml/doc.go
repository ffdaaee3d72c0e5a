// Package strictyaml reads the YAML files that people write for edge: rules and their tests, traffic
// mixes, settings. Nothing is taken in another spelling than the file has, and no key is ignored. All
// errors of a file are collected, each with file:line:column, what is wrong and what to do about it.
package strictyaml
