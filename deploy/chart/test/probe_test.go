//go:build linux

package chart_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"sync"
	"syscall"
	"testing"
	"time"

	apps "k8s.io/api/apps/v1"
	core "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"github.com/edgelimit/edge/internal/harness"
)

// endpoints returns the addresses of the pods that load balancers use for a Service.
func (c *cluster) endpoints(service string) []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.balanced[service]
}

// probe calls a container's probes until ctx is done.
func (c *cluster) probe(ctx context.Context, p *pod, container *core.Container) {
	if container.StartupProbe != nil {
		ctx, started := context.WithCancel(ctx)
		c.repeat(ctx, p, "startup", container.StartupProbe, func(ok bool) {
			if !ok {
				c.t.Errorf("%s does not start: the kubelet would restart it", p.name)
			}
			started()
		})
	}
	var both sync.WaitGroup
	both.Go(func() {
		c.repeat(ctx, p, "liveness", container.LivenessProbe, func(ok bool) {
			if !ok {
				c.t.Errorf("%s: the kubelet would restart it", p.name)
			}
		})
	})
	both.Go(func() {
		c.repeat(ctx, p, "readiness", container.ReadinessProbe, func(ok bool) {
			c.mu.Lock()
			changed := p.ready != ok
			p.ready = ok
			c.mu.Unlock()
			if changed {
				c.changed()
			}
		})
	})
	both.Wait()
}

// repeat calls a probe periodically, and tell once it succeeded, or failed as many times in a row as allowed.
func (c *cluster) repeat(ctx context.Context, p *pod, name string, probe *core.Probe, tell func(ok bool)) {
	failures := int32(0)
	for ctx.Err() == nil {
		err := c.ask(ctx, p, probe)
		if ctx.Err() != nil {
			return
		}
		c.mu.Lock()
		p.probes[name]++
		c.mu.Unlock()
		failures++
		if err == nil {
			failures = 0
			tell(true)
		} else if failures >= max(probe.FailureThreshold, 1) {
			tell(false)
		}
		select {
		case <-ctx.Done():
		case <-time.After(time.Duration(max(probe.PeriodSeconds, 1)) * time.Second):
		}
	}
}

// ask calls a probe once.
func (c *cluster) ask(ctx context.Context, p *pod, probe *core.Probe) error {
	ctx, cancel := context.WithTimeout(ctx, time.Duration(max(probe.TimeoutSeconds, 1))*time.Second)
	defer cancel()
	template := &core.PodTemplateSpec{Spec: *p.spec}
	port := probePort(template, probe)
	if probe.TCPSocket != nil {
		conn, err := new(net.Dialer).DialContext(ctx, "tcp", net.JoinHostPort(p.ip, fmt.Sprint(port)))
		if err == nil {
			err = conn.Close()
		}
		return err
	}
	status, text, err := get(ctx, p.url(port)+probe.HTTPGet.Path)
	if err == nil && (status < 200 || status >= 400) {
		err = fmt.Errorf("status %d: %s", status, text)
	}
	return err
}

// get sends a request with these fields over a connection of its own.
func get(ctx context.Context, url string, fields ...string) (status int, text string, err error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return 0, "", err
	}
	for i := 0; i < len(fields); i += 2 {
		request.Header.Set(fields[i], fields[i+1])
	}
	resp, err := (&http.Transport{DisableKeepAlives: true}).RoundTrip(request)
	if err != nil {
		return 0, "", err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	return resp.StatusCode, string(body), err
}

// awaitReady waits until a pod is ready.
func (c *cluster) awaitReady(p *pod) {
	c.t.Helper()
	harness.Until(c.t, p.name+" is ready", harness.Patience, 50*time.Millisecond, func() bool {
		if p.HasEnded() {
			c.t.Fatalf("%s ended: %s", p.name, p.Stderr)
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		return p.ready
	})
}

// delete stops a pod as the kubelet does, and removes it.
func (c *cluster) delete(p *pod) {
	c.t.Helper()
	killed := time.After(time.Duration(ptr.Deref(p.spec.TerminationGracePeriodSeconds, 30)) * time.Second)
	c.mu.Lock()
	p.leaving = true
	c.mu.Unlock()
	c.changed()
	p.stopProbes()
	if l := p.spec.Containers[0].Lifecycle; l != nil {
		time.Sleep(time.Duration(l.PreStop.Sleep.Seconds) * time.Second)
		if p.HasEnded() {
			c.t.Errorf("%s ended before SIGTERM", p.name)
		}
	}
	p.Signal(syscall.SIGTERM)
	select {
	case <-p.Ended:
	case <-killed:
		c.t.Errorf("%s outlives its grace period", p.name)
		p.Kill()
	}
	run(c.t, "ip", "netns", "del", p.space)
	if code := p.Cmd.ProcessState.ExitCode(); code != 0 {
		c.t.Errorf("%s: exit status %d", p.name, code)
	}
	c.mu.Lock()
	delete(c.pods, p.name)
	c.mu.Unlock()
	c.changed()
}

// rollout restarts the pods of a StatefulSet as kubectl rollout restart does: the last one first, each when the
// one before has been ready for minReadySeconds. It calls ready with each new pod.
func (c *cluster) rollout(s *apps.StatefulSet, ready func(*pod)) {
	for i := c.release.replicas(s) - 1; i >= 0; i-- {
		c.delete(c.pod(fmt.Sprintf("%s-%d", s.Name, i)))
		p := c.start(s, i)
		c.awaitReady(p)
		ready(p)
		time.Sleep(time.Duration(s.Spec.MinReadySeconds) * time.Second)
	}
}

// certificate returns a certificate and its key, in PEM.
func certificate(t *testing.T) (cert, key []byte) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), DNSNames: []string{"shop"}, NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &private.PublicKey, private)
	if err != nil {
		t.Fatal(err)
	}
	pkcs8, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: pkcs8})
}
