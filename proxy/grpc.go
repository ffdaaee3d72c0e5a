package proxy

import (
	"net/http"
	"strconv"
	"strings"
	"time"
)

// grpcTypes are the media types of gRPC calls. A refusal has the type of its call, without the suffix.
var grpcTypes = [...]string{"application/grpc-web-text", "application/grpc-web", "application/grpc"}

// grpcType returns the media type for refusing a gRPC call with this Content-Type, or "" if it is not that of a call.
func grpcType(contentType string) string {
	for _, t := range grpcTypes {
		if len(contentType) >= len(t) && strings.EqualFold(contentType[:len(t)], t) {
			return t
		}
	}
	return ""
}

// appendGRPC appends the fields that refuse a gRPC call with status. They also serve as the trailers of the answer,
// which has no body ("Trailers-Only" in gRPC over HTTP/2). The access log shows status, not the 200 that is sent.
func (x *arrival) appendGRPC(dst []byte, status int, now time.Time) []byte {
	x.logged = status
	code := "8\r\nGrpc-Message: too many requests\r\n" // RESOURCE_EXHAUSTED
	switch status {
	case http.StatusBadRequest:
		code = "3\r\nGrpc-Message: bad request\r\n" // INVALID_ARGUMENT
	case http.StatusForbidden:
		code = "7\r\nGrpc-Message: forbidden\r\n" // PERMISSION_DENIED
	case http.StatusServiceUnavailable:
		code = "14\r\nGrpc-Message: temporarily unavailable\r\n" // UNAVAILABLE
	}
	dst = append(append(append(append(dst, "Content-Type: "...), x.grpc...), "\r\nGrpc-Status: "...), code...)
	if x.decision.Rule != nil {
		dst = append(dst, "Grpc-Retry-Pushback-Ms: "...)
		dst = append(strconv.AppendInt(dst, 1000*seconds(x.decision.RetryAfter(now)), 10), "\r\n"...)
	}
	return dst
}
