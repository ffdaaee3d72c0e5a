package chart_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	apps "k8s.io/api/apps/v1"
	core "k8s.io/api/core/v1"
	networking "k8s.io/api/networking/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation"
)

// Manifests refer to each other correctly, and pods are as confined as the restricted profile of the Pod Security
// Standards wants.
func TestConsistent(t *testing.T) {
	for _, file := range valuesFiles(t) {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".yaml"), func(t *testing.T) {
			r := mustRender(t, file, nil)
			for _, s := range r.sorted() {
				r.checkStatefulSet(t, s)
			}
			for name, service := range r.Services {
				pods := r.selected(labels.SelectorFromSet(service.Spec.Selector))
				if len(pods) != 1 {
					t.Errorf("Service %s selects the pods of %d StatefulSets, want 1", name, len(pods))
					continue
				}
				for _, port := range service.Spec.Ports {
					if findPort(&pods[0].Spec.Template, port.TargetPort) == 0 {
						t.Errorf("Service %s: %s is not a port of its pods", name, port.TargetPort.String())
					}
				}
			}
			for name, budget := range r.Budgets {
				if pods := r.selected(selector(t, budget.Spec.Selector)); len(pods) != 1 || budget.Spec.MaxUnavailable.IntValue() != 1 {
					t.Errorf("PodDisruptionBudget %s covers %d StatefulSets, with at most %v unavailable", name, len(pods), budget.Spec.MaxUnavailable)
				}
			}
			for name, p := range r.Policies {
				pods := r.selected(selector(t, &p.Spec.PodSelector))
				if len(pods) != 1 {
					t.Fatalf("NetworkPolicy %s covers %d StatefulSets, want 1", name, len(pods))
				}
				for _, rule := range p.Spec.Ingress {
					for _, port := range rule.Ports {
						if findPort(&pods[0].Spec.Template, *port.Port) == 0 {
							t.Errorf("NetworkPolicy %s: %v is not a port of its pods", name, port.Port)
						}
					}
				}
			}
			for name, scaler := range r.Autoscalers {
				target := r.StatefulSets[scaler.Spec.ScaleTargetRef.Name]
				if target == nil || scaler.Spec.ScaleTargetRef.Kind != "StatefulSet" || target.Spec.Replicas != nil || target.Spec.Template.Labels["app.kubernetes.io/component"] != "node" {
					t.Errorf("HorizontalPodAutoscaler %s scales %+v, want the nodes, without replicas of their own", name, scaler.Spec.ScaleTargetRef)
				}
			}
			for name, monitor := range r.ServiceMonitors {
				var found []string
				for _, service := range r.Services {
					if selector(t, &monitor.Spec.Selector).Matches(labels.Set(service.Labels)) {
						found = append(found, service.Name)
					}
				}
				if !slices.Equal(found, []string{"edge-nodes"}) || monitor.Spec.Endpoints[0].Port != "metrics" {
					t.Errorf("ServiceMonitor %s finds the Services %v, port %s", name, found, monitor.Spec.Endpoints[0].Port)
				}
			}
			for name, account := range r.ServiceAccounts {
				if account.AutomountServiceAccountToken == nil || *account.AutomountServiceAccountToken {
					t.Errorf("ServiceAccount %s has a token", name)
				}
			}
			if !strings.Contains(r.notes, "kubectl -n "+namespace+" rollout status statefulset/edge") {
				t.Errorf("notes: %s", r.notes)
			}
		})
	}
}

