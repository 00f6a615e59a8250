package measure

import (
	"cmp"
	"slices"
	"time"
)

// median is the middle of v, or the mean of the two middle ones; 0 of nothing.
func median(v []float64) float64 {
	if len(v) == 0 {
		return 0
	}
	s := slices.Sorted(slices.Values(v))
	mid := len(s) / 2
	if len(s)%2 == 1 {
		return s[mid]
	}
	return (s[mid-1] + s[mid]) / 2
}

// quantile is the smallest of v that percent of v do not exceed; the zero
// value of nothing.
func quantile[T cmp.Ordered](v []T, percent int) (q T) {
	if len(v) == 0 {
		return q
	}
	s := slices.Sorted(slices.Values(v))
	return s[max(0, (len(s)*percent+99)/100-1)]
}

// millis prints well.
func millis(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }
