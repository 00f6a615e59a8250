package measure

import (
	"cmp"
	"slices"
	"time"
)

// median returns the middle value of v, or the mean of the two middle values. It
// returns 0 if v is empty.
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

// quantile returns the smallest value of v that at least percent of the values do not
// exceed. It returns the zero value if v is empty.
func quantile[T cmp.Ordered](v []T, percent int) (q T) {
	if len(v) == 0 {
		return q
	}
	s := slices.Sorted(slices.Values(v))
	return s[max(0, (len(s)*percent+99)/100-1)]
}

// millis returns d in milliseconds, rounded down to microseconds.
func millis(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }
