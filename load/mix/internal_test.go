package mix

// These properties do not show in single requests.

import (
	"math"
	"net/netip"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// Every number has the share of its weight, to within 2⁻³² of a slot.
func TestAlias(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		weights := rapid.SliceOfN(rapid.Float64Range(1e-9, 1e3), 1, 200).Draw(t, "weights")
		want, sum := slices.Clone(weights), 0.0
		for _, w := range weights {
			sum += w
		}
		n := float64(len(weights))
		got := make([]float64, len(weights))
		for i, s := range newAlias(weights) {
			keep := float64(s.keep) / (1 << 32)
			got[i] += keep / n
			got[s.other] += (1 - keep) / n
		}
		for i := range want {
			if share := want[i] / sum; math.Abs(got[i]-share) > 1e-9 {
				t.Errorf("%d of %v has the share %v, want %v", i, want, got[i], share)
			}
		}
	})
}

// All clients of a network have distinct addresses.
func TestPermute(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		width, key := rapid.IntRange(0, 12).Draw(t, "width"), rapid.Uint64().Draw(t, "key")
		seen := map[uint64]bool{}
		for i := range uint64(1) << width {
			j := permute(i, width, key)
			if seen[j] || j >= 1<<width {
				t.Fatalf("permute(%d, %d, %d) = %d, out of range or repeated", i, width, key, j)
			}
			seen[j] = true
		}
	})
}

// Free networks lie within the given one, are large enough, and do not overlap.
func TestFree(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		taken := []netip.Prefix{netip.MustParsePrefix("10.0.4.0/22"), netip.MustParsePrefix("10.200.0.0/16"), netip.MustParsePrefix("2001:db8::/40")}
		for range rapid.IntRange(1, 30).Draw(t, "networks") {
			whole := rapid.SampledFrom([]netip.Prefix{pool4, pool6}).Draw(t, "pool")
			n := rapid.Uint64Range(0, 1<<21).Draw(t, "clients")
			got, err := free(taken, whole, n, rapid.Uint64().Draw(t, "addresses"))
			if err != nil {
				if whole == pool6 {
					t.Fatalf("%d clients of %v: %v", n, whole, err)
				}
				continue // 10.0.0.0/8 is soon exhausted
			}
			for _, other := range taken {
				if got.Overlaps(other) {
					t.Fatalf("%v overlaps %v", got, other)
				}
			}
			if c := (component{networks: []netip.Prefix{got}}); !whole.Contains(got.Addr()) || got.Bits() < whole.Bits() || c.capacity() < n {
				t.Fatalf("%d clients of %v get %v", n, whole, got)
			}
			taken = append(taken, got)
		}
	})
}
