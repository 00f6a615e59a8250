package flow

import (
	"testing"
	"time"
)

// TestTally: every reason has a place of its own and a word, and counts stay at the greatest value.
func TestTally(t *testing.T) {
	var y Tally
	places, words := map[int]Reason{}, map[string]bool{}
	for _, r := range Reasons() {
		if other, taken := places[r.index()]; taken || r.index() < 1 || r.index() > lastReason {
			t.Errorf("%v has place %d, as %v", r, r.index(), other)
		}
		places[r.index()] = r
		if words[r.Word()] {
			t.Errorf("two reasons are called %s", r.Word())
		}
		words[r.Word()] = true
		y.count(r)
		if y.Reason(r) != 1 {
			t.Errorf("%v is counted %d times", r, y.Reason(r))
		}
	}
	for r := Reason(1); r < reasons; r++ {
		if reasonNames[r] != "" && reasonWords[r] == "" {
			t.Errorf("%v has no word", r)
		}
	}
	if len(places) != lastReason {
		t.Errorf("%d reasons, want %d", len(places), lastReason)
	}
	y.reasons[NoTask.index()] = 1<<32 - 1
	if y.count(NoTask); y.Reason(NoTask) != 1<<32-1 {
		t.Errorf("the count wraps to %d", y.Reason(NoTask))
	}
	if y.count(OK); y.Reason(OK) != 0 {
		t.Error("OK counts")
	}
}

// TestLatencies: a latency is in the class whose bounds it is between.
func TestLatencies(t *testing.T) {
	for d, class := range map[time.Duration]int{
		-1: 0, 0: 0, 31 * time.Microsecond: 0, 32*time.Microsecond - 1: 0, 32 * time.Microsecond: 1, 63 * time.Microsecond: 1, 64 * time.Microsecond: 2,
		time.Second: 15, time.Hour: LatencyBuckets - 1,
	} {
		var y Tally
		if y.took(d); y.Took[class] != 1 || y.TookSum != uint64(max(0, d)) {
			t.Errorf("%v: %v, want class %d", d, y.Took, class)
		}
		if bound := LatencyBound(class); bound != 0 && d >= bound || class > 0 && d < LatencyBound(class-1) {
			t.Errorf("%v is not in class %d, which ends at %v", d, class, bound)
		}
	}
	if LatencyBound(LatencyBuckets-1) != 0 {
		t.Error("the last class has an end")
	}
}