// checkStatefulSet checks a StatefulSet and its pods.
func (r *release) checkStatefulSet(t *testing.T, s *apps.StatefulSet) {
	spec, pod := s.Spec, s.Spec.Template.Spec
	if !selector(t, spec.Selector).Matches(labels.Set(spec.Template.Labels)) {
		t.Errorf("%s does not select its pods", s.Name)
	}
	for key, value := range spec.Template.Labels {
		if problems := append(validation.IsQualifiedName(key), validation.IsValidLabelValue(value)...); problems != nil {
			t.Errorf("%s: label %s: %v", s.Name, key, problems)
		}
	}
	service := r.Services[spec.ServiceName]
	if service == nil || service.Spec.ClusterIP != "None" || !service.Spec.PublishNotReadyAddresses ||
		!labels.SelectorFromSet(service.Spec.Selector).Matches(labels.Set(spec.Template.Labels)) {
		t.Errorf("%s: the Service %s does not name its pods", s.Name, spec.ServiceName)
	}
	if *pod.AutomountServiceAccountToken || *pod.EnableServiceLinks || r.ServiceAccounts[pod.ServiceAccountName] == nil {
		t.Errorf("%s: its pods have a token, service links or another workload's account", s.Name)
	}
	for _, c := range pod.TopologySpreadConstraints {
		if !selector(t, c.LabelSelector).Matches(labels.Set(spec.Template.Labels)) {
			t.Errorf("%s: the spread over %s does not cover its pods", s.Name, c.TopologyKey)
		}
	}
	if len(pod.TopologySpreadConstraints) != 2 {
		t.Errorf("%s: %d topology spread constraints, want 2", s.Name, len(pod.TopologySpreadConstraints))
	}
	volumes := map[string]bool{}
	for _, v := range pod.Volumes {
		volumes[v.Name] = true
		switch {
		case v.ConfigMap != nil && r.ConfigMaps[v.ConfigMap.Name] == nil && v.ConfigMap.Name != "edge-rules-from-git",
			v.Secret != nil && r.Secrets[v.Secret.SecretName] == nil && !slices.Contains([]string{"edge-secret", "shop-tls"}, v.Secret.SecretName):
			t.Errorf("%s: nothing creates the source of volume %s", s.Name, v.Name)
		case v.Secret != nil && *v.Secret.DefaultMode != 0o440:
			t.Errorf("%s: volume %s has mode %o, which nodes refuse", s.Name, v.Name, *v.Secret.DefaultMode)
		}
	}
	c := pod.Containers[0]
	for _, m := range c.VolumeMounts {
		if !volumes[m.Name] || m.SubPath != "" || m.ReadOnly != (m.Name != "run" && m.Name != "log") {
			t.Errorf("%s: mount %+v", s.Name, m)
		}
	}
	for _, p := range c.Ports {
		if problems := validation.IsValidPortName(p.Name); problems != nil {
			t.Errorf("%s: port %s: %v", s.Name, p.Name, problems)
		}
	}
	if c.LivenessProbe == nil || c.ReadinessProbe == nil || probePort(&spec.Template, c.LivenessProbe) == 0 || probePort(&spec.Template, c.ReadinessProbe) == 0 {
		t.Errorf("%s: probes without a port", s.Name)
	}
	if c.Lifecycle != nil {
		if before, all := c.Lifecycle.PreStop.Sleep.Seconds, *pod.TerminationGracePeriodSeconds; all < before+argument(t, c.Args, "--drain-timeout")+10 {
			t.Errorf("%s: %d s to stop, of which %d are spent before SIGTERM", s.Name, all, before)
		}
	}
	ps, cs := pod.SecurityContext, c.SecurityContext
	if !*ps.RunAsNonRoot || *ps.RunAsUser == 0 || ps.SeccompProfile.Type != core.SeccompProfileTypeRuntimeDefault ||
		*cs.AllowPrivilegeEscalation || !*cs.ReadOnlyRootFilesystem || !slices.Equal(cs.Capabilities.Drop, []core.Capability{"ALL"}) {
		t.Errorf("%s: pod %+v, container %+v", s.Name, ps, cs)
	}
	if c.Resources.Requests.Cpu().IsZero() || c.Resources.Requests.Memory().IsZero() || c.Resources.Limits.Memory().Cmp(*c.Resources.Requests.Memory()) < 0 {
		t.Errorf("%s: resources %+v", s.Name, c.Resources)
	}
}

// argument returns the seconds of an argument --NAME=…s.
func argument(t *testing.T, args []string, name string) (seconds int64) {
	for _, arg := range args {
		if text, ok := strings.CutPrefix(arg, name+"="); ok {
			if _, err := fmt.Sscanf(text, "%ds", &seconds); err != nil {
				t.Errorf("%s: %v", arg, err)
			}
		}
	}
	return seconds
}

func selector(t *testing.T, s *meta.LabelSelector) labels.Selector {
	t.Helper()
	compiled, err := meta.LabelSelectorAsSelector(s)
	if err != nil {
		t.Fatal(err)
	}
	return compiled
}

// selected returns the StatefulSets whose pods s selects.
func (r *release) selected(s labels.Selector) (found []*apps.StatefulSet) {
	for _, set := range r.sorted() {
		if s.Matches(labels.Set(set.Spec.Template.Labels)) {
			found = append(found, set)
		}
	}
	return found
}

// findPort returns the number of a port of a pod, or 0.
func findPort(pod *core.PodTemplateSpec, port intstr.IntOrString) int32 {
	for _, p := range pod.Spec.Containers[0].Ports {
		if p.Name == port.StrVal || p.ContainerPort == port.IntVal {
			return p.ContainerPort
		}
	}
	return 0
}

// probePort returns the port that a probe asks, or 0.
func probePort(pod *core.PodTemplateSpec, p *core.Probe) int32 {
	if p.HTTPGet != nil {
		return findPort(pod, p.HTTPGet.Port)
	}
	return findPort(pod, p.TCPSocket.Port)
}

