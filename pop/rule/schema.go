package rule

import _ "embed"

// Schema is the JSON Schema of a rules file, for editors. It refuses what the parser refuses, except for
// what no schema can express: that IDs and networks are unique, that no two limits have the same period,
// that hosts and paths are canonical, how long a period is, and how a number is spelled.
//
//go:embed schema.json
var Schema []byte
