// Package http1 reads the heads and bodies of HTTP/1.1.
package http1
