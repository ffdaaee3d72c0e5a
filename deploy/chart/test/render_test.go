package chart_test

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	monitoring "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	"helm.sh/helm/v4/pkg/chart/common"
	"helm.sh/helm/v4/pkg/chart/common/util"
	"helm.sh/helm/v4/pkg/chart/v2/lint"
	"helm.sh/helm/v4/pkg/chart/v2/loader"
	"helm.sh/helm/v4/pkg/engine"
	apps "k8s.io/api/apps/v1"
	autoscaling "k8s.io/api/autoscaling/v2"
	core "k8s.io/api/core/v1"
	networking "k8s.io/api/networking/v1"
	policy "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"sigs.k8s.io/yaml"
)

const (
	namespace = "edge-system"
	chartDir  = ".."
)

// A release is a rendered chart.
type release struct {
	StatefulSets    map[string]*apps.StatefulSet
	Services        map[string]*core.Service
	ConfigMaps      map[string]*core.ConfigMap
	Secrets         map[string]*core.Secret
	ServiceAccounts map[string]*core.ServiceAccount
	Budgets         map[string]*policy.PodDisruptionBudget
	Policies        map[string]*networking.NetworkPolicy
	Autoscalers     map[string]*autoscaling.HorizontalPodAutoscaler
	ServiceMonitors map[string]*monitoring.ServiceMonitor
	PrometheusRules map[string]*monitoring.PrometheusRule
	kinds           []string // of all documents
	notes           string
}

// values are what users give to Helm.
type values = map[string]any

// merged returns a, overridden by b.
func merged(a, b values) values { return loader.MergeMaps(a, b) }

func readValues(t *testing.T, file string) values {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	v, err := common.ReadValues(text)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// render renders the chart as helm install or helm upgrade does for a release edge, and decodes it. stored are the
// Secrets of the cluster.
func render(t *testing.T, v values, stored ...*core.Secret) (*release, error) {
	t.Helper()
	return renderAs(t, "edge", v, stored...)
}

func renderAs(t *testing.T, name string, v values, stored ...*core.Secret) (*release, error) {
	t.Helper()
	chart, err := loader.LoadDir(chartDir)
	if err != nil {
		t.Fatal(err)
	}
	options := common.ReleaseOptions{Name: name, Namespace: namespace, Revision: 1, IsInstall: true}
	all, err := util.ToRenderValues(chart, v, options, nil)
	if err != nil {
		return nil, err
	}
	texts, err := engine.RenderWithClientProvider(chart, all, secrets{stored: stored})
	if err != nil {
		return nil, err
	}
	r := &release{
		StatefulSets: map[string]*apps.StatefulSet{}, Services: map[string]*core.Service{},
		ConfigMaps: map[string]*core.ConfigMap{}, Secrets: map[string]*core.Secret{},
		ServiceAccounts: map[string]*core.ServiceAccount{}, Budgets: map[string]*policy.PodDisruptionBudget{},
		Policies: map[string]*networking.NetworkPolicy{}, Autoscalers: map[string]*autoscaling.HorizontalPodAutoscaler{},
		ServiceMonitors: map[string]*monitoring.ServiceMonitor{}, PrometheusRules: map[string]*monitoring.PrometheusRule{},
	}
	for _, file := range slices.Sorted(maps.Keys(texts)) {
		if strings.HasSuffix(file, "NOTES.txt") {
			r.notes = texts[file]
			continue
		}
		for i, text := range regexp.MustCompile(`(?m)^---$`).Split(texts[file], -1) {
			if err := r.add(text); err != nil {
				t.Errorf("%s, document %d: %v\n%s", file, i+1, err, text)
			}
		}
	}
	return r, nil
}

// mustRender renders the chart with a file of values.
func mustRender(t *testing.T, file string, more values) *release {
	t.Helper()
	r, err := render(t, merged(readValues(t, file), more))
	if err != nil {
		t.Fatalf("%s: %v", file, err)
	}
	return r
}

// add decodes a document, strictly.
func (r *release) add(text string) error {
	var kind meta.TypeMeta
	if err := yaml.Unmarshal([]byte(text), &kind); err != nil || kind.Kind == "" {
		if uncommented := regexp.MustCompile(`(?m)^\s*(#.*)?$`).ReplaceAllString(text, ""); uncommented == "" {
			return err // nothing but comments
		}
		return errors.Join(err, errors.New("no kind"))
	}
	r.kinds = append(r.kinds, kind.Kind)
	switch kind.APIVersion + " " + kind.Kind {
	case "apps/v1 StatefulSet":
		return addTo(r.StatefulSets, text)
	case "v1 Service":
		return addTo(r.Services, text)
	case "v1 ConfigMap":
		return addTo(r.ConfigMaps, text)
	case "v1 Secret":
		return addTo(r.Secrets, text)
	case "v1 ServiceAccount":
		return addTo(r.ServiceAccounts, text)
	case "policy/v1 PodDisruptionBudget":
		return addTo(r.Budgets, text)
	case "networking.k8s.io/v1 NetworkPolicy":
		return addTo(r.Policies, text)
	case "autoscaling/v2 HorizontalPodAutoscaler":
		return addTo(r.Autoscalers, text)
	case "monitoring.coreos.com/v1 ServiceMonitor":
		return addTo(r.ServiceMonitors, text)
	case "monitoring.coreos.com/v1 PrometheusRule":
		return addTo(r.PrometheusRules, text)
	}
	return fmt.Errorf("unexpected %s %s", kind.APIVersion, kind.Kind)
}

// addTo decodes an object of a known type. Unknown and repeated fields are errors.
func addTo[T any, P interface {
	*T
	meta.Object
}](to map[string]P, text string) error {
	object := P(new(T))
	if err := yaml.UnmarshalStrict([]byte(text), object); err != nil {
		return err
	}
	if to[object.GetName()] != nil {
		return fmt.Errorf("two objects are called %s", object.GetName())
	}
	to[object.GetName()] = object
	return nil
}

// secrets is a cluster that has only Secrets.
type secrets struct {
	dynamic.NamespaceableResourceInterface
	stored []*core.Secret
}

func (s secrets) GetClientFor(_, kind string) (dynamic.NamespaceableResourceInterface, bool, error) {
	return s, true, nil
}

func (s secrets) Namespace(string) dynamic.ResourceInterface { return s }

func (s secrets) Get(_ context.Context, name string, _ meta.GetOptions, _ ...string) (*unstructured.Unstructured, error) {
	for _, secret := range s.stored {
		if secret.Name == name {
			object, err := runtime.DefaultUnstructuredConverter.ToUnstructured(secret)
			return &unstructured.Unstructured{Object: object}, err
		}
	}
	return nil, apierrors.NewNotFound(schema.GroupResource{Resource: "secrets"}, name)
}

// valuesFiles returns the files of values that the tests render.
func valuesFiles(t *testing.T) []string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(chartDir, "ci", "*.yaml"))
	if err != nil || len(files) < 6 {
		t.Fatalf("%v: %v, want at least six files", files, err)
	}
	return files
}

