// Package browser tests the page of a node, and the playground, in a real browser. It is a module of its own, so that
// the browser driver stays out of the project's go.mod.
package browser
