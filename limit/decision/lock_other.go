//go:build !linux

package decision

import "os"

func lock(*os.File) error { return nil }
