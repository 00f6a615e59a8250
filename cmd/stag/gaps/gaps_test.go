package gaps

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stag-rdma/stag/test/rig"
)

// TestGaps: Cut returns the longest gap that has ended, a gap that lasts belongs to the next Cut, and the gap before
// Resume is not measured.
func TestGaps(t *testing.T) {
	m := &Meter{}
	m.Arrive(1)
	if got := m.Cut(); got != (Gap{}) {
		t.Errorf("%v before the second arrival", got)
	}
	m.last = m.last.Add(-time.Minute)
	if got := m.Cut(); got != (Gap{}) {
		t.Errorf("%v while the gap lasts", got)
	}
	m.Arrive(2)
	ended := m.last
	m.Arrive(3)
	if got := m.Cut(); got.Length < time.Minute || got.End != ended {
		t.Errorf("%v, want a minute until %v", got, ended)
	}
	m.last = m.last.Add(-time.Minute)
	m.Resume()
	m.Arrive(4)
	if got := m.Cut(); got != (Gap{}) || m.Arrived() != 10 {
		t.Errorf("%v after Resume, %d octets", got, m.Arrived())
	}
	rig.Must(t, m.Until(t.Context(), 10))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := m.Until(ctx, 11); !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
}
