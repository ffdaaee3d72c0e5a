// Package frameworks_test shows and tests the limiter in frameworks. It is a separate module, so that they do not
// become dependencies of the limiter.
package frameworks_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gin-gonic/gin"
	"github.com/go-chi/chi/v5"
	"github.com/labstack/echo/v4"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/edgelimit/edge"
)

func withChi(limiter *edge.Limiter, serve http.HandlerFunc) http.Handler {
	r := chi.NewRouter()
	r.Use(limiter.Middleware)
	r.Get("/login", serve)
	return r
}

func withEcho(limiter *edge.Limiter, serve http.HandlerFunc) http.Handler {
	e := echo.New()
	e.Use(echo.WrapMiddleware(limiter.Middleware))
	e.GET("/login", echo.WrapHandler(serve))
	return e
}

func withGin(limiter *edge.Limiter, serve http.HandlerFunc) http.Handler {
	gin.SetMode(gin.ReleaseMode)
	r := gin.New()
	r.Use(func(c *gin.Context) {
		decision := limiter.Decide(c.Request)
		if decision.Refused() {
			decision.Refuse(c.Writer, c.Request)
			c.Abort()
			return
		}
		decision.Header(c.Writer.Header())
		c.Next()
		decision.Answered(c.Writer.Status(), c.Writer.Header())
	})
	r.GET("/login", gin.WrapF(serve))
	return r
}

func interceptor(limiter *edge.Limiter) grpc.UnaryServerInterceptor {
	return func(ctx context.Context, req any, _ *grpc.UnaryServerInfo, handle grpc.UnaryHandler) (any, error) {
		user := metadata.ValueFromIncomingContext(ctx, "x-user")
		if len(user) != 1 {
			return nil, status.Error(codes.Unauthenticated, "one x-user is needed")
		}
		if a, err := limiter.Allow(ctx, "api", user[0], 1); err == nil && !a.Allowed {
			return nil, status.Errorf(codes.ResourceExhausted, "try again in %v", a.RetryAfter)
		}
		return handle(ctx, req)
	}
}

const rules = `
rules:
  - id: login
    count: {statuses: [401]}
    characteristics: [ip]
    limits: [{threshold: 3, period: 60s}]
    action: block
    mitigation_timeout: 60s
  - id: api
    characteristics: ["header:x-user"]
    limits: [{threshold: 3, period: 60s}]
    action: block
    mitigation_timeout: 60s
`

func newLimiter(t *testing.T) *edge.Limiter {
	limiter, err := edge.New(edge.Options{Rules: rules})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = limiter.Close(context.Background()) })
	return limiter
}

// counted waits until the limiter has counted the requests.
func counted() {
	time.Sleep(20 * time.Millisecond)
	synctest.Wait()
}

// The framework answers wrong passwords until there are too many.
func TestHTTP(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1)) // go.dev/issue/78156
	for name, with := range map[string]func(*edge.Limiter, http.HandlerFunc) http.Handler{"chi": withChi, "echo": withEcho, "gin": withGin} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := with(newLimiter(t), func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusUnauthorized) })
				for i := range 6 {
					r := httptest.NewRequest("GET", "/login", nil)
					r.Header.Set("X-User", string(rune('a'+i))) // so that only the first rule applies
					w := httptest.NewRecorder()
					h.ServeHTTP(w, r)
					want := http.StatusUnauthorized
					if i > 3 {
						want = http.StatusTooManyRequests
					}
					if w.Code != want {
						t.Errorf("request %d: %d, want %d", i, w.Code, want)
					}
					counted()
				}
			})
		})
	}
}

func TestGRPC(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1)) // go.dev/issue/78156
	synctest.Test(t, func(t *testing.T) {
		intercept := interceptor(newLimiter(t))
		ctx := metadata.NewIncomingContext(t.Context(), metadata.Pairs("x-user", "alice"))
		for i := range 6 {
			_, err := intercept(ctx, nil, nil, func(context.Context, any) (any, error) { return nil, nil })
			want := codes.OK
			if i > 3 {
				want = codes.ResourceExhausted
			}
			if status.Code(err) != want {
				t.Errorf("call %d: %v, want %v", i, err, want)
			}
			counted()
		}
	})
}
