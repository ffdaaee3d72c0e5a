// Package browser tests the page of a node in a real browser. It is a module of its own, so that what
// drives the browser stays out of the project's go.mod.
package browser
