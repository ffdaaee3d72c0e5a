// Package accesslog reads access logs in the formats that servers commonly write. It
// returns each request with its client and time, in chronological order.
//
// # Formats
//
// A file's format is detected from its first lines: the format that parses most of them is
// chosen. Formats lists the known formats, each a row in format.go. Options.Format names one of them or describes
// another: by a pattern in the notation of nginx's log_format or Apache's LogFormat; by the
// names of fields, for JSON objects; by the columns, for a W3C log without #Fields:
//
//	$remote_addr - $remote_user [$time_local] "$request" $status "$http_user_agent"
//	%h %l %u %t "%r" %>s %b "%{Referer}i" "%{User-Agent}i"
//	json:time=at,client=peer.addr,method=verb,path=url,status=code,header:x-api-key=key
//	w3c:fields=date time s-ip cs-method cs-uri-stem c-ip sc-status
//
// Field names can be given for every format of JSON objects. For w3c, cloudfront and zeek,
// the columns and the client's column can be given, as in w3c:client=X-Forwarded-For.
//
// gzip, zstd and bzip2 are recognized by a file's first bytes. Prefixes of syslog, container
// engines, docker compose and kubectl are skipped. A file in no known format is refused, with a
// guess at what it is. Lines that are neither entries, nor blank, nor comments are counted as
// malformed, and the first few are kept.
//
// # Clients
//
// A client is identified by its name in the log, which is not always an address. In the common log format and its
// extensions, it is the first word of the line, after the virtual host if there is one. In other formats its port is
// removed. If an entry has several addresses, the one that the server itself considered the client's is used; in a
// list such as X-Forwarded-For it is the first, which a client can forge. Servers write "-" for an unknown client.
// All such entries count as one client; Stats.Unnamed counts them.
//
// # Attacks
//
// A log in JSON or logfmt may mark the requests of a known attack by setting the field attack
// to true or 1. The field can be renamed, as in json:attack=is_bot.
//
// # Times
//
// Times are in microseconds. Whether an entry has the time of the beginning or the end of a request depends on the
// server: nginx logs the end, Apache the beginning. A bare number is in seconds since the epoch, or in milli-, micro-
// or nanoseconds if, read as seconds, it would be after the year 5138. In a date such as 03/14/2026, the month comes
// first. Times without a zone are in Options.Location. If a time names its zone, the name must be UTC, GMT or that of
// Options.Location. If a W3C log has no date column, its entries have the date of the last #Date.
//
// # Order
//
// Entries are returned in chronological order, those with the same time in the order of the files and lines. Servers
// log requests when they end, so a log is always slightly out of order: Options.Buffer entries are held back to sort
// them. An entry that comes later than that is an error unless Options.Disk is set.
package accesslog
