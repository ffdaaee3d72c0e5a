package counter_test

import (
	"fmt"
	"math/big"
	"testing"

	"pgregory.net/rapid"

	"github.com/edgelimit/edge/counter"
)

func ExampleEstimate() {
	// 18 requests in the current minute count, and three quarters of the 42 in the previous one.
	e := counter.Estimate{Whole: 18, Part: 42, Left: 45, Of: 60}
	fmt.Println(e.Float(), e.Ceil(), e.Over(49), e.Over(50))
	// Output: 49.5 50 true false
}

func TestEstimateOver(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		most := rapid.SampledFrom([]uint64{5, 1 << 20, 1 << 53}).Draw(t, "most")
		e := counter.Estimate{
			Whole: rapid.Uint64Range(0, most).Draw(t, "whole"),
			Part:  rapid.Uint64Range(0, most).Draw(t, "part"),
			Of:    rapid.Int64Range(1, 7*24*3600*1e6).Draw(t, "of"),
		}
		e.Left = rapid.Int64Range(0, e.Of).Draw(t, "left")
		threshold := rapid.Uint64Range(0, most).Draw(t, "threshold")
		exact := new(big.Rat).SetFrac(big.NewInt(e.Left), big.NewInt(e.Of))
		exact.Mul(exact, new(big.Rat).SetUint64(e.Part)).Add(exact, new(big.Rat).SetUint64(e.Whole))
		if got, want := e.Over(threshold), exact.Cmp(new(big.Rat).SetUint64(threshold)) > 0; got != want {
			t.Fatalf("%+v.Over(%d) = %t, want %t: it is %v", e, threshold, got, want, exact)
		}
	})
}
