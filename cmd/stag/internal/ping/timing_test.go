package ping

import (
	"testing"
	"time"
)

// TestTiming: the percentiles are exact to three digits, and none is longer than the longest time.
func TestTiming(t *testing.T) {
	x := newTiming()
	if x.times() != nil {
		t.Error("there are times before the first ping")
	}
	for i := range 1000 {
		x.add(time.Duration(1000-i) * time.Microsecond)
	}
	got := x.times()
	for _, c := range []struct {
		what      string
		got, want float64
	}{{"min", got.Min, 1}, {"avg", got.Avg, 500.5}, {"max", got.Max, 1000}, {"50%", got.P50, 500}, {"99%", got.P99, 990}, {"99.9%", got.P999, 999}} {
		if c.got < c.want*0.999 || c.got > c.want*1.001 {
			t.Errorf("%s is %v us, want %v", c.what, c.got, c.want)
		}
	}
	one := newTiming()
	one.add(123456 * time.Nanosecond)
	if got := one.times(); *got != (Times{123.456, 123.456, 123.456, 123.456, 123.456, 123.456}) {
		t.Errorf("one ping of 123.456 us has %+v", got)
	}
}
