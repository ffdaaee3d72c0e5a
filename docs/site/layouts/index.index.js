{{- /* The sections of all pages, for the search. Unlike JSON, a script can be loaded from a file system. */ -}}
{{- $all := slice -}}
{{- range site.RegularPages -}}
  {{- $page := .File.TranslationBaseName -}}
  {{- $title := partial "title.html" . -}}
  {{- range split (replaceRE `(?m)^##+ ` "\x00" .RawContent) "\x00" -}}
    {{- $lines := split . "\n" -}}
    {{- $head := trim (index $lines 0 | strings.TrimPrefix "# " | markdownify | plainify | htmlUnescape) " \n" -}}
    {{- $text := delimit (after 1 $lines) "\n" -}}
    {{- $text = replaceRE "(?m)^```[a-z]*$|[`|*]|\\]\\([^) ]*\\)|-{3,}:?|\\[" "" $text | replaceRE `\s+` " " -}}
    {{- $all = $all | append (dict "page" $title "head" $head "url" (print $page ".html#" (anchorize $head)) "text" $text) -}}
  {{- end -}}
  {{- if in (slice "settings" "metrics") $page -}}
    {{- range findRE `(?m)^\| \x60.*$` .RawContent -}}
      {{- $cells := split . "|" -}}
      {{- $name := trim (index $cells 1) " `" -}}
      {{- $all = $all | append (dict "page" $title "head" $name "url" (print $page ".html#" $name) "text" (replaceRE "[`|]" "" . )) -}}
    {{- end -}}
  {{- end -}}
{{- end -}}
window.pages = {{ jsonify $all | safeJS }};
