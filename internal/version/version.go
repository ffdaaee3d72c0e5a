// Package version reports the version of the running program.
package version

import (
	"cmp"
	"fmt"
	"runtime"
	"runtime/debug"
)

// Release is the version of a release; the linker sets it.
var Release string

// String returns the version, the Go version and the platform of the program. In a build that is not a release, the
// version is that of the module: go install sets it, and go build derives it from the tags of a working copy.
func String() string {
	version := Release
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "(devel)" {
		version = cmp.Or(version, info.Main.Version)
	}
	return fmt.Sprintf("%s %s %s/%s", cmp.Or(version, "unreleased"), runtime.Version(), runtime.GOOS, runtime.GOARCH)
}
