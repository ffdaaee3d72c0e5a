// Package ratelimit runs envoyproxy/ratelimit beside the rules that are made of its configuration. It is a module of its
// own, so that ratelimit stays out of the project's go.mod.
package ratelimit
