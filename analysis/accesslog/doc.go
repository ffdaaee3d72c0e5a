// Package accesslog reads access logs: which client requested what, and when, in the
// order of time, from any format that servers commonly write.
package accesslog