// helm lint finds nothing to complain about, and each document decodes strictly.
func TestLintAndDecode(t *testing.T) {
	used := map[string]bool{}
	for _, file := range valuesFiles(t) {
		version := &common.KubeVersion{Version: "v1.34.0", Major: "1", Minor: "34"}
		for _, m := range lint.RunAll(chartDir, readValues(t, file), namespace, lint.WithKubeVersion(version)).Messages {
			if m.Severity > 1 { // an icon is recommended
				t.Errorf("%s: %v", file, m)
			}
		}
		for _, kind := range mustRender(t, file, nil).kinds {
			used[kind] = true
		}
	}
	if got := len(used); got != 10 {
		t.Errorf("the files render %v, want all ten kinds", slices.Sorted(maps.Keys(used)))
	}
}

// Values that would not work are refused, and the error says what to do.
func TestMistakes(t *testing.T) {
	for _, tt := range []struct {
		name, values, want string
	}{
		{"nothing to do", `{}`, "set origin to the URL of what nodes protect, or enable check, spop or envoy"},
		{"a misspelt value", `{origin: "http://shop", replica: 3}`, "additional properties 'replica' not allowed"},
		{"a value of another type", `{origin: "http://shop", replicas: three}`, "got string, want integer"},
		{"an origin without scheme", `{origin: shop}`, "does not match pattern"},
		{"envoy and an origin", `{origin: "http://shop", envoy: {enabled: true}}`, "install a second release"},
		{"nobody may ask", `{check: {enabled: true}}`, "trustedProxies is empty"},
		{"everybody may ask", `{check: {enabled: true}, trustedProxies: [10.0.0.0/8]}`, "networkPolicy.askers is empty"},
		{"too many nodes", `{origin: "http://shop", replicas: 17}`, "there may be 17 nodes but maxNodes is 16: raise maxNodes"},
		{"too many nodes later", `{origin: "http://shop", autoscaling: {enabled: true, maxReplicas: 20}}`, "there may be 20 nodes but maxNodes is 16"},
		{"no shards", `{origin: "http://shop", shards: {type: given}}`, "shards.addresses is empty"},
		{"a setting of the chart", `{origin: "http://shop", settings: {max_nodes: 32}}`, "settings.max_nodes: the chart sets it"},
		{"a certificate for nobody", `{envoy: {enabled: true}, tlsSecret: tls, networkPolicy: {askers: [{podSelector: {}}]}}`, "tlsSecret is for clients"},
	} {
		v, err := common.ReadValues([]byte(tt.values))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := render(t, v); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: error %v, want %s", tt.name, err, tt.want)
		}
	}
}

