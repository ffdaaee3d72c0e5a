package accesslog

import (
	"regexp"
	"strings"
)

// directive matches a directive of Apache's LogFormat: conditions, an argument, and a letter.
var directive = regexp.MustCompile(`%[<>!,0-9]*(?:\{([^}]*)\})?(\^t[io]|[a-zA-Z%])`)

// apacheVariables maps the relevant directives of Apache to nginx's variables.
var apacheVariables = map[string]string{
	"a": "remote_addr", "h": "remote_addr", "r": "request", "m": "request_method", "U": "uri", "q": "args",
	"s": "status", "v": "server_name", "V": "host", "t": "time",
}

// apacheMerged matches the parts of a time, and path and query, which are read together.
var apacheMerged = regexp.MustCompile(`(\$\{time\})(?:[. ]?\$\{time\})+|(\$\{uri\})\$\{args\}`)

// fromApache returns a pattern in the notation of LogFormat in that of nginx. Directives without a counterpart become
// variables that are not used.
func fromApache(text string) string {
	text = strings.NewReplacer(`\"`, `"`, `\t`, "\t", `\\`, `\`).Replace(text)
	text = directive.ReplaceAllStringFunc(text, func(d string) string {
		m := directive.FindStringSubmatch(d)
		name, argument := m[2], m[1]
		switch {
		case name == "%":
			return "%"
		case name == "i":
			name = "http_" + strings.ToLower(strings.ReplaceAll(argument, "-", "_"))
		case name == "a" && argument != "":
			name = "realip_remote_addr"
		case apacheVariables[name] != "" && (argument == "" || name == "t"):
			name = apacheVariables[name]
		}
		return "${" + name + "}"
	})
	return apacheMerged.ReplaceAllString(text, "$1$2")
}