// Only nodes reach shards and gossip, only the named proxies ask, and everybody reaches the ports for clients.
func TestNetworkPolicies(t *testing.T) {
	node := map[string]string{"app.kubernetes.io/name": "edge", "app.kubernetes.io/component": "node", "app.kubernetes.io/instance": "edge"}
	second := maps.Clone(node)
	second["app.kubernetes.io/instance"] = "edge-envoy"
	shard := map[string]string{"app.kubernetes.io/name": "edge", "app.kubernetes.io/component": "shard"}
	own := map[string]string{"kubernetes.io/metadata.name": namespace}
	traefik := map[string]string{"kubernetes.io/metadata.name": "traefik"}
	peers := []struct {
		name            string
		pod, namespaced map[string]string
	}{
		{"node", node, own},
		{"node of another release", second, own},
		{"node in another namespace", node, traefik},
		{"shard", shard, own},
		{"traefik", map[string]string{"app.kubernetes.io/name": "traefik"}, traefik},
		{"pod beside traefik", nil, traefik},
		{"client", nil, nil},
	}
	nodes := []string{"node", "node of another release"}
	var everybody []string
	for _, p := range peers {
		everybody = append(everybody, p.name)
	}
	for _, tt := range []struct {
		values, policy, port string
		want                 []string
	}{
		{"memcached", "edge-memcached", "shard", nodes},
		{"redis", "edge-redis", "shard", nodes},
		{"memcached", "edge", "gossip", nodes},
		{"memcached", "edge", "gossip-udp", nodes},
		{"memcached", "edge", "http", everybody},
		{"memcached", "edge", "metrics", everybody},
		{"memcached", "edge", "admin", nil},
		{"production", "edge", "https", everybody},
		{"production", "edge", "metrics", nil}, // only the namespace monitoring
		{"traefik-haproxy", "edge", "check", []string{"traefik"}},
		{"traefik-haproxy", "edge", "spop", []string{"traefik"}},
		{"traefik-haproxy", "edge", "http", nil},
	} {
		p := mustRender(t, filepath.Join(chartDir, "ci", tt.values+".yaml"), nil).Policies[tt.policy]
		var reached []string
		for _, peer := range peers {
			if admits(t, p, tt.port, peer.pod, peer.namespaced) {
				reached = append(reached, peer.name)
			}
		}
		if !slices.Equal(reached, tt.want) {
			t.Errorf("%s: %s of %s is reached by %q, want %q", tt.values, tt.port, tt.policy, reached, tt.want)
		}
	}
}

// admits reports whether a policy lets a pod in a namespace, with these labels, reach a port.
func admits(t *testing.T, p *networking.NetworkPolicy, port string, pod, namespaced map[string]string) bool {
	for _, rule := range p.Spec.Ingress {
		if !slices.ContainsFunc(rule.Ports, func(np networking.NetworkPolicyPort) bool { return np.Port.StrVal == port }) {
			continue
		}
		if len(rule.From) == 0 {
			return true
		}
		for _, from := range rule.From {
			inside := namespaced["kubernetes.io/metadata.name"] == namespace
			if from.NamespaceSelector != nil {
				inside = selector(t, from.NamespaceSelector).Matches(labels.Set(namespaced))
			}
			if inside && (from.PodSelector == nil || selector(t, from.PodSelector).Matches(labels.Set(pod))) {
				return true
			}
		}
	}
	return false
}

// Prometheus gets the alerts of deploy/alerts.yml, and Grafana the dashboard, unchanged; scraped nodes have the labels
// that both expect.
func TestMonitoring(t *testing.T) {
	r := mustRender(t, filepath.Join(chartDir, "ci", "production.yaml"), nil)
	alerts, err := os.ReadFile(filepath.Join(chartDir, "..", "alerts.yml"))
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, group := range r.PrometheusRules["edge"].Spec.Groups {
		for _, rule := range group.Rules {
			names = append(names, "alert: "+rule.Alert, "expr: '"+strings.ReplaceAll(rule.Expr.StrVal, "'", "''"))
		}
	}
	if len(names) < 20 {
		t.Errorf("only %d rules", len(names)/2)
	}
	for _, text := range names {
		if !strings.Contains(string(alerts), text) {
			t.Errorf("deploy/alerts.yml does not contain %s", text)
		}
	}
	dashboard, err := os.ReadFile(filepath.Join(chartDir, "..", "grafana", "dashboard.json"))
	if err != nil {
		t.Fatal(err)
	}
	if got := r.ConfigMaps["edge-dashboard"].Data["edge.json"]; strings.TrimSpace(got) != strings.TrimSpace(string(dashboard)) || !json.Valid([]byte(got)) {
		t.Error("the dashboard differs from deploy/grafana/dashboard.json")
	}
	got, err := json.Marshal(r.ServiceMonitors["edge"].Spec.Endpoints[0].RelabelConfigs)
	if err != nil {
		t.Fatal(err)
	}
	const want = `[{"targetLabel":"job","replacement":"edge"},` +
		`{"sourceLabels":["__meta_kubernetes_namespace","__meta_kubernetes_pod_name"],"separator":"/","targetLabel":"instance"}]`
	if string(got) != want {
		t.Errorf("relabelings %s, want %s", got, want)
	}
}