// Generated keys differ between releases and survive upgrades, even if an upgrade needs more of them.
func TestKeysSurvive(t *testing.T) {
	file := filepath.Join(chartDir, "ci", "memcached.yaml")
	first, other := mustRender(t, file, nil).Secrets["edge-keys"], mustRender(t, file, nil).Secrets["edge-keys"]
	if len(first.Data["secret"]) != 32 || len(first.Data["gossip.keys"]) != 44 || len(first.Data) != 2 {
		t.Errorf("keys %v, want 24 and 32 bytes in base64", slices.Sorted(maps.Keys(first.Data)))
	}
	if string(first.Data["secret"]) == string(other.Data["secret"]) {
		t.Error("two releases have the same secret")
	}
	v := readValues(t, filepath.Join(chartDir, "ci", "redis.yaml"))
	for range 2 {
		r, err := render(t, v, first)
		if err != nil {
			t.Fatal(err)
		}
		next := r.Secrets["edge-keys"]
		for name, was := range first.Data {
			if string(next.Data[name]) != string(was) {
				t.Errorf("an upgrade changes %s from %q to %q", name, was, next.Data[name])
			}
		}
		if got, want := string(next.Data["redis.conf"]), fmt.Sprintf("requirepass %s\n", next.Data["redis-password"]); got != want || len(want) < 32 {
			t.Errorf("redis.conf = %q, want %q", got, want)
		}
		first = next
	}
	r := mustRender(t, filepath.Join(chartDir, "ci", "given.yaml"), nil)
	if len(r.Secrets)+len(r.ConfigMaps) > 0 {
		t.Errorf("with existingSecret and rulesConfigMap: %v", r.kinds)
	}
}

// documented returns the blocks of YAML in docs/kubernetes.md and docs/envoy-gateway.md: values and a manifest each, and
// values of a second release.
func documented(t *testing.T) (blocks [][]byte) {
	for _, file := range []string{"kubernetes.md", "envoy-gateway.md"} {
		page, err := os.ReadFile("../../../docs/" + file)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range regexp.MustCompile("(?s)```yaml\n(.*?)```").FindAllSubmatch(page, -1) {
			blocks = append(blocks, m[1])
		}
	}
	if len(blocks) != 5 {
		t.Fatalf("%d blocks of YAML, want 5", len(blocks))
	}
	return blocks
}

// The values in these pages render, and their manifests have no unknown fields and name Services of the chart.
func TestDocumented(t *testing.T) {
	var err error
	for _, text := range documented(t) {
		var kind meta.TypeMeta
		if err = yaml.Unmarshal(text, &kind); err != nil {
			t.Fatal(err)
		}
		switch kind.APIVersion + " " + kind.Kind {
		case " ":
			v, err := common.ReadValues(text)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := render(t, v); err != nil {
				t.Errorf("%v\n%s", err, text)
			}
		case "traefik.io/v1alpha1 Middleware":
			var m struct {
				manifest
				Spec struct {
					ForwardAuth struct {
						Address             string
						TrustForwardHeader  bool
						AuthResponseHeaders []string
					}
				}
			}
			err = yaml.UnmarshalStrict(text, &m)
			checkAddress(t, m.Spec.ForwardAuth.Address, "traefik-haproxy", "http://edge-check.edge.svc.cluster.local:%d/check")
		case "gateway.envoyproxy.io/v1alpha1 EnvoyPatchPolicy":
			var p struct {
				manifest
				Spec struct {
					Type        string
					TargetRef   struct{ Group, Kind, Name string }
					JSONPatches []struct {
						Type, Name string
						Operation  struct {
							Op, Path string
							Value    json.RawMessage
						}
					}
				}
			}
			err = yaml.UnmarshalStrict(text, &p)
			checkAddress(t, string(p.Spec.JSONPatches[0].Operation.Value), "envoy-gateway", `{"address":"edge-check.edge.svc.cluster.local","port_value":%d}`)
		default:
			t.Errorf("unexpected %s %s", kind.APIVersion, kind.Kind)
		}
		if err != nil {
			t.Errorf("%v\n%s", err, text)
		}
	}
}

// A manifest holds the fields that all manifests have.
type manifest struct {
	meta.TypeMeta `json:",inline"`
	Metadata      struct{ Name, Namespace string }
}

// checkAddress checks that text contains the address of the Service edge-check, with the first of its ports.
func checkAddress(t *testing.T, text, values, format string) {
	service := mustRender(t, filepath.Join(chartDir, "ci", values+".yaml"), nil).Services["edge-check"]
	if want := fmt.Sprintf(format, service.Spec.Ports[0].Port); !strings.Contains(text, want) {
		t.Errorf("%s does not contain %s", text, want)
	}
}

// sorted returns the StatefulSets, by name.
func (r *release) sorted() []*apps.StatefulSet {
	return slices.SortedFunc(maps.Values(r.StatefulSets), func(a, b *apps.StatefulSet) int { return cmp.Compare(a.Name, b.Name) })
}
