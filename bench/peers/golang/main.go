// peer-golang CASE: nanoseconds of one decision of golang.org/x/time/rate or go.uber.org/ratelimit, the median of 1,000
// batches of 1,000, to standard output. Called by scripts/bench peers. CASE: rate-allow, rate-deny (time.Now, the
// kernel's clock), given-allow, given-deny (rate with a time given), uber-allow (it has no refusal: it sleeps).
package main

import (
	"fmt"
	"math"
	"os"
	"sort"
	"time"

	"go.uber.org/ratelimit"
	"golang.org/x/time/rate"
)

func medianNs(decide func() bool, allow bool) float64 {
	batches := make([]float64, 0, 1000)
	for i := 0; i < 1000; i++ {
		begun := time.Now()
		for k := 0; k < 1000; k++ {
			if decide() != allow {
				panic("the decision was not the case's")
			}
		}
		batches = append(batches, float64(time.Since(begun).Nanoseconds())/1000)
	}
	sort.Float64s(batches)
	return batches[500]
}

func main() {
	name := ""
	if len(os.Args) > 1 {
		name = os.Args[1]
	}
	plenty := rate.NewLimiter(1e9, math.MaxInt32)
	none := rate.NewLimiter(rate.Limit(1.0/86400), 1)
	none.Allow()
	now := time.Now()
	switch name {
	case "rate-allow":
		fmt.Printf("%.1f\n", medianNs(plenty.Allow, true))
	case "rate-deny":
		fmt.Printf("%.1f\n", medianNs(none.Allow, false))
	case "given-allow":
		fmt.Printf("%.1f\n", medianNs(func() bool { return plenty.AllowN(now, 1) }, true))
	case "given-deny":
		fmt.Printf("%.1f\n", medianNs(func() bool { return none.AllowN(now, 1) }, false))
	case "uber-allow":
		limiter := ratelimit.New(1000000000, ratelimit.WithoutSlack)
		fmt.Printf("%.1f\n", medianNs(func() bool { limiter.Take(); return true }, true))
	default:
		os.Exit(2)
	}
}
