// Package accesslog reads access logs: which client requested what, and when, in the
// order of time, from any format that servers commonly write.
//
// # Formats
//
// A file's format is found out from its first lines: it is the one that reads the most of
// them. Formats lists those that are known. Options.Format names one of them, or describes
// another: a pattern in the notation of nginx's log_format or of Apache's LogFormat, also as it
// stands in their configuration; for JSON objects and logfmt the names of fields; for a W3C log
// without #Fields its columns:
//
//	$remote_addr - $remote_user [$time_local] "$request" $status "$http_user_agent"
//	%h %l %u %t "%r" %>s %b "%{Referer}i" "%{User-Agent}i"
//	json:time=at,client=peer.addr,method=verb,path=url,status=code,header:x-api-key=key
//	w3c:fields=date time s-ip cs-method cs-uri-stem c-ip sc-status
//
// The names of fields can be given for every format of JSON objects; of w3c, cloudfront and
// zeek the columns and the one of the client can, as in w3c:client=X-Forwarded-For.
//
// gzip, zstd and bzip2 are recognised by a file's first bytes. Of a compressed file that is
// cut off, what can be read is. What syslog, container
// engines and docker compose put in front of lines is skipped, and the parts that container
// engines cut long lines into are joined. A file that no format reads
// is refused, with a guess at what it is. A line that is not an entry is counted, unless it is
// blank or a comment, and the first of them are kept.
//
// # Clients
//
// A client is what the log names so, and not always an address. In the common log format
// and all that begin like it, it is the first word of the line, behind a virtual host if
// there is one in front. Elsewhere a port is cut off. Of several addresses the one counts
// that the server itself took for the client's; of a list such as X-Forwarded-For it is
// the first, which a client can make up. A server that knows none writes "-", which then
// is one client for all of them; Stats.Unnamed says how many entries that are.
//
// # Attacks
//
// A log of JSON objects or in logfmt may mark the requests of a known attack by the field attack,
// which is true or 1 then. The field may have another name, as in json:attack=is_bot.
//
// # Times
//
// Times are in microseconds. Which moment of a request it is depends on the server: nginx
// logs the end of a request, Apache its beginning. A bare number is in seconds since the
// epoch, or in milli-, micro- or nanoseconds if as seconds it would be after the year 5138.
// For formats without a zone see Options.Location. A W3C log without dates is of the day
// of its last #Date.
//
// # Order
//
// Entries are handed out in the order of time, those of the same time in the order of the
// files and lines. Servers log requests when they end, so that a log is always a little out
// of order: Options.Buffer entries are held back to mend that. What comes even later is
// found when it comes, and Options.Sort says what happens then.
package accesslog
